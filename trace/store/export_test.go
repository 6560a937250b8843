package store

import (
	"os"

	"lorasim/trace"
)

// Encode writes a workload to an open file, for tests of failing files.
func Encode(f *os.File, path string, src trace.Source) (int64, error) {
	e, err := encoderOf(path)
	if err != nil {
		return 0, err
	}
	return encode(f, path, e, src, WriteOptions{})
}
