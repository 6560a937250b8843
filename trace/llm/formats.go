package llm

import (
	"errors"
	"fmt"
	"time"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// format describes one trace format.
type format struct {
	files                 []string // patterns of its files' names
	block                 int32    // JSON lines with ids of so many tokens; 0: CSV
	strict                bool     // JSON lines have no other keys
	stamp, prompt, output string   // columns
	// at reads the time of a row, ns since some point in time.
	at func(c *clock, text []byte) (int64, error)
	// count reads a number of tokens. Where it takes 0, a request without output
	// failed.
	count func(text []byte) (int32, error)
}

var formats = map[Format]format{
	AzureLLM: {
		files: []string{"AzureLLMInferenceTrace*.csv", "AzureLMMInferenceTrace*.csv"},
		stamp: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens",
		at: (*clock).parse, count: textfile.Tokens,
	},
	BurstGPT: {
		files: []string{"BurstGPT*.csv"},
		stamp: "Timestamp", prompt: "Request tokens", output: "Response tokens",
		at: func(_ *clock, s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Count,
	},
	Mooncake: {
		files: []string{"*.jsonl"}, block: 512, strict: true,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(_ *clock, ms []byte) (int64, error) { return textfile.Fixed(ms, 6) }, count: textfile.Tokens,
	},
	QwenBailian: {
		files: []string{"qwen*.jsonl"}, block: 16,
		stamp: "timestamp", prompt: "input_length", output: "output_length",
		at: func(_ *clock, s []byte) (int64, error) { return textfile.Fixed(s, 9) }, count: textfile.Tokens,
	},
}

var formatNames = []string{string(AzureLLM), string(BurstGPT), string(Mooncake), string(QwenBailian)}

// open returns a function that reads the next row of a file, which is closed on
// an error.
func (f format) open(file *textfile.File) (*table.Reader, func() (row, error), error) {
	const hashColumn = "hash_ids" // JSON only
	var stamp, prompt, output, ids table.Raw
	columns := []table.Column{{Name: f.stamp, Value: &stamp}, {Name: f.prompt, Value: &prompt}, {Name: f.output, Value: &output}}
	if f.block > 0 {
		columns = append(columns, table.Column{Name: hashColumn, Value: &ids})
	}
	t, err := table.OpenText(file, f.block > 0, columns, f.strict)
	if err != nil {
		return nil, nil, err
	}
	var clock clock
	blocks := trace.Blocks{Tokens: f.block}
	var hashes []int64
	return t, func() (w row, err error) {
		if err := t.Read(); err != nil {
			return row{}, err
		}
		if w.at, err = f.at(&clock, stamp); err != nil {
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

// clock reads time stamps such as "2023-11-16 18:15:46.6805900", with 'T'
// instead of the space, up to nine decimal places or none, and "Z" or an
// offset "+00:00" at the end or nothing (UTC). Much faster than time.Parse.
type clock struct {
	known bool
	date  [10]byte // the last date read, if known
	day   int64    // its start, ns since 1970
}

// Layout: "2006-01-02 15:04:05" and then the decimal places and the zone.
const stampLength = len("2006-01-02 15:04:05")

// parse returns the time in ns since 1970 in UTC.
func (c *clock) parse(b []byte) (int64, error) {
	if len(b) < stampLength || b[10] != ' ' && b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return 0, badStamp(b)
	}
	if !c.known || string(b[:10]) != string(c.date[:]) {
		if err := c.setDate(b[:10]); err != nil {
			return 0, badStamp(b)
		}
	}
	hour, ok1 := two(b[11:], 23)
	minute, ok2 := two(b[14:], 59)
	second, ok3 := two(b[17:], 59)
	fraction, rest, ok4 := decimals(b[stampLength:])
	zone, ok5 := offset(rest)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return 0, badStamp(b)
	}
	return c.day + ((hour*60+minute-zone)*60+second)*int64(time.Second) + fraction, nil
}

func (c *clock) setDate(date []byte) error {
	t, err := time.Parse(time.DateOnly, string(date))
	if err != nil {
		return err
	}
	if t.Year() < 1970 || t.Year() > 2200 { // int64 nanoseconds end in 2262
		return fmt.Errorf("year %d", t.Year())
	}
	copy(c.date[:], date)
	c.day, c.known = t.UnixNano(), true
	return nil
}

// two reads two digits of at most limit.
func two(b []byte, limit int64) (int64, bool) {
	tens, ones := int64(b[0])-'0', int64(b[1])-'0'
	n := tens*10 + ones
	return n, 0 <= tens && tens <= 9 && 0 <= ones && ones <= 9 && n <= limit
}

// decimals reads "." and one to nine digits, if there, as nanoseconds.
func decimals(b []byte) (ns int64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	unit := int64(time.Second)
	i := 1
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		if unit == 1 {
			return 0, nil, false
		}
		unit /= 10
		ns += int64(b[i]-'0') * unit
	}
	return ns, b[i:], i > 1
}

// offset reads a zone as minutes east of UTC.
func offset(b []byte) (minutes int64, ok bool) {
	if len(b) == 0 || len(b) == 1 && b[0] == 'Z' {
		return 0, true
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	h, ok1 := two(b[1:], 23)
	m, ok2 := two(b[4:], 59)
	minutes = h*60 + m
	if b[0] == '-' {
		minutes = -minutes
	}
	return minutes, ok1 && ok2
}

func badStamp(b []byte) error {
	return fmt.Errorf("%.60q is not a time stamp, expected one like 2023-11-16 18:15:46.6805900 or 2024-05-12T00:00:00.123+00:00", b)
}
