package records

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow/memory"
)

// guard runs f and names the file, and the row unless it is 0, in its error. It
// turns a panic, with which the Arrow library may answer a damaged file, into an
// error too.
func guard(name string, row int64, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged file: %v", p)
		}
		switch {
		case err == nil || err == io.EOF:
		case row > 0:
			err = fmt.Errorf("%s: row %d: %w", name, row, err)
		default:
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	return f()
}

// boundedAllocator refuses, by a panic for guard, a block of memory that no
// intact file of its size would need: the length in a damaged one may be
// anything.
type boundedAllocator struct {
	memory.Allocator
	limit int
}

// newAllocator returns an allocator for reading f. Compression may make a file
// smaller than its blocks, by a factor of a few hundred at most.
func newAllocator(f io.Seeker) (memory.Allocator, error) {
	const floor, factor = 64 << 20, 256
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return &boundedAllocator{memory.DefaultAllocator, int(max(floor, factor*size))}, err
}

func (a *boundedAllocator) check(n int) {
	if n < 0 || n > a.limit {
		panic(fmt.Sprintf("a block of %d bytes", n))
	}
}

// Allocate implements memory.Allocator.
func (a *boundedAllocator) Allocate(n int) []byte {
	a.check(n)
	return a.Allocator.Allocate(n)
}

// Reallocate implements memory.Allocator.
func (a *boundedAllocator) Reallocate(n int, b []byte) []byte {
	a.check(n)
	return a.Allocator.Reallocate(n, b)
}
