package columnar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"lorasim/internal/table"
)

// Columns implements table.Binary.
func (formats) Columns(src *table.Source) ([]string, error) {
	s := &scan{src: src}
	err := s.open()
	return s.names, err
}

// Scan implements table.Binary.
func (formats) Scan(src *table.Source, visit func(i int64, names, values []string) error) error {
	s := &scan{src: src, visit: visit}
	return s.run()
}

// scan reads the columns of a file side by side.
type scan struct {
	src    *table.Source
	f      *parquet.File
	visit  func(i int64, names, values []string) error
	names  []string
	leaves []parquet.LeafColumn
	row    int64
}

// open reads the schema.
func (s *scan) open() (err error) {
	if err = checkParquetFooter(s.src, s.src.Size()); err != nil {
		return err
	}
	s.f, err = parquet.OpenFile(s.src, s.src.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	for _, path := range s.f.Schema().Columns() {
		leaf, _ := s.f.Schema().Lookup(path...)
		if leaf.MaxRepetitionLevel == 0 {
			s.names, s.leaves = append(s.names, strings.Join(path, ".")), append(s.leaves, leaf)
		}
	}
	return nil
}

func (s *scan) run() error {
	if err := s.open(); err != nil {
		return err
	}
	for i, group := range s.f.RowGroups() {
		if err := s.group(group, &s.f.Metadata().RowGroups[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) group(group parquet.RowGroup, stated *format.RowGroup) error {
	chunks := make([]*chunk, len(s.leaves))
	for i, leaf := range s.leaves {
		if err := checkPages(s.src.SectionReader, s.src.Size(), &stated.Columns[leaf.ColumnIndex].MetaData,
			leaf); err != nil {
			return fmt.Errorf("column %q: %w", s.names[i], err)
		}
		chunks[i] = &chunk{pages: group.ColumnChunks()[leaf.ColumnIndex].Pages()}
		defer chunks[i].pages.Close()
	}
	for range group.NumRows() {
		values := make([]string, len(chunks))
		for i, c := range chunks {
			v, err := c.take()
			if err != nil {
				return fmt.Errorf("row %d: column %q: %w", s.row+1, s.names[i], err)
			}
			values[i] = textOf(v, s.leaves[i].Node.Type())
		}
		if err := s.visit(s.row, s.names, values); err != nil {
			return err
		}
		s.row++
	}
	return nil
}

// textOf is a value as text.
func textOf(v *parquet.Value, t parquet.Type) string {
	if v.IsNull() {
		return ""
	}
	switch t.Kind() {
	case parquet.Boolean:
		return strconv.FormatBool(v.Boolean())
	case parquet.Int32:
		return strconv.FormatInt(int64(v.Int32()), 10)
	case parquet.Int64:
		if unit := timestampUnit(t); unit > 0 {
			return timestamp(v.Int64(), unit)
		}
		return strconv.FormatInt(v.Int64(), 10)
	case parquet.Int96: // nanoseconds of the day, and the Julian day
		x := v.Int96()
		const julianEpoch = 2440588 // 1 January 1970
		day := time.Duration(int64(x[0]) | int64(x[1])<<32)
		return time.Unix((int64(x[2])-julianEpoch)*86400, 0).UTC().Add(day).Format(time.RFC3339Nano)
	case parquet.Float:
		return strconv.FormatFloat(float64(v.Float()), 'g', -1, 32)
	case parquet.Double:
		return strconv.FormatFloat(v.Double(), 'g', -1, 64)
	}
	return string(v.ByteArray())
}

func timestamp(n int64, unit time.Duration) string {
	per := int64(time.Second / unit)
	return time.Unix(n/per, n%per*int64(unit)).UTC().Format(time.RFC3339Nano)
}

// timestampUnit is the unit of a timestamp; 0: the type is none.
func timestampUnit(t parquet.Type) time.Duration {
	l := t.LogicalType()
	if l == nil {
		return 0
	}
	if stamp, ok := l.Value.(*format.TimestampType); ok && stamp.Unit.Value != nil {
		return stamp.Unit.Value.Duration()
	}
	return 0
}
