package table

import (
	"bufio"
	"errors"
	"io"
)

// In a browser only text formats are available: the libraries for Parquet and Arrow would be most of the program.
var errNoBinary = errors.New("Parquet and Arrow files cannot be used in a browser, expected .csv or .jsonl")

func newBinaryEncoder(string, io.WriteSeeker, *bufio.Writer, []Column, Options) (encoder, error) {
	return nil, errNoBinary
}

func newBinaryDecoder(*source, string, []Column, bool) (decoder, error) { return nil, errNoBinary }

// ParquetColumns returns an error in a browser.
func ParquetColumns(string) (names []string, err error) { return nil, errNoBinary }

// ScanParquet returns an error in a browser.
func ScanParquet(string, func(i int64, names, values []string) error) error { return errNoBinary }
