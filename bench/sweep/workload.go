package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep/frame"
	"lorasim/trace"
)

// maxShared is the number of requests up to which the workload of several cells
// is held in memory; beyond, each cell reads its own.
const maxShared = 4 << 20

// workloadKey is the same for cells that have the same workload: all that it
// depends on is the section of the scenario and the seed.
func workloadKey(sc *scenario.Scenario) string { return fmt.Sprintf("%d %#v", sc.Seed, sc.Workload) }

// byWorkload orders the cells so that those with the same workload stand
// together, in the order in which the workloads first appear.
func (m *Manifest) byWorkload() ([]int, error) {
	groups := map[string]int{}
	var members [][]int
	for i := range m.Cells {
		sc, err := m.ScenarioOf(&m.Cells[i])
		if err != nil {
			return nil, err
		}
		key := workloadKey(sc)
		g, ok := groups[key]
		if !ok {
			g = len(members)
			groups[key] = g
			members = append(members, nil)
		}
		members[g] = append(members[g], i)
	}
	order := make([]int, 0, len(m.Cells))
	for _, is := range members {
		order = append(order, is...)
	}
	return order, nil
}

// workloads holds those that cells under way share, each as long as a cell
// still needs it.
type workloads struct {
	m  *Manifest
	mu sync.Mutex
	by map[string]*shared
}

type shared struct {
	users   int // cells still to run
	once    sync.Once
	mu      sync.Mutex
	w       *trace.Workload // nil: each cell opens its own
	dataset string
	err     error
}

func newWorkloads(m *Manifest, todo []*Cell) *workloads {
	ws := &workloads{m: m, by: map[string]*shared{}}
	for _, c := range todo {
		if sc, err := m.ScenarioOf(c); err == nil {
			key := workloadKey(sc)
			if ws.by[key] == nil {
				ws.by[key] = &shared{}
			}
			ws.by[key].users++
		}
	}
	return ws
}

// simulate runs a cell with its share of the workload. A panic is the failure
// of this cell alone.
func (r *runner) simulate(ctx context.Context, c *Cell) (f *frame.Frame, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	sc, err := r.dir.ScenarioOf(c)
	if err != nil {
		return nil, err
	}
	key := workloadKey(sc)
	ws := r.workloads
	ws.mu.Lock()
	s := ws.by[key]
	several := s.users > 1
	ws.mu.Unlock()
	defer ws.release(key, s)
	if several {
		s.once.Do(func() { s.load(ctx, sc) })
	}
	w, dataset, err := s.loaded()
	switch {
	case err != nil:
		return nil, err
	case w == nil:
		return r.dir.simulate(ctx, c, nil)
	}
	return r.dir.simulate(ctx, c, &scenario.Input{Source: w.Source(), Dataset: dataset})
}

// loaded returns what load left; nil before, or where it was too large.
func (s *shared) loaded() (*trace.Workload, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w, s.dataset, s.err
}

func (ws *workloads) release(key string, s *shared) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(ws.by, key)
	}
}

// load reads the workload into memory, unless it is too large.
func (s *shared) load(ctx context.Context, sc *scenario.Scenario) {
	w, dataset, err := collect(ctx, sc)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w, s.dataset, s.err = w, dataset, err
}

func collect(ctx context.Context, sc *scenario.Scenario) (*trace.Workload, string, error) {
	in, err := sc.OpenWorkload(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	w := &trace.Workload{Adapters: in.Adapters()}
	src := trace.Watch(in, func(int64) error { return ctx.Err() })
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return w, in.Dataset, nil
		}
		if err != nil || len(w.Requests) == maxShared {
			return nil, "", err
		}
		w.Requests = append(w.Requests, r)
	}
}
