package azure

import (
	"errors"
	"fmt"
	"io"
)

// Query says what to count.
type Query struct {
	Format   Format
	Window   Window
	Interval int // minutes, >= 1
	// ByEnd counts an invocation of V2 when it ends rather than when it starts.
	// V1 does not say which of the two its minutes mean.
	ByEnd bool
}

// Histogram holds the invocations per function and interval of a window.
type Histogram struct {
	// Functions holds every function of the files, also those without traffic
	// in the window, in the order of first appearance.
	Functions []Function
	// Counts holds for each function the invocations per interval; nil stands
	// for none at all.
	Counts  [][]int64
	Skipped int64 // malformed rows passed over
}

// ReadHistogram counts the invocations of a window. Its memory is that of the
// functions and their counts, whatever the size of the files.
func ReadHistogram(path string, q Query, opt Options) (*Histogram, error) {
	if q.Interval < 1 {
		return nil, fmt.Errorf("interval is %d minutes, expected >= 1", q.Interval)
	}
	if err := q.Window.Check(); err != nil {
		return nil, err
	}
	switch q.Format {
	case V1:
		return readMinutes(path, q, opt)
	case V2:
		return readInvocations(path, q, opt)
	}
	_, err := ParseFormat(string(q.Format))
	return nil, err
}

// counts returns the counts of a function, made if need be.
func (h *Histogram) counts(function int32, intervals int) []int64 {
	h.know(function)
	if h.Counts[function] == nil {
		h.Counts[function] = make([]int64, intervals)
	}
	return h.Counts[function]
}

// know makes room for a function, which may have no traffic.
func (h *Histogram) know(function int32) {
	for int(function) >= len(h.Counts) {
		h.Counts = append(h.Counts, nil)
	}
}

func readMinutes(path string, q Query, opt Options) (*Histogram, error) {
	m, err := OpenMinutes(path, q.Window, opt)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	h := &Histogram{}
	intervals := q.Window.Intervals(q.Interval)
	for {
		row, err := m.Next()
		if errors.Is(err, io.EOF) {
			h.Functions, h.Skipped = m.Functions(), m.Skipped()
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		h.know(row.Function)
		for i, n := range row.Counts {
			if n > 0 {
				h.counts(row.Function, intervals)[(row.First+i-q.Window.Start)/q.Interval] += int64(n)
			}
		}
	}
}

func readInvocations(path string, q Query, opt Options) (*Histogram, error) {
	r, err := OpenInvocations(path, opt)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	h := &Histogram{}
	intervals := q.Window.Intervals(q.Interval)
	from, to := q.Window.Seconds()
	length := 60 * float64(q.Interval)
	for {
		v, err := r.Next()
		if errors.Is(err, io.EOF) {
			h.Functions, h.Skipped = r.Functions(), r.Skipped()
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		at := v.Start()
		if q.ByEnd {
			at = v.End
		}
		if from <= at && at < to {
			h.counts(v.Function, intervals)[int((at-from)/length)]++
		} else {
			h.know(v.Function)
		}
	}
}
