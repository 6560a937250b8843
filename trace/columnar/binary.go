// Package columnar has the binary formats of files of rows: Parquet and Arrow IPC files. It is apart from what reads
// and writes workloads and records, because the libraries of the formats are most of a program. A program that needs
// the formats hands them in:
//
//	sc := scenario.Default()
//	sc.Files = columnar.Files()
package columnar

import (
	"bufio"
	"errors"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/parquet-go/parquet-go"

	"lorasim/internal/table"
	"lorasim/trace"
)

// Files returns the files of the operating system, in text formats, Parquet and Arrow.
func Files() trace.Files { return trace.Files{Binary: formats{}} }

// batchRows is the number of rows of a written Arrow record batch or Parquet row group.
const batchRows = 1 << 16

var (
	errShort   = errors.New("ends before the row group does")
	errDamaged = errors.New("damaged file: impossible length or count")
)

// formats implements table.Binary.
type formats struct{}

// Extensions implements trace.Formats.
func (formats) Extensions() []string { return []string{".parquet", ".arrow"} }

// NewEncoder implements table.Binary.
func (formats) NewEncoder(ext string, f io.WriteSeeker, out *bufio.Writer, columns []table.Column, meta [][2]string) (
	table.Encoder, error) {
	if ext == ".parquet" {
		return newParquetEncoder(out, columns, meta)
	}
	return newArrowEncoder(f, columns, meta)
}

// NewDecoder implements table.Binary.
func (formats) NewDecoder(ext string, src *table.Source, path string, columns []table.Column, strict bool) (
	table.Decoder, error) {
	if ext == ".arrow" {
		return newArrowDecoder(src, path, columns, strict)
	}
	return newParquetDecoder(src, path, columns, strict)
}

// form describes a cell in binary files.
type form struct {
	wants   string // what a file's column should hold, for messages
	kinds   []parquet.Kind
	parquet parquet.Node
	arrow   arrow.DataType
}

// formOf returns the form of a column.
func formOf(c *table.Column) form {
	switch c.Value.(type) {
	case *int64:
		return form{"int32 or int64", []parquet.Kind{parquet.Int32, parquet.Int64}, parquet.Leaf(parquet.Int64Type),
			arrow.PrimitiveTypes.Int64}
	case *int32:
		return form{"int32 or int64", []parquet.Kind{parquet.Int32, parquet.Int64},
			parquet.Encoded(parquet.Leaf(parquet.Int32Type), &parquet.RLEDictionary), arrow.PrimitiveTypes.Int32}
	case *string:
		return form{"text", []parquet.Kind{parquet.ByteArray},
			parquet.Encoded(parquet.String(), &parquet.RLEDictionary), arrow.BinaryTypes.String}
	}
	double := form{"float64", []parquet.Kind{parquet.Double}, parquet.Leaf(parquet.DoubleType),
		arrow.PrimitiveTypes.Float64}
	if _, ok := c.Value.(*float64); ok {
		return double
	}
	return form{"lists of float64", double.kinds, parquet.List(double.parquet), arrow.ListOfNonNullable(double.arrow)}
}
