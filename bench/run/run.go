// Package run drives one run of a workload. It wires what a simulated and a live run have in common: the source, the
// collector, the file of records, the metadata and the warm-up. An [Executor] carries out the requests: the simulator
// or the live client.
//
//	r := sc.NewRun(in, profiles, slo) // of a scenario
//	res, err := r.Drive(ctx, execute) // execute reports each request of the source to the observer
package run

import (
	"context"

	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

// A Run describes a run. Package bench/scenario makes it of a scenario.
type Run struct {
	Source  trace.Source
	Collect result.Options
	Meta    result.Meta

	Files       trace.Files // formats of files of columns
	RecordsFile string      // file to write with one row per request, in the order of the source; "": none
	// CachesUnknown: the records decide at the end of the run whether RecordsFile has a column of cached tokens. Until
	// then they are in memory.
	CachesUnknown bool

	// Describe completes the result with what is known of the scenario and the workers. It returns an error if the
	// result says nothing, as without a request after the warm-up.
	Describe func(res *result.Result) error
}

// An Observer receives the events of a run, one at a time.
type Observer interface {
	record.Observer
	// AddGaps replaces Tokens, Steps and Gap by the token times of a record; see result.Collector.
	AddGaps(r *record.Request)
}

// An Executor carries out the requests of a source and reports them to an observer. It returns nil counters if there is
// no result. Counters with an error are those of a run that ended early.
type Executor func(ctx context.Context, source trace.Source, to Observer) (*result.RunCounters, error)

// Drive carries out the run and returns its result. A result with an error is that of a run that ended early.
func (r *Run) Drive(ctx context.Context, execute Executor) (*result.Result, error) {
	c := result.NewCollector(r.Collect)
	file, err := r.records()
	if err != nil {
		return nil, err
	}
	defer file.abort()
	counters, early := execute(ctx, file.source(r.Source), file.observer(c))
	if counters == nil {
		return nil, early
	}
	if err := file.close(); err != nil {
		return nil, err
	}
	res := c.Result(r.Meta, counters)
	if err := r.Describe(res); err != nil {
		return nil, err
	}
	return res, early
}
