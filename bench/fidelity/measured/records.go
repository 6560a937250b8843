package measured

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/result/records"
	"lorasim/bench/stats"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Recording is a recorded run ready to be simulated.
type Recording struct {
	Name     string
	Measured []record.Request // requests that succeeded and did not migrate, by arrival
	Workload trace.Workload   // the same requests
	Workers  int
	// Cap is the client's limit of requests in flight; 0: none. With a limit the requests are
	// replayed at their arrivals, else at the times at which they were sent.
	Cap int
}

const leastRequests = 10

// Usable returns the records that a replay can use, and lists those that it leaves out: requests that succeeded, but
// whose record cannot be simulated.
func Usable(rs []record.Request) (usable []record.Request, left records.LeftOut) {
	placed := slices.ContainsFunc(rs, func(r record.Request) bool { return r.WorkerLast >= 0 })
	for i := range rs {
		r := &rs[i]
		fault := records.Fault(r)
		switch {
		case fault != nil || r.Status != record.OK:
		case r.Output < 1:
			fault = errors.New("0 output tokens, expected at least 1")
		case r.Prompt < 1:
			fault = errors.New("0 prompt tokens, expected at least 1")
		case r.WorkerLast < 0 && placed:
			fault = errors.New("no worker is recorded, but other requests have one")
		}
		if fault != nil {
			left.Add(fmt.Sprintf("request %d", r.ID), fault.Error())
			continue
		}
		usable = append(usable, *r)
	}
	return usable, left
}

// NewRecording prepares a run of the [Usable] records. limit is the client's limit of requests in flight; 0: derived
// from the records. If no request has a worker, all belong to one server.
func NewRecording(name string, rs []record.Request, limit int) (*Recording, error) {
	run := &Recording{Name: name, Cap: limit}
	rs, left := Usable(rs)
	if limit == 0 {
		run.Cap = limitShown(rs)
	}
	for _, r := range rs {
		if r.Status == record.OK && r.Migrations == 0 {
			r.WorkerLast = max(r.WorkerLast, 0)
			run.Measured = append(run.Measured, r)
		}
	}
	if len(run.Measured) < leastRequests {
		return nil, fmt.Errorf("%d usable requests, expected at least %d%s", len(run.Measured), leastRequests,
			because(&left))
	}
	slices.SortStableFunc(run.Measured, func(a, b record.Request) int {
		return cmp.Compare(run.start(&a), run.start(&b))
	})
	run.describe()
	return run, nil
}

// because gives the first reason why requests were left out, if any were.
func because(left *records.LeftOut) string {
	if lines := left.Lines(); len(lines) > 0 {
		return " (" + lines[0] + ")"
	}
	return ""
}

// start returns the time at which the replay gives a request to its client, s.
func (run *Recording) start(r *record.Request) float64 {
	if run.Cap > 0 && !math.IsNaN(r.Arrival) {
		return r.Arrival
	}
	return r.Sent
}

// describe creates the workload of the measured requests.
func (run *Recording) describe() {
	adapters := 0
	for _, r := range run.Measured {
		adapters, run.Workers = max(adapters, int(r.Adapter)+1), max(run.Workers, int(r.WorkerLast)+1)
	}
	run.Workload.Adapters = trace.Names(adapters, nil)
	for i := range run.Measured {
		r := &run.Measured[i]
		if r.Adapter >= 0 {
			run.Workload.Adapters[r.Adapter].Rank = int(r.Rank)
		}
		run.Workload.Requests = append(run.Workload.Requests, trace.Request{
			ID: int64(i), Arrival: run.start(r), Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output,
			MaxNew: max(r.Requested, r.Output),
		})
	}
}

