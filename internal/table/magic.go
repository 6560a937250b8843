package table

import (
	"io"

	"lorasim/internal/textfile"
)

// IsParquet reports whether a file begins as Parquet files do. It returns false for pipes and for files that cannot
// be opened.
func IsParquet(files Files, path string) bool {
	if info, err := textfile.Stat(files.FS, path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, _, err := textfile.OpenFileIn(files.FS, path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "PAR1"
}

// ParquetColumns returns the columns of a Parquet file under the names that ScanParquet uses.
func ParquetColumns(files Files, path string) (names []string, err error) {
	b, src, err := files.open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	err = Guard(func() (err error) {
		names, err = b.Columns(src)
		return err
	})
	return names, err
}

// ScanParquet calls visit for each row of a Parquet file of any schema, with the values as text. null is "", a
// timestamp is RFC 3339 in UTC. It leaves out columns inside lists; columns inside groups are named "outer.inner".
func ScanParquet(files Files, path string, visit func(i int64, names, values []string) error) error {
	b, src, err := files.open(path)
	if err != nil {
		return err
	}
	defer src.Close()
	return Guard(func() error { return b.Scan(src, visit) })
}
