package llm

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"lorasim/internal/textfile"
)

// format describes one trace format.
type format struct {
	files []string // patterns of its files' names
	open  func(*Reader) (func() (row, error), error)
}

var formats = map[Format]format{
	AzureLLM: {[]string{"AzureLLMInferenceTrace*.csv", "AzureLMMInferenceTrace*.csv"}, azure},
	BurstGPT: {[]string{"BurstGPT*.csv"}, burst},
	Mooncake: {[]string{"*.jsonl"}, mooncake},
}

var formatNames = []string{string(AzureLLM), string(BurstGPT), string(Mooncake)}

// columns finds the named columns of a CSV file.
func columns(f *textfile.File, names ...string) (*textfile.Table, []int, error) {
	t, err := f.Header()
	if err != nil {
		return nil, nil, err
	}
	index := make([]int, len(names))
	for i, name := range names {
		if index[i], err = t.Column(name); err != nil {
			return nil, nil, err
		}
	}
	return t, index, nil
}

func azure(r *Reader) (func() (row, error), error) {
	const stampColumn, promptColumn, outputColumn = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
	t, index, err := columns(r.file, stampColumn, promptColumn, outputColumn)
	if err != nil {
		return nil, err
	}
	var clock clock
	return func() (row, error) {
		fields, err := t.Row()
		if err != nil {
			return row{}, err
		}
		var w row
		if w.at, err = clock.parse(fields[index[0]]); err != nil {
			return row{}, r.file.Bad(stampColumn, err)
		}
		if w.prompt, err = tokens(fields[index[1]]); err != nil {
			return row{}, r.file.Bad(promptColumn, err)
		}
		if w.output, err = tokens(fields[index[2]]); err != nil {
			return row{}, r.file.Bad(outputColumn, err)
		}
		return w, nil
	}, nil
}

func burst(r *Reader) (func() (row, error), error) {
	const stampColumn, promptColumn, outputColumn, modelColumn = "Timestamp", "Request tokens", "Response tokens", "Model"
	names := []string{stampColumn, promptColumn, outputColumn}
	if r.options.Models != nil {
		names = append(names, modelColumn)
	}
	t, index, err := columns(r.file, names...)
	if err != nil {
		return nil, err
	}
	return func() (row, error) {
		fields, err := t.Row()
		if err != nil {
			return row{}, err
		}
		var w row
		if w.at, err = textfile.Fixed(fields[index[0]], 9); err != nil {
			return row{}, r.file.Bad(stampColumn, err)
		}
		if w.prompt, err = textfile.Count(fields[index[1]]); err != nil {
			return row{}, r.file.Bad(promptColumn, err)
		}
		if w.output, err = textfile.Count(fields[index[2]]); err != nil {
			return row{}, r.file.Bad(outputColumn, err)
		}
		switch {
		case w.output == 0 && r.options.FailedIsBad:
			return row{}, r.file.Bad(outputColumn, errors.New("is 0: the request failed"))
		case w.output == 0:
			w.failed = true
			return w, nil
		case w.prompt == 0:
			return row{}, r.file.Bad(promptColumn, errNoTokens)
		}
		if r.options.Models != nil {
			a, ok := r.options.Models[string(fields[index[3]])]
			if !ok {
				known := slices.Sorted(maps.Keys(r.options.Models))
				return row{}, r.file.Bad(modelColumn, textfile.Unknown("model", string(fields[index[3]]), known))
			}
			w.adapter = a
		}
		return w, nil
	}, nil
}

func mooncake(r *Reader) (func() (row, error), error) {
	var o mooncakeRow
	visit := o.member
	return func() (row, error) {
		line, err := r.file.Line()
		if err != nil {
			return row{}, err
		}
		o = mooncakeRow{}
		if err := textfile.Object(line, visit); err != nil {
			return row{}, r.file.Bad(o.column, err)
		}
		if missing := o.missing(); missing != "" {
			return row{}, r.file.Bad(missing, errors.New("is missing"))
		}
		return o.row, nil
	}, nil
}

var mooncakeKeys = []string{"timestamp", "input_length", "output_length", "hash_ids"}

type mooncakeRow struct {
	row
	seen   [4]bool // by index in mooncakeKeys
	column string  // key of the member at fault
}

func (o *mooncakeRow) member(key, value []byte) error {
	var err error
	k := -1
	switch string(key) {
	case "timestamp": // ms
		k = 0
		o.at, err = textfile.Fixed(value, 6)
	case "input_length":
		k = 1
		o.prompt, err = tokens(value)
	case "output_length":
		k = 2
		o.output, err = tokens(value)
	case "hash_ids":
		k = 3
		err = hashes(value)
	default:
		return textfile.Unknown("key", string(key), mooncakeKeys)
	}
	if err == nil && o.seen[k] {
		err = errors.New("appears twice")
	}
	if err != nil {
		o.column = mooncakeKeys[k]
	}
	o.seen[k] = true
	return err
}

// missing returns the first key that is not there.
func (o *mooncakeRow) missing() string {
	for k, seen := range o.seen {
		if !seen {
			return mooncakeKeys[k]
		}
	}
	return ""
}

// hashes checks that a value is an array of whole numbers.
func hashes(value []byte) error {
	if value[0] != '[' {
		return fmt.Errorf("is %.40q, expected an array of whole numbers", value)
	}
	for _, c := range value {
		switch {
		case '0' <= c && c <= '9', c == '-', c == ',', c == ' ', c == '\t', c == '[', c == ']':
		default:
			return errors.New("expected an array of whole numbers")
		}
	}
	return nil
}

var errNoTokens = errors.New("is 0, expected >= 1 token")

// tokens reads a token count >= 1.
func tokens(b []byte) (int32, error) {
	n, err := textfile.Count(b)
	if err == nil && n == 0 {
		err = errNoTokens
	}
	return n, err
}
