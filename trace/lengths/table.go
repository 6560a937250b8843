package lengths

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"lorasim/internal/textfile"
)

// Table draws the lengths of rows of a table, with replacement: prompt and
// output of one row together, so that their correlation stays.
type Table struct {
	rows []pair
}

type pair struct{ prompt, output int32 }

const (
	promptColumn = "num_prefill_tokens"
	outputColumn = "num_decode_tokens"
)

// ReadTable reads a CSV file, plain or gzip-compressed, with the columns
// num_prefill_tokens and num_decode_tokens; others are ignored. Errors name
// the file, line and column. It takes 8 bytes of memory per row.
func ReadTable(path string) (*Table, error) {
	f, err := textfile.Open(path, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	csv, err := f.Header()
	if err != nil {
		return nil, err
	}
	var columns [2]int
	for i, name := range []string{promptColumn, outputColumn} {
		if columns[i], err = csv.Column(name); err != nil {
			return nil, err
		}
	}
	t := &Table{}
	for {
		fields, err := csv.Row()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var row pair
		if row.prompt, err = tokens(fields[columns[0]]); err != nil {
			return nil, f.Bad(promptColumn, err)
		}
		if row.output, err = tokens(fields[columns[1]]); err != nil {
			return nil, f.Bad(outputColumn, err)
		}
		t.rows = append(t.rows, row)
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("%s: length table has no rows", path)
	}
	return t, nil
}

func tokens(b []byte) (int32, error) {
	n, err := textfile.Count(b)
	if err == nil && n == 0 {
		err = errors.New("is 0, expected >= 1 token")
	}
	return n, err
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Draw returns the lengths of a row.
func (t *Table) Draw(r *rand.Rand) (prompt, output int32) {
	row := t.rows[r.IntN(len(t.rows))]
	return row.prompt, row.output
}
