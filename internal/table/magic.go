package table

import (
	"io"
	"os"

	"lorasim/internal/textfile"
)

// IsParquet reports whether a file begins as Parquet files do. It returns false for pipes and for files that cannot
// be opened.
func IsParquet(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := textfile.OpenFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "PAR1"
}
