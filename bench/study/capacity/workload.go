package capacity

import (
	"errors"
	"io"
	"sync"

	"lorasim/bench/scenario"
	"lorasim/trace"
)

// drawn identifies a workload: its seed and its requests.
type drawn struct {
	seed     uint64
	requests int64
}

// errFlooded ends a run whose workers are far too few.
var errFlooded = errors.New("far too few workers")

// floodedEvery is the number of requests after which a run looks whether its workers are far too few.
const floodedEvery = 1000

// maxHeld is the number of requests of generated workloads that are held in memory.
const maxHeld = 1 << 20

// load is a workload with the number of counted requests of each adapter, the base model first; nil if the workload is
// too large for memory.
type load struct {
	*scenario.Collected
	requests []int64
}

func (s *search) collect(sc *scenario.Scenario, z size) (*load, error) {
	c, err := sc.Collect(s.ctx)
	if c == nil || err != nil {
		return &load{}, err
	}
	l := &load{c, make([]int64, len(c.Workload.Adapters)+1)}
	for i := range c.Workload.Requests {
		if int64(i) >= z.warm {
			l.requests[c.Workload.Requests[i].Adapter+1]++
		}
	}
	return l, nil
}

// workload is the workload of a seed, collected once for all candidates as long as
// memory allows.
func (s *search) workload(sc *scenario.Scenario, z size) (*load, error) {
	key := drawn{sc.Seed, z.requests}
	s.mu.Lock()
	collected := s.workloads[key]
	if collected == nil {
		collected = sync.OnceValues(func() (*load, error) { return s.collect(sc, z) })
		s.workloads[key] = collected
		s.order = append(s.order, key)
		if most := max(maxHeld/max(z.requests, 1), 2); z.requests > 0 && int64(len(s.order)) > most {
			delete(s.workloads, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.mu.Unlock()
	return collected()
}

// open is the workload of a seed for one more run, with its requests by adapter,
// where they are known.
func (s *search) open(sc *scenario.Scenario, z size) (in *scenario.Input, src *scaled, err error) {
	l := &load{}
	if z.requests <= maxHeld && !z.pauses {
		if l, err = s.workload(sc, z); err != nil {
			return nil, nil, err
		}
	}
	if l.Collected != nil {
		in = l.Input()
	} else if in, err = sc.OpenWorkload(s.ctx, nil); err != nil {
		return nil, nil, err
	}
	src = &scaled{Source: in.Source, size: z, total: max(in.Len(), 0), requests: l.requests}
	if in.Source = src; src.total == 0 && l.Collected != nil {
		return nil, nil, errNoRequests
	}
	return in, src, nil
}

// scaled is a source whose requests arrive faster by a factor. It counts the requests in flight.
type scaled struct {
	trace.Source
	size     size
	factor   float64
	ended    bool    // all requests were read
	total    int64   // requests; 0: unknown
	requests []int64 // that count, by adapter, the base model in front; nil: unknown
	read     int64
	entered  int64 // of them, those in search.spent
	done     int64
	track    *track      // run that pauses; nil: none
	flooded  func() bool // whether the workers are far too few; nil: not asked
	// Sums of the requests in flight at each arrival in the last quarter of the
	// warm-up, and in the last eighth of the run.
	before, after int64
	last          float64 // the latest arrival, s
}

func (s *scaled) Next() (trace.Request, error) {
	if s.track != nil {
		if err := s.track.read(); err != nil {
			s.ended = errors.Is(err, io.EOF)
			return trace.Request{}, err
		}
	}
	r, err := s.Source.Next()
	if s.ended = errors.Is(err, io.EOF); s.factor != 1 {
		r.Arrival /= s.factor
	}
	if err != nil {
		return r, err
	}
	if s.size.requests > 0 {
		r.ID = s.read
		switch eighth := s.size.requests / 8; {
		case s.read >= s.size.warm-eighth && s.read < s.size.warm:
			s.before += s.read - s.done
		case s.read >= s.size.requests-eighth:
			s.after += s.read - s.done
		}
	}
	if s.read++; s.flooded != nil && s.read%floodedEvery == 0 && s.flooded() {
		return r, errFlooded
	}
	s.last = r.Arrival
	return r, err
}

// growth is the growth of the number of requests in flight, per arrival after the
// warm-up.
func (s *scaled) growth() float64 {
	if s.size.requests < 8 {
		return 0
	}
	return float64(s.after-s.before) / float64(s.size.requests/8) / float64(s.size.requests-s.size.warm)
}
