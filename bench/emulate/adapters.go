package emulate

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	"lorasim/trace"
)

// Adapter is an adapter as its loader names it.
type Adapter struct {
	Name string
	Path string
	Rank int // 0: as the path says, else what was known of that name, else the profile's default
}

// registry knows the adapters by name. An adapter keeps its row of the
// simulated worker for good, so that one that comes back is the same.
type registry struct {
	max  int // adapters loaded at a time, 0: no limit
	rows map[string]*row
}

type row struct {
	index  int32
	rank   int
	path   string
	loaded bool // requests may use it
	busy   bool // being loaded or unloaded
}

var rankInPath = regexp.MustCompile(`(?:[?&]rank=|[-_/]r)([0-9]+)$`)

// rankOf is the rank that a path states at its end (?rank=16, -r16), 0 if none.
func rankOf(path string) int {
	m := rankInPath.FindStringSubmatch(path)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // 0 where it is too large
	return n
}

func (w *Worker) preload(a Adapter) error {
	r, err := w.beginLoad(a)
	if err != nil {
		return err
	}
	w.eng.srv.Preload(r.index)
	r.loaded, r.busy = true, false
	return nil
}

// refusal is why an adapter is not loaded or unloaded, as the engines word it.
type refusal string

func (r refusal) Error() string { return string(r) }

// beginLoad books the load of an adapter; called with the engine locked.
func (w *Worker) beginLoad(a Adapter) (*row, error) {
	g := &w.adapters
	r := g.rows[a.Name]
	refuse := func(format string, args ...any) (*row, error) {
		return nil, refusal(fmt.Sprintf("Failed to load LoRA adapter %s: "+format, append([]any{a.Name}, args...)...))
	}
	if a.Name == "" || a.Name == w.cfg.ModelName {
		return nil, fmt.Errorf("%q is no name for an adapter", a.Name)
	}
	if r != nil && (r.loaded || r.busy) {
		return refuse("it is already loaded")
	}
	if n := g.taken(); g.max > 0 && n >= g.max {
		return refuse("%d of at most %d adapters are loaded", n, g.max)
	}
	rank := cmp.Or(a.Rank, rankOf(a.Path))
	if limit := w.cfg.Costs.Profile().Engine.MaxLoraRank; rank > limit {
		return refuse("rank %d is incompatible with the memory pool of max_lora_rank %d", rank, limit)
	}
	if r == nil {
		if len(g.rows) == w.cfg.MaxAdapters {
			return refuse("%d names are known, and no more fit", len(g.rows))
		}
		r = &row{index: int32(len(g.rows)), rank: -1}
		g.rows[a.Name] = r
	}
	if rank == 0 {
		rank = max(r.rank, 0)
	}
	if rank != r.rank && w.eng.srv.Gone(r.index) {
		r.rank = rank
		w.eng.srv.Define(r.index, trace.Adapter{Name: a.Name, Rank: rank})
	}
	r.path, r.busy = a.Path, true
	return r, nil
}

// lookup is the index of an adapter that requests may use.
func (w *Worker) lookup(name string) (int32, bool) {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	r := w.adapters.rows[name]
	if r == nil || !r.loaded {
		return trace.BaseModel, false
	}
	return r.index, true
}

// taken counts the adapters that take a place.
func (g *registry) taken() (n int) {
	for _, r := range g.rows {
		if r.loaded || r.busy {
			n++
		}
	}
	return n
}

// load brings an adapter to the worker and returns when it is there.
func (w *Worker) load(a Adapter, pinned bool) error {
	var r *row
	var err error
	w.eng.do(func() {
		if r, err = w.beginLoad(a); err == nil {
			w.eng.srv.Load(r.index)
			w.eng.srv.Pin(r.index, pinned)
		}
	})
	if err != nil {
		return err
	}
	w.eng.wait(func() bool { return w.eng.srv.Loaded(r.index) })()
	w.eng.do(func() { r.loaded, r.busy = true, false })
	return nil
}

// unload stops new requests from using an adapter and drops it once those in
// flight have ended; wait: not before it has returned.
func (w *Worker) unload(name string, wait bool) error {
	var r *row
	var err error
	w.eng.do(func() {
		if r = w.adapters.rows[name]; r == nil || !r.loaded {
			err = refusal(fmt.Sprintf("Failed to unload LoRA adapter %s: it is not loaded", name))
			return
		}
		r.loaded, r.busy = false, true
		w.eng.srv.Pin(r.index, false)
		w.eng.srv.Unload(r.index)
	})
	if err != nil {
		return err
	}
	gone := w.eng.wait(func() bool {
		if !w.eng.srv.Gone(r.index) {
			return false
		}
		r.busy = false // under the engine's lock
		return true
	})
	if wait {
		gone()
	}
	return nil
}

// loadedAdapters maps the names of the loaded adapters to their paths.
func (w *Worker) loadedAdapters() map[string]string {
	m := map[string]string{}
	w.eng.do(func() {
		for name, r := range w.adapters.rows {
			if r.loaded {
				m[name] = r.path
			}
		}
	})
	return m
}