// begin returns the adapters that each worker held at the start. The first request of an adapter shows it by the load
// that it waited for, if the records state loads. Else its first token shows it: if that came sooner than a load from
// disk takes, the adapter was in a GPU slot. If it came later though the worker was idle, the adapter was on disk.
// Otherwise the request may have waited for other requests, and the adapter is taken to be in host memory.
func (run *Recording) begin(costs *profile.Costs) []sim.Start {
	list, seen := make([]sim.Start, run.Workers), map[[2]int32]bool{}
	busy := make([]float64, run.Workers) // the latest end of the requests so far
	stated := slices.ContainsFunc(run.Measured, func(r record.Request) bool { return r.ColdLoad > 0 })
	for i := range run.Measured {
		r := &run.Measured[i]
		key, s := [2]int32{r.WorkerLast, r.Adapter}, &list[r.WorkerLast]
		if r.Adapter >= 0 && !seen[key] {
			seen[key] = true
			disk, host := costs.Load(int(r.Rank), router.Disk).Seconds(), costs.Load(int(r.Rank), router.Host).Seconds()
			switch {
			case r.ColdLoad > (disk+host)/2:
			case r.ColdLoad > 0:
				s.Host = append(s.Host, r.Adapter)
			case stated, r.TTFT() < disk:
				s.Slots = append(s.Slots, r.Adapter)
			case busy[r.WorkerLast] > r.Sent:
				s.Host = append(s.Host, r.Adapter)
			}
		}
		busy[r.WorkerLast] = max(busy[r.WorkerLast], r.Finish)
	}
	return list
}

// Simulate returns the simulated requests, in the order of Measured. Every request goes to the
// worker that served it.
func (run *Recording) Simulate(ctx context.Context, p *profile.Profile, watchers ...record.Watcher) (
	[]record.Request, error) {
	got := make([]record.Request, len(run.Measured))
	failed, reason, costs := 0, "", p.Compile()
	_, err := sim.Run(ctx, sim.Config{
		Source: run.Workload.Source(), Workers: slices.Repeat([]*profile.Costs{costs}, run.Workers),
		Home: router.Disk, Start: run.begin(costs), MaxConcurrency: run.Cap, Watchers: watchers,
		Router: &router.Router{Policy: router.Fixed{Worker: func(id int64) int {
			return int(run.Measured[id].WorkerLast)
		}}},
		Observer: record.Ends(func(r *record.Request) {
			if got[r.ID] = *r; r.Status != record.OK {
				failed++
				reason = r.Error
			}
		}),
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d requests that succeeded live fail in the simulation (%s): the profile's engine or "+
			"memory is not that of the workers", failed, reason)
	}
	return got, err
}

// Streamed reports whether the client saw the first token before the last one.
func Streamed(r *record.Request) bool { return r.Output > 1 && r.FirstToken < r.Finish }

// Figures summarizes requests, as bench/result does. TTFT and TPOT cover the requests with a
// streamed reply. as selects these requests: rs itself, or the measured requests that rs predicts.
func Figures(rs, as []record.Request) Values {
	var ttft, tpot, e2e []float64
	first, last := math.Inf(1), math.Inf(-1)
	for i := range rs {
		r := &rs[i]
		first, last = min(first, r.Arrival, r.Sent), max(last, r.Finish)
		e2e = append(e2e, 1000*r.E2E())
		if Streamed(&as[i]) {
			ttft = append(ttft, 1000*r.TTFT())
			tpot = append(tpot, 1000*(r.Finish-r.FirstToken)/float64(r.Output-1))
		}
	}
	vs := Values{}
	if len(rs) > 0 {
		vs[Duration] = last - first
	}
	enter := func(xs []float64, mean Metric, at map[Metric]float64) {
		if len(xs) == 0 {
			return
		}
		vs[mean] = stat.Mean(xs, nil)
		slices.Sort(xs)
		for m, q := range at {
			vs[m] = stats.Quantile(xs, q)
		}
	}
	enter(ttft, TTFTMean, map[Metric]float64{TTFTMedian: 0.5, TTFTP90: 0.9, TTFTP99: 0.99})
	enter(tpot, TPOTMean, map[Metric]float64{TPOTP99: 0.99})
	enter(e2e, E2EMean, map[Metric]float64{E2EP90: 0.9, E2EP99: 0.99})
	return vs
}
