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

// add counts n invocations of a function in one of so many intervals; n may be 0.
func (h *Histogram) add(function int32, interval, intervals int, n int64) {
	for int(function) >= len(h.Counts) {
		h.Counts = append(h.Counts, nil)
	}
	if n == 0 {
		return
	}
	if h.Counts[function] == nil {
		h.Counts[function] = make([]int64, intervals)
	}
	h.Counts[function][interval] += n
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
		for i, n := range row.Counts {
			h.add(row.Function, (row.First+i-q.Window.Start)/q.Interval, intervals, int64(n))
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
	for {
		v, err := r.Next()
		if errors.Is(err, io.EOF) {
			h.Functions, h.Skipped = r.Functions(), r.Skipped()
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		at, n := v.Start(), int64(0)
		if q.ByEnd {
			at = v.End
		}
		interval := 0
		if from <= at && at < to {
			interval, n = int((at-from)/(60*float64(q.Interval))), 1
		}
		h.add(v.Function, interval, intervals, n)
	}
}
