//go:build !js

package table

import (
	"bufio"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/parquet-go/parquet-go"
)

// newBinaryEncoder begins a Parquet or an Arrow file.
func newBinaryEncoder(ext string, f io.WriteSeeker, out *bufio.Writer, columns []Column, o Options) (encoder, error) {
	if ext == ".parquet" {
		return newParquetEncoder(out, columns, o.Meta)
	}
	return newArrowEncoder(f, columns, o.Meta)
}

// newBinaryDecoder opens a Parquet or an Arrow file.
func newBinaryDecoder(src *source, path string, columns []Column, strict bool) (decoder, error) {
	if formatOf(path) == ".arrow" {
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

func (c *Column) form() form {
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
