package llm

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// format describes one trace format.
type format struct {
	files                 []string                         // patterns of its files' names
	block                 int32                            // JSON lines with ids of so many tokens; 0: CSV
	strict                bool                             // JSON lines have no other keys
	stamp, prompt, output string                           // columns
	at                    func(text []byte) (int64, error) // the time of a row, ns since some point in time
	// count reads a number of tokens. Where it takes 0, a request without output
	// failed.
	count func(text []byte) (int32, error)
}

var formats = map[Format]format{
	AzureLLM: {
		files: []string{"AzureLLMInferenceTrace*.csv", "AzureLMMInferenceTrace*.csv"},
		stamp: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens",
		at: stamp, count: textfile.Tokens,
	},
	BurstGPT: {
		files: []string{"BurstGPT*.csv"},
		stamp: "Timestamp", prompt: "Request tokens", output: "Response tokens",
		at: func(s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Count,
	},
	Mooncake: {
		files: []string{"*.jsonl"}, block: 512, strict: true,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(ms []byte) (int64, error) { return textfile.Fixed(ms, 6) }, count: textfile.Tokens,
	},
	QwenBailian: {
		files: []string{"qwen*.jsonl"}, block: 16,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Tokens,
	},
}

var formatNames = []string{string(AzureLLM), string(BurstGPT), string(Mooncake), string(QwenBailian)}

// open returns a function that reads the next row of a file, which is closed on
// an error.
func (f format) open(file *textfile.File) (*table.Reader, func() (row, error), error) {
	const hashColumn = "hash_ids" // JSON only
	var at, prompt, output, ids table.Raw
	columns := []table.Column{{Name: f.stamp, Value: &at}, {Name: f.prompt, Value: &prompt}, {Name: f.output, Value: &output}}
	if f.block > 0 {
		columns = append(columns, table.Column{Name: hashColumn, Value: &ids})
	}
	t, err := table.OpenText(file, f.block > 0, columns, f.strict)
	if err != nil {
		return nil, nil, err
	}
	blocks := trace.Blocks{Tokens: f.block}
	var hashes []int64
	return t, func() (w row, err error) {
		if err := t.Read(); err != nil {
			return row{}, err
		}
		if w.at, err = f.at(at); err != nil {
			return row{}, t.Bad(f.stamp, err)
		}
		if w.output, err = f.count(output); err != nil {
			return row{}, t.Bad(f.output, err)
		}
		if w.prompt, err = f.count(prompt); err == nil && w.prompt == 0 && w.output > 0 {
			_, err = textfile.Tokens(prompt)
		}
		if err != nil {
			return row{}, t.Bad(f.prompt, err)
		}
		if f.block > 0 {
			if hashes, err = wholeNumbers(ids, hashes[:0]); err == nil {
				w.text, err = blocks.Text(hashes, w.prompt)
			}
			if err != nil {
				return row{}, t.Bad(hashColumn, err)
			}
		}
		return w, nil
	}, nil
}

// wholeNumbers appends the numbers of an array to a list. They fit a float64, as
// which saved workloads hold them.
func wholeNumbers(array []byte, to []int64) ([]int64, error) {
	if array[0] != '[' {
		return to, fmt.Errorf("is %.40q, expected an array of whole numbers", array)
	}
	const most = 1e15
	n, digits, negative := int64(0), 0, false
	for i, c := range array {
		switch {
		case '0' <= c && c <= '9' && n < most/10:
			n, digits = n*10+int64(c-'0'), digits+1
		case c == '-' && digits == 0:
			negative = true
		case c == ' ' || c == '\t' || c == '[' && i == 0:
		case (c == ',' || c == ']') && digits > 0:
			if negative {
				n = -n
			}
			to = append(to, n)
			n, digits, negative = 0, 0, false
		case c == ']' && len(to) == 0:
		default:
			return to, errors.New("expected an array of whole numbers of up to 15 digits")
		}
	}
	return to, nil
}

// stamp reads a time stamp such as "2023-11-16 18:15:46.6805900", with 'T' instead
// of the space, decimal places or none, and "Z" or an offset "+00:00" at the end or
// nothing (UTC), as ns since 1970.
func stamp(b []byte) (int64, error) {
	const date, stamp, longest = 10, len("2006-01-02 15:04:05"), len("2006-01-02 15:04:05.123456789+00:00")
	const end = 7289654400 // s: the year 2201; int64 nanoseconds end in 2262
	var text [longest + 1]byte
	n := copy(text[:longest], b)
	if n == len(b) && n >= stamp && (b[date] == ' ' || b[date] == 'T') {
		text[date] = 'T'
		if !bytes.ContainsAny(b[stamp:], "Z+-") {
			text[n], n = 'Z', n+1
		}
		at, err := time.ParseInLocation(time.RFC3339, string(text[:n]), time.UTC) // the layout that is read fastest
		if s := at.Unix(); err == nil && s >= 0 && s < end {
			return at.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("%.60q is not a time stamp, expected one like 2023-11-16 18:15:46.6805900 or 2024-05-12T00:00:00.123+00:00", b)
}
