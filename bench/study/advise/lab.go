package advise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
)

// The streams of seeds. A stream's seeds are used for one purpose alone, so that what
// is chosen with the seeds of one is measured with those of another.
const (
	forRace    = iota // choosing finalists, and among them
	forSearch         // the search for the worst scenario
	forWorst          // the figures of the worst scenario
	forVerdict        // and each stream above: the verdict on a choice
)

// want asks for the figures of a candidate with seeds From to To-1 of a stream.
type want struct {
	Candidate
	From, To int
}

// sampler measures candidates on a stream of seeds. Seed i draws the same requests for
// all of them. The answer has the figures of each want, seed by seed.
type sampler func(stream int, wants []want) ([][]Figures, error)

// lab simulates candidates.
type lab struct {
	ctx       context.Context
	slo       result.SLO
	objective Objective
	seed      uint64
	single    bool // seeds only break ties
	spent     atomic.Int64
	// progress, where not nil, is told of the runs that are done.
	progress func(done, total int64)

	mu       sync.Mutex
	profiles map[string][]*profile.Profile // of the workers, by the text of the cluster; runs share them
}

// workers are the profiles of a scenario's workers. Reading a profile takes longer than a
// short run.
func (l *lab) workers(sc *scenario.Scenario) ([]*profile.Profile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprint(sc.Cluster)
	ps, ok := l.profiles[key]
	if !ok {
		var err error
		if ps, err = sc.Profiles(l.ctx); err != nil {
			return nil, err
		}
		if l.profiles == nil {
			l.profiles = map[string][]*profile.Profile{}
		}
		l.profiles[key] = ps
	}
	return ps, nil
}

// job is one run. Runs with the same key have the same workload.
type job struct {
	sc     scenario.Scenario
	key    workloadKey
	oracle bool
	out    *Figures
}

type workloadKey struct {
	variant int
	seed    uint64
}

// shared is a workload that several runs have in common.
type shared struct {
	get  func() (*scenario.Collected, error)
	left atomic.Int64 // runs that still need it
}

// seedOf is seed i of a stream. Where seeds only break ties the base seed comes first,
// so that sim repeats the run.
func (l *lab) seedOf(stream, i int) uint64 {
	if l.single {
		return l.seed + uint64(i)
	}
	return stats.Seed(l.seed, stream, i)
}

// sampler is the sampler of a scenario; variant tells its workloads from those of other
// scenarios.
func (l *lab) sampler(sc scenario.Scenario, variant int, oracle bool) sampler {
	return func(stream int, wants []want) ([][]Figures, error) {
		out := make([][]Figures, len(wants))
		most := 0
		for i, w := range wants {
			out[i] = make([]Figures, w.To-w.From)
			most = max(most, w.To)
		}
		var jobs []job
		for s := range most { // all runs of a workload are next to each other
			for i, w := range wants {
				if s >= w.From && s < w.To {
					own, err := w.apply(sc)
					if err != nil {
						return nil, err
					}
					own.Seed = l.seedOf(stream, s)
					jobs = append(jobs, job{own, workloadKey{variant, own.Seed}, oracle, &out[i][s-w.From]})
				}
			}
		}
		return out, l.run(jobs)
	}
}

// run simulates jobs on all processors. A candidate that cannot run is no error.
func (l *lab) run(jobs []job) error {
	var mu sync.Mutex
	workloads := map[workloadKey]*shared{}
	for i := range jobs {
		j := &jobs[i]
		if workloads[j.key] == nil {
			workloads[j.key] = &shared{get: sync.OnceValues(func() (*scenario.Collected, error) {
				return j.sc.Collect(l.ctx)
			})}
		}
		workloads[j.key].left.Add(1)
	}
	return parallel.Do(l.ctx, len(jobs), func(i int) error {
		mu.Lock()
		w := workloads[jobs[i].key]
		mu.Unlock()
		var err error
		*jobs[i].out, err = l.simulate(&jobs[i], w)
		if w.left.Add(-1) == 0 {
			mu.Lock()
			delete(workloads, jobs[i].key)
			mu.Unlock()
		}
		return err
	}, l.progress)
}

var errNoRequests = errors.New("the workload has no requests")

// simulate runs one job. The error is one of the workload; one of the run itself is in
// the figures.
func (l *lab) simulate(j *job, w *shared) (Figures, error) {
	c, err := w.get()
	if err != nil {
		return Figures{}, err
	}
	var in *scenario.Input
	if c != nil {
		if len(c.Workload.Requests) == 0 {
			return Figures{}, errNoRequests
		}
		in = c.Input()
	}
	ps, err := l.workers(&j.sc)
	if err != nil {
		return Figures{Err: err}, nil
	}
	res, err := j.sc.Simulate(l.ctx, scenario.RunOptions{SLO: l.slo, Oracle: j.oracle, Input: in, Workers: ps})
	if l.ctx.Err() != nil {
		return Figures{}, l.ctx.Err()
	}
	if err == nil {
		err = scenario.Misfit(res)
	}
	if err != nil {
		return Figures{Err: err}, nil
	}
	if e := res.Endings(); e != nil {
		l.spent.Add(e.Requests)
	}
	return figuresOf(res, l.objective), nil
}
