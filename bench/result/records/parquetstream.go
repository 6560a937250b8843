package records

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"lorasim/internal/arrowfile"
	"lorasim/internal/record"
)

// stream yields the values of one Parquet column, row by row.
type stream interface {
	take(p any) error // stores the next row's value
}

// newStream returns the stream of a column chunk that fits the field p.
func newStream(pages *arrowfile.Pages, mem memory.Allocator, pool *sync.Pool, p any) (stream, error) {
	d := pages.Column()
	_, list := p.(*[]float64)
	flat := d.MaxRepetitionLevel() == 0
	switch c := file.NewColumnReader(d, pages, mem, pool).(type) {
	case *file.Float64ColumnChunkReader:
		levels := newLevels(pages, c.ReadBatch)
		if list && d.MaxRepetitionLevel() == 1 {
			root := d.SchemaNode()
			for root.Parent() != nil && root.Parent().Parent() != nil {
				root = root.Parent()
			}
			return &listStream{levels: levels, optional: root.RepetitionType() == parquet.Repetitions.Optional}, nil
		}
		if _, ok := p.(*float64); ok && flat {
			return &flatStream[float64]{levels, func(p any, v float64) error { return setFloat(p.(*float64), v) }}, nil
		}
	case *file.Int32ColumnChunkReader:
		if isInt(p) && flat {
			return &flatStream[int32]{newLevels(pages, c.ReadBatch), func(p any, v int32) error { return setInt(p, int64(v)) }}, nil
		}
	case *file.Int64ColumnChunkReader:
		if isInt(p) && flat {
			return &flatStream[int64]{newLevels(pages, c.ReadBatch), setInt}, nil
		}
	case *file.ByteArrayColumnChunkReader:
		if isText(p) && flat {
			return &flatStream[parquet.ByteArray]{newLevels(pages, c.ReadBatch), setText}, nil
		}
	}
	return nil, fmt.Errorf("has type %s, expected %s", d.PhysicalType(), typeOf(p))
}

func isText(p any) bool {
	switch p.(type) {
	case *string, *record.Status:
		return true
	}
	return false
}

func setText(p any, v parquet.ByteArray) (err error) {
	switch p := p.(type) {
	case *string:
		*p = clean(string(v))
	case *record.Status:
		*p, err = record.ParseStatus(string(v))
	}
	return err
}

// streamBatch is how many levels a stream reads at a time.
const streamBatch = 1024

// levels reads the definition and repetition levels of a column chunk with the
// values that belong to them.
type levels[T any] struct {
	pages    *arrowfile.Pages
	read     func(n int64, values []T, def, rep []int16) (int64, int, error)
	max      int16 // definition level of a value that is there
	values   []T
	def, rep []int16
	n, at    int // levels held, next level
	have     int // values held
	next     int // next value
}

func newLevels[T any](pages *arrowfile.Pages, read func(int64, []T, []int16, []int16) (int64, int, error)) *levels[T] {
	return &levels[T]{
		pages: pages, read: read, max: pages.Column().MaxDefinitionLevel(),
		values: make([]T, streamBatch), def: make([]int16, streamBatch), rep: make([]int16, streamBatch),
	}
}

// fill makes sure that a level is held; false at the end of the chunk. It never
// reads on into another page, since text lies in the memory of its page: at the
// end of one it takes a single level first.
func (l *levels[T]) fill() (bool, error) {
	if l.at < l.n {
		return true, nil
	}
	n, have, err := l.read(int64(min(max(l.pages.Left, 1), streamBatch)), l.values, l.def, l.rep)
	if err == nil {
		err = l.pages.Err()
	}
	if err != nil {
		return false, err
	}
	l.pages.Left -= int(n)
	l.n, l.at, l.have, l.next = int(n), 0, have, 0
	return n > 0, nil
}

// value returns the value of the current level and moves on.
func (l *levels[T]) value() (v T, err error) {
	if l.next >= l.have {
		return v, errShort
	}
	v = l.values[l.next]
	l.next++
	l.at++
	return v, nil
}

// flatStream is a column without lists, required or optional.
type flatStream[T any] struct {
	*levels[T]
	set func(p any, v T) error
}

func (s *flatStream[T]) take(p any) error {
	if ok, err := s.fill(); err != nil {
		return err
	} else if !ok {
		return errShort
	}
	if s.max > 0 && s.def[s.at] < s.max {
		s.at++
		if f, ok := p.(*float64); ok {
			*f = math.NaN()
			return nil
		}
		return errors.New("is null, expected a value")
	}
	v, err := s.value()
	if err != nil {
		return err
	}
	return s.set(p, v)
}

// listStream is a column of lists of numbers.
type listStream struct {
	*levels[float64]
	optional bool // the list itself may be null
}

func (s *listStream) take(p any) error {
	gaps := p.(*[]float64)
	element := int16(1) // definition level from which there is an element
	if s.optional {
		element = 2
	}
	for first := true; ; first = false {
		ok, err := s.fill()
		switch {
		case err != nil:
			return err
		case !ok && first:
			return errShort
		case !ok || !first && s.rep[s.at] == 0:
			return nil
		}
		switch def := s.def[s.at]; {
		case def == s.max:
			v, err := s.value()
			if err != nil {
				return err
			}
			*gaps = append(*gaps, v)
		case def >= element:
			return errors.New("holds a null, expected numbers")
		default:
			s.at++
			if def == element-1 {
				*gaps = []float64{}
			}
		}
	}
}
