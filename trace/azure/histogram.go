package azure

import (
	"errors"
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
	h, read := &Histogram{}, (*Histogram).readInvocations
	if q.Format == V1 {
		read = (*Histogram).readMinutes
	}
	if err := read(h, path, q, opt); err != nil {
		return nil, err
	}
	return h, nil
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

func (h *Histogram) readMinutes(path string, q Query, opt Options) error {
	m, err := OpenMinutes(path, q.Window, opt)
	if err != nil {
		return err
	}
	defer m.Close()
	intervals := q.Window.Intervals(q.Interval)
	row, err := m.Next()
	for ; err == nil; row, err = m.Next() {
		for i, n := range row.Counts {
			h.add(row.Function, (row.First+i-q.Window.Start)/q.Interval, intervals, int64(n))
		}
	}
	return h.end(&m.reader, err)
}

func (h *Histogram) readInvocations(path string, q Query, opt Options) error {
	r, err := OpenInvocations(path, opt)
	if err != nil {
		return err
	}
	defer r.Close()
	intervals := q.Window.Intervals(q.Interval)
	from, to := q.Window.Seconds()
	v, err := r.Next()
	for ; err == nil; v, err = r.Next() {
		at := v.Start()
		if q.ByEnd {
			at = v.End
		}
		if from <= at && at < to {
			h.add(v.Function, int((at-from)/(60*float64(q.Interval))), intervals, 1)
		} else {
			h.add(v.Function, 0, intervals, 0)
		}
	}
	return h.end(&r.reader, err)
}

// end takes what a reader that ended with err knows.
func (h *Histogram) end(r *reader, err error) error {
	h.Functions, h.Skipped = r.functions, r.skipped
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
