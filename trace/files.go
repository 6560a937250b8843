package trace

import "io/fs"

// Files are the files that a program can read and write. With the zero value it reads files of the operating system in
// text formats: CSV and JSON Lines, also compressed by gzip. Package lorasim/trace/columnar adds Parquet and Arrow.
type Files struct {
	FS     fs.FS   // files to read; nil: the operating system's. New files are always the operating system's
	Binary Formats // binary formats; nil: none
}

// Formats are binary formats of files, which package lorasim/trace/columnar implements. Whoever reads a file finds the
// other methods by a type assertion, because they name types that programs outside of lorasim do not need.
type Formats = interface {
	Extensions() []string // of the names of files
}
