package store

import (
	"strconv"

	"lorasim/trace"
	"lorasim/trace/internal/textfile"
)

// csvFile is a CSV file being read.
type csvFile struct {
	file                                 *textfile.File
	table                                *textfile.Table
	id, arrival, adapter, prompt, output int // index of each column
	maxNew, rank                         int // -1: not there
}

func newCSV(f *textfile.File) (textParser, error) {
	t, err := f.Header()
	if err != nil {
		return nil, err
	}
	if err := t.Only(textColumns...); err != nil {
		return nil, err
	}
	c := &csvFile{file: f, table: t, maxNew: t.Optional(maxNewColumn), rank: t.Optional(rankColumn)}
	for i, p := range []*int{&c.id, &c.arrival, &c.adapter, &c.prompt, &c.output} {
		if *p, err = t.Column(required[i]); err != nil {
			return nil, err
		}
	}
	return c.parse, nil
}

func (c *csvFile) parse(row *textRow) error {
	fields, err := c.table.Row()
	if err != nil {
		return err
	}
	*row = textRow{rank: -1}
	if row.ID, err = textfile.Int(fields[c.id]); err != nil {
		return c.file.Bad(idColumn, err)
	}
	if row.Arrival, err = textfile.Float(fields[c.arrival]); err != nil {
		return c.file.Bad(arrivalColumn, err)
	}
	if a := fields[c.adapter]; isIndex(a) {
		if err := row.setIndex(a); err != nil {
			return c.file.Bad(adapterColumn, err)
		}
	} else {
		row.name, row.named = a, true
	}
	if row.Prompt, err = textfile.Count(fields[c.prompt]); err != nil {
		return c.file.Bad(promptColumn, err)
	}
	if row.Output, err = textfile.Count(fields[c.output]); err != nil {
		return c.file.Bad(outputColumn, err)
	}
	// The optional columns may also be empty.
	if c.maxNew >= 0 && len(fields[c.maxNew]) > 0 {
		if row.MaxNew, err = textfile.Count(fields[c.maxNew]); err != nil {
			return c.file.Bad(maxNewColumn, err)
		}
	}
	if c.rank >= 0 && len(fields[c.rank]) > 0 {
		if row.rank, err = textfile.Count(fields[c.rank]); err != nil {
			return c.file.Bad(rankColumn, err)
		}
	}
	return nil
}

// isIndex tells a whole number from the name of an adapter.
func isIndex(b []byte) bool {
	if len(b) > 1 && b[0] == '-' {
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

func appendCSVHeader(b []byte, o WriteOptions) []byte {
	b = append(b, "id,arrival_s,adapter,prompt_tokens,output_tokens"...)
	if o.MaxNew {
		b = append(b, ",max_new_tokens"...)
	}
	if o.Ranks {
		b = append(b, ",rank"...)
	}
	return append(b, '\n')
}

func appendCSV(b []byte, r trace.Request, rank int, o WriteOptions) []byte {
	b = strconv.AppendInt(b, r.ID, 10)
	b = append(b, ',')
	b = appendSeconds(b, r.Arrival)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(r.Adapter), 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(r.Prompt), 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(r.Output), 10)
	if o.MaxNew {
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(r.MaxNew), 10)
	}
	if o.Ranks {
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(rank), 10)
	}
	return append(b, '\n')
}
