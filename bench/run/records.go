package run

import (
	"errors"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/sim/record"
	"lorasim/trace"
)

// recordsFile is the file of records of a run.
type recordsFile interface {
	source(s trace.Source) trace.Source    // what the executor reads in place of s
	observer(c *result.Collector) Observer // what it reports to in place of c
	close() error
	abort() // leaves no file behind unless close completed it
}

// records opens the file of records.
func (r *Run) records() (recordsFile, error) {
	switch {
	case r.RecordsFile == "":
		return none{}, nil
	case r.CachesUnknown:
		return &atEnd{run: r}, nil
	}
	w, err := records.Create(r.Files, r.RecordsFile, r.Source.Adapters(), r.Collect.PrefixCache)
	if err != nil {
		return nil, err
	}
	return &stream{w: w, ended: map[int64]*record.Request{}, window: r.Collect.Duration > 0}, nil
}

// observed passes the end of a request to a function, too.
type observed struct {
	*result.Collector
	done func(r *record.Request)
}

// Done implements record.Observer.
func (o observed) Done(r *record.Request) {
	o.Collector.Done(r)
	o.done(r)
}

// none is a run without a file of records.
type none struct{}

func (none) source(s trace.Source) trace.Source    { return s }
func (none) observer(c *result.Collector) Observer { return c }
func (none) close() error                          { return nil }
func (none) abort()                                {}

// atEnd has all records in memory and writes them at the end.
type atEnd struct {
	run *Run
	all []record.Request
}

func (f *atEnd) source(s trace.Source) trace.Source { return s }

func (f *atEnd) observer(c *result.Collector) Observer {
	return observed{c, func(r *record.Request) { f.all = append(f.all, *r) }}
}

func (f *atEnd) close() error {
	return records.WriteAll(f.run.Files, f.run.RecordsFile, f.all, f.run.Source.Adapters())
}

func (f *atEnd) abort() {}

// stream writes records in the order of the source, though requests end in another: it stands between the executor and
// the source, and observes.
type stream struct {
	trace.Source
	w     *records.Writer
	open  []int64                   // ids that entered and were not written yet, in order
	ended map[int64]*record.Request // those of them that have ended
	err   error
	// window: the run has an end, and a request that was read but not sent by then gets no record.
	window bool
}

func (f *stream) source(s trace.Source) trace.Source {
	f.Source = s
	return f
}

func (f *stream) observer(c *result.Collector) Observer { return observed{c, f.done} }

// Next implements trace.Source.
func (f *stream) Next() (trace.Request, error) {
	if f.err != nil {
		return trace.Request{}, f.err
	}
	r, err := f.Source.Next()
	if err == nil {
		f.open = append(f.open, r.ID)
	}
	return r, err
}

func (f *stream) done(r *record.Request) {
	c := *r
	f.ended[r.ID] = &c
	for len(f.open) > 0 && f.err == nil {
		first := f.ended[f.open[0]]
		if first == nil {
			return
		}
		f.err = f.w.Write(first)
		delete(f.ended, first.ID)
		f.open = f.open[1:]
	}
}

func (f *stream) close() error {
	if f.err != nil {
		return f.err
	}
	if unsent := len(f.open); unsent > 1 || unsent == 1 && !f.window {
		return errors.New("internal error: requests without a record")
	}
	return f.w.Close()
}

func (f *stream) abort() { f.w.Abort() }
