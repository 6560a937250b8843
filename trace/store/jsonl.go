package store

import (
	"errors"
	"slices"
	"strconv"

	"lorasim/trace"
	"lorasim/trace/internal/textfile"
)

// jsonlFile is a JSONL file being read.
type jsonlFile struct {
	file  *textfile.File
	row   *textRow
	seen  [7]bool // by index in textColumns
	key   string  // of the member at fault
	visit func(key, value []byte) error
}

func newJSONL(f *textfile.File) (textParser, error) {
	j := &jsonlFile{file: f}
	j.visit = j.member
	return j.parse, nil
}

func (j *jsonlFile) parse(row *textRow) error {
	line, err := j.file.Line()
	if err != nil {
		return err
	}
	*row = textRow{rank: -1}
	j.row, j.key, j.seen = row, "", [7]bool{}
	if err := textfile.Object(line, j.visit); err != nil {
		return j.file.Bad(j.key, err)
	}
	for k, name := range required {
		if !j.seen[k] {
			return j.file.Bad(name, errors.New("is missing"))
		}
	}
	return nil
}

func (j *jsonlFile) member(key, value []byte) error {
	k := slices.Index(textColumns, string(key))
	if k < 0 {
		return textfile.Unknown("key", string(key), textColumns)
	}
	j.key = textColumns[k]
	if j.seen[k] {
		return errors.New("appears twice")
	}
	j.seen[k] = true
	if err := j.set(value); err != nil {
		return err
	}
	j.key = ""
	return nil
}

func (j *jsonlFile) set(value []byte) error {
	var err error
	switch row := j.row; j.key {
	case idColumn:
		row.ID, err = textfile.Int(value)
	case arrivalColumn:
		row.Arrival, err = textfile.Float(value)
	case adapterColumn:
		if value[0] == '"' {
			row.named = true
			row.name, err = textfile.Text(value)
		} else {
			err = row.setIndex(value)
		}
	case promptColumn:
		row.Prompt, err = textfile.Count(value)
	case outputColumn:
		row.Output, err = textfile.Count(value)
	case maxNewColumn:
		row.MaxNew, err = textfile.Count(value)
	case rankColumn:
		row.rank, err = textfile.Count(value)
	}
	return err
}

func appendJSON(b []byte, r trace.Request, rank int, o WriteOptions) []byte {
	b = append(b, `{"id":`...)
	b = strconv.AppendInt(b, r.ID, 10)
	b = append(b, `,"arrival_s":`...)
	b = appendSeconds(b, r.Arrival)
	b = append(b, `,"adapter":`...)
	b = strconv.AppendInt(b, int64(r.Adapter), 10)
	b = append(b, `,"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Prompt), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Output), 10)
	if o.MaxNew {
		b = append(b, `,"max_new_tokens":`...)
		b = strconv.AppendInt(b, int64(r.MaxNew), 10)
	}
	if o.Ranks {
		b = append(b, `,"rank":`...)
		b = strconv.AppendInt(b, int64(rank), 10)
	}
	return append(b, "}\n"...)
}
