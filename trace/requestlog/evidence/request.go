package evidence

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Request is what a row says about a request.
type Request struct {
	At      int64  // arrival, ns since 1970 or since the log's origin
	Adapter string // name; "": the base model
	Rank    int    // LoRA rank of the adapter; 0: not stated
	Prompt  int32
	Output  int32
	MaxNew  int32 // 0: not stated
}

// IsDated reports whether the times of the requests are since 1970.
func (l *Layout) IsDated() bool { return l.clock.unit == "" || l.isEpoch() }

func (l *Layout) isEpoch() bool {
	return slices.ContainsFunc(l.Choices, func(c Choice) bool {
		return (c.Field == Time || c.Field == End) && strings.Contains(c.Why, "since 1970")
	})
}

// Failed is the reason why the row of a failed request is left out.
const Failed = "the request failed"

// Request reads a row. An error is the reason why the row is no request.
func (l *Layout) Request(r Row) (q Request, err error) {
	get := func(f Field) string {
		if c := l.column[f]; c != "" {
			return r(c)
		}
		return ""
	}
	if l.failed(r) {
		return q, errors.New(Failed)
	}
	if q.At, err = l.arrival(r); err != nil {
		return q, err
	}
	if q.Prompt, q.Output, err = tokens(get); err != nil {
		return q, err
	}
	if n, err := count(get(MaxNew)); err == nil && n >= q.Output && n > 0 {
		q.MaxNew = n
	}
	q.Adapter = get(Adapter)
	if base := get(Base); base != "" && base == q.Adapter || isBase(q.Adapter) {
		q.Adapter = ""
	}
	if rank, err := count(get(Rank)); err == nil {
		q.Rank = int(rank)
	}
	return q, nil
}

// isBase reports whether the name of an adapter means the base model.
func isBase(name string) bool {
	switch strings.ToLower(name) {
	case "", "-", "none", "null", "nil", "nan", "base", "-1":
		return true
	}
	return false
}

// arrival reads the time of a row.
func (l *Layout) arrival(r Row) (int64, error) {
	text := l.timeOf(r)
	if text == "" {
		return 0, errors.New("no time")
	}
	at, err := l.clock.read(text)
	if err != nil {
		return 0, errors.New("the time cannot be read")
	}
	if l.end != nil {
		if v := r(l.end.column); v != "" {
			if end, err := l.end.clock.read(v); err == nil && end < at {
				return 0, errors.New("the request ends before it starts")
			}
		}
	}
	if l.length == nil {
		return at, nil
	}
	took, ok := l.length.read(r(l.length.column))
	switch {
	case !ok || math.Abs(took) > maxNs:
		return 0, errors.New("no duration: the time of arrival is unknown")
	case took < 0:
		return 0, errors.New("the request ends before it starts")
	}
	return at - int64(took), nil
}

const maxNs = float64(math.MaxInt64) / 2 // of a time

// tokens reads the prompt and output tokens. One of them may be the difference to the total.
func tokens(get func(Field) string) (prompt, output int32, err error) {
	var n [3]int32
	var known [3]bool
	for i, f := range []Field{Prompt, Output, Total} {
		text := get(f)
		if text == "" {
			continue
		}
		if n[i], err = count(text); err != nil {
			return 0, 0, fmt.Errorf("%s tokens are no whole number", f)
		}
		known[i] = true
	}
	switch {
	case !known[0] && known[2]:
		n[0] = n[2] - n[1]
	case !known[1] && known[2]:
		n[1] = n[2] - n[0]
	}
	switch {
	case n[0] < 1:
		return 0, 0, errors.New("no prompt tokens")
	case n[1] < 1:
		return 0, 0, errors.New("no output tokens: the request failed or was cancelled")
	}
	return n[0], n[1], nil
}

// count reads a number of tokens: a whole number, also with separators of thousands or as a float such as 12.0.
func count(text string) (int32, error) {
	plain := strings.ReplaceAll(text, "_", "")
	if strings.Contains(plain, ",") {
		if !thousands.MatchString(plain) {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		plain = strings.ReplaceAll(plain, ",", "")
	}
	x, err := strconv.ParseFloat(plain, 64)
	if err != nil || x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not a number of tokens, expected a whole number from 0 to %d", text, math.MaxInt32)
	}
	return int32(x), nil
}

var thousands = regexp.MustCompile(`^\d{1,3}(,\d{3})+(\.0*)?$`)
