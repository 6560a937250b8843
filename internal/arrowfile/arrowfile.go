// Package arrowfile reads Parquet and Arrow IPC files that may be damaged, or
// made by anybody. The Arrow library trusts what such a file states of itself,
// and answers a lie in four ways, of which a program can only survive the first:
//
//   - It panics: [Guard] turns that into an error.
//   - It takes as much memory as a length in the file says: a [File] checks the
//     lengths in a footer before the library sees them, and limits the memory
//     for what is read later. (Unpacking a page of a Parquet file may still take
//     up to 2 GiB for a moment.)
//   - It goes through as many items as a count in the file says, or loops for
//     ever over levels that are not there: a File checks those too.
//   - It reads zeros without end beyond the end of the file: [File.Pages] reads
//     a column within its bounds.
//
// The values themselves are for the caller to check.
//
//	f, err := arrowfile.New(source)
//	r, err := f.Arrow()
//	for i := range r.NumRecords() {
//		f.NextBatch()
//		err := arrowfile.Guard(func() error {
//			batch, err := r.Record(i)
//			...
//		})
//	}
package arrowfile

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// Guard calls f and returns its error. A panic becomes an error.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged file: %v", p)
		}
	}()
	return f()
}

// Source is what is read: an open file, or bytes in memory.
type Source interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

// File is a Parquet or Arrow IPC file.
type File struct {
	src  Source
	size int64
	mem  *budget
}

// New returns the file that lies in src.
func New(src Source) (*File, error) {
	size, err := src.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return &File{src: src, size: size, mem: newBudget(size)}, nil
}

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Arrow opens the file as an Arrow IPC file. What the reader does later needs a
// Guard.
func (f *File) Arrow() (r *ipc.FileReader, err error) {
	err = Guard(func() error {
		if err := checkFooter(f.src, f.size); err != nil {
			return err
		}
		r, err = ipc.NewFileReader(f.src, ipc.WithAllocator(f.mem))
		return err
	})
	return r, err
}

// Parquet opens the file as a Parquet file. Its columns are to be read by
// [File.Pages], under a Guard.
func (f *File) Parquet() (r *file.Reader, err error) {
	err = Guard(func() error {
		r, err = file.NewParquetReader(f.src, file.WithReadProps(parquet.NewReaderProperties(f.mem)))
		return err
	})
	return r, err
}

// Allocator returns the allocator for what is read from the file.
func (f *File) Allocator() memory.Allocator { return f.mem }

// NextBatch gives back the memory that was allocated so far: the limit is one on
// what is read at a time.
func (f *File) NextBatch() { f.mem.taken = 0 }

// budget is an allocator that panics, for Guard, rather than give out more
// memory than an intact file could need at a time.
type budget struct {
	size, limit int64
	taken       int64
}

// newBudget returns the budget of a file of the given size. Compression may make
// a file smaller than what it holds, by a factor of a few hundred at most.
func newBudget(size int64) *budget {
	const floor, factor, most = 64 << 20, 256, 4 << 30
	return &budget{size: size, limit: max(size, min(floor+factor*size, most))}
}

// Allocate implements memory.Allocator.
func (b *budget) Allocate(n int) []byte {
	if b.taken += int64(n); n < 0 || b.taken > b.limit {
		panic(fmt.Sprintf("a batch takes more than %d bytes, too much for a file of %d", b.limit, b.size))
	}
	return make([]byte, n)
}

// Reallocate implements memory.Allocator.
func (b *budget) Reallocate(n int, old []byte) []byte {
	if n <= cap(old) {
		return old[:n]
	}
	grown := b.Allocate(n)
	copy(grown, old)
	return grown
}

// Free implements memory.Allocator.
func (b *budget) Free([]byte) {}
