package capacity

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/bits"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/internal/parallel"
	"lorasim/sim/record"
)

const (
	// panelRuns is the number of runs that decide about a candidate. More certainty comes from longer runs, since each
	// run has a warm-up of its own.
	panelRuns = 16
	// cellsOfWarmup is the number of cells (see track) of the shortest warm-up.
	cellsOfWarmup = 2
	// pollEvery is the number of requests after which a track looks whether it must stop.
	pollEvery = 4096
)

// errPaused ends a track that is no longer needed.
var errPaused = errors.New("the run was paused")

// A track is a run that pauses: it can be continued, without another warm-up, if its first part does not suffice for a
// decision. Requests are counted in cells of equal length.
type track struct {
	s      *search
	src    *scaled
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	cell   int64 // requests of a cell
	cells  []cell
	target int64 // requests after which to pause, a multiple of cell
	below  int64 // ended requests before the target
	least  int64 // requests of the least warm-up

	adapters []tally // after the least warm-up, the base model in front
	rejected int64
	finish   bool // read no further request
	res      *result.Result
	err      error
}

// cell counts the requests of a part of a track.
type cell struct {
	part
	ended  int64
	flight int64 // sum of the requests in flight at each arrival
}

// lengthLooks is the number of looks at the runs of a candidate. A larger budget than the default one allows more.
func (s *search) lengthLooks() int {
	return lengthLooks + max(bits.Len64(uint64(s.opt.Budget/DefaultBudget))-1, 0)
}

// longest is the length of the longest run of a decision.
func (s *search) longest() int64 { return s.plan.least << (s.lengthLooks() - 1) }

// newTrack prepares a run of a candidate. It does not begin before the first call of to.
func (s *search) newTrack(c Candidate, seed uint64) *track {
	t := &track{s: s, cell: s.plan.least / 2 / cellsOfWarmup, least: s.plan.least / 2}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		z := size{requests: s.longest(), pauses: true}
		t.res, t.err = s.simulate(s.ctx, c, 1, seed, z, func(_ *scenario.Scenario, src *scaled) record.Watcher {
			t.src, src.track = src, t
			return record.WatchEnds(t.done)
		})
	})
	return t
}

// to continues the run until the first n requests have ended, or half as many more have arrived.
func (t *track) to(n int64) error {
	t.target, t.below = n, 0
	for i := range t.cells {
		if int64(i+1)*t.cell <= n {
			t.below += t.cells[i].ended
		}
	}
	for t.err == nil && !t.reached() {
		if err := t.s.mustStop(); err != nil {
			return err
		}
		if _, ok := t.next(); !ok {
			break
		}
		t.s.progress(t.src)
	}
	return t.err
}

// reached reports whether the run has reached its target.
func (t *track) reached() bool {
	return t.src != nil && t.src.read >= t.target && (t.below >= t.target || t.src.read >= t.target+t.target/2)
}

// end lets the run end, and returns its result.
func (t *track) end() (*result.Result, error) {
	for t.finish = true; t.err == nil; {
		if _, ok := t.next(); !ok {
			break
		}
	}
	return t.res, t.err
}

// read is called for each request that arrives. It pauses the run where it is time, and reports whether there may be
// further requests.
func (t *track) read() error {
	switch {
	case t.finish:
		return io.EOF
	case (t.src.read%pollEvery == 0 || t.reached()) && !t.yield(struct{}{}):
		return errPaused
	case t.finish:
		return io.EOF
	}
	i := int(t.src.read / t.cell)
	for i >= len(t.cells) {
		t.cells = append(t.cells, cell{})
	}
	t.cells[i].flight += t.src.read - t.src.done
	return nil
}

// done counts a request that has ended.
func (t *track) done(r *record.Request) {
	t.src.done++
	if r.ID < t.target {
		t.below++
	}
	c := &t.cells[r.ID/t.cell]
	c.ended++
	met := t.s.opt.SLO.Met(r)
	if t.s.opt.PerAdapter > 0 {
		c.count(r, met)
	} else if c.total++; met {
		c.good++
	}
	if r.ID < t.least {
		return
	}
	if r.Status == record.Rejected {
		t.rejected++
	}
	countAdapter(&t.adapters, r, met)
}

// share is the attainment of some cells.
func (t *track) share(from, to int) float64 {
	var all part
	for i := from; i < min(to, len(t.cells)); i++ {
		c := &t.cells[i]
		all.good += c.good
		all.total += t.cell // a request that has not ended is not within the SLO
		for len(all.adapters) < len(c.adapters) {
			all.adapters = append(all.adapters, tally{})
		}
		for k, a := range c.adapters {
			all.adapters[k].good += a.good
			all.adapters[k].total += a.total
		}
	}
	return all.share(&t.s.opt)
}

// run is what the track shows of the requests after a warm-up.
func (t *track) run(z size) *run {
	from, to := int(z.warm/t.cell), int(z.requests/t.cell)
	mid := from + (to-from)/2
	r := &run{attainment: t.share(from, to), worst: worstOf(t.adapters, t.src.Adapters())}
	if after := t.src.read - t.least; after > 0 {
		r.rejected = float64(t.rejected) / float64(after)
	}
	r.value = r.attainment
	r.trend = t.share(mid, to) - t.share(from, mid)
	if to <= len(t.cells) {
		grown := t.cells[to-1].flight - t.cells[from-1].flight
		r.growth = float64(grown) / float64(t.cell) / float64(z.requests-z.warm)
	}
	return r
}

// panel is the runs that decide about a candidate.
type panel []*track

// tracks are the first n runs of the decision about a candidate.
func (s *search) tracks(c Candidate, n int) panel {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.panels[c]
	for len(p) < n {
		p = append(p, s.newTrack(c, s.seed(forDecision, len(p))))
	}
	s.panels[c] = p
	return p[:n]
}

// drop ends the runs of a candidate.
func (s *search) drop(c Candidate) {
	for _, t := range s.panels[c] {
		t.stop()
	}
	delete(s.panels, c)
}

// dropAll ends the runs of all candidates.
func (s *search) dropAll() {
	for c := range s.panels {
		s.drop(c)
	}
}

// runs continues the runs of a panel to a size. If the search must stop, the list has only the runs that reached it.
func (p panel) runs(ctx context.Context, z size) ([]*run, error) {
	err := parallel.Do(ctx, len(p), func(i int) error { return p[i].to(z.requests) }, nil)
	var runs []*run
	for _, t := range p {
		if t.err == nil && t.target == z.requests && t.reached() {
			runs = append(runs, t.run(z))
		}
	}
	if len(p) > 0 && p[0].s.mustStop() != nil {
		err = nil
	}
	return runs, err
}

// cost is the number of requests that the runs are short of a length.
func (p panel) cost(requests int64) (n int64) {
	for _, t := range p {
		have := int64(0)
		if t.src != nil {
			have = t.src.read
		}
		n += max(requests-have, 0)
	}
	return n
}

// overloaded lets the runs end, and reports whether queues grow in most of them, by each run's own assessment.
func (p panel) overloaded(s *search) (bool, error) {
	if s.plan.closed {
		return false, nil
	}
	err := parallel.Do(s.ctx, len(p), func(i int) error {
		_, err := p[i].end()
		return err
	}, nil)
	n := 0
	for _, t := range p {
		if t.res != nil && t.res.Steady != nil && t.res.Steady.State == steady.Overloaded {
			n++
		}
	}
	return 2*n > len(p), err
}
