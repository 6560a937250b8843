package emulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/trace"
)

// An Adapter is an adapter as a load request describes it.
type Adapter struct {
	Name string
	Path string
	Rank int // 0: the rank in the path, else the earlier rank of that name, else the profile's default
}

// row is an adapter that the worker knows. An adapter keeps its row of the simulated worker forever, so that one that
// is loaded again is the same.
type row struct {
	index  int32
	rank   int
	path   string
	loaded bool // requests may use it
	busy   bool // being loaded or unloaded
}

var rankInPath = regexp.MustCompile(`(?:[?&]rank=|[-_/]r)([0-9]+)$`)

// rankOf returns the rank at the end of a path (?rank=16, -r16), or 0.
func rankOf(path string) (n int) {
	if m := rankInPath.FindStringSubmatch(path); m != nil {
		n, _ = strconv.Atoi(m[1]) // 0 where it is too large
	}
	return n
}

// A storage is how a path behaves on which an adapter lies. The path says so, as in adapters/a?load=20s.
type storage struct {
	missing, hangs bool
	slow           time.Duration // beside the profile's time, on the wall clock
}

func storageOf(path string) (s storage) {
	_, query, _ := strings.Cut(path, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return s
	}
	switch load := options.Get("load"); load {
	case "missing":
		s.missing = true
	case "hang":
		s.hangs = true
	default:
		s.slow, _ = time.ParseDuration(load) // 0 where it is none
	}
	return s
}

// refusedLoad is the reason for which the engine does not load an adapter.
type refusedLoad string

func (r refusedLoad) Error() string { return string(r) }

// beginLoad books the load of an adapter; called with the engine locked.
func (w *Worker) beginLoad(a Adapter) (*row, error) {
	refuse := func(format string, args ...any) (*row, error) {
		return nil, refusedLoad(fmt.Sprintf("Failed to load LoRA adapter %s: "+format, append([]any{a.Name},
			args...)...))
	}
	engine := w.profile.Engine
	r, rank, taken := w.adapters[a.Name], cmp.Or(a.Rank, rankOf(a.Path)), 0
	for _, r := range w.adapters {
		if r.loaded || r.busy {
			taken++
		}
	}
	switch most := engine.MaxLoadedLoras; {
	case a.Name == w.cfg.ModelName && w.cfg.API == httpapi.VLLM:
		return nil, errBaseName(a.Name)
	case r != nil && (r.loaded || r.busy):
		return nil, errAlreadyLoaded{a.Name}
	case most > 0 && taken >= most && w.cfg.API == httpapi.SGLang:
		return refuse("%d of at most %d adapters are loaded", taken, most)
	case rank > engine.MaxLoraRank:
		return refuse("rank %d is incompatible with the memory pool of max_lora_rank %d", rank, engine.MaxLoraRank)
	case r == nil && len(w.adapters) == w.cfg.MaxAdapters:
		return refuse("%d adapter names are known, the limit of the worker", len(w.adapters))
	case r == nil:
		r = &row{index: int32(len(w.adapters)), rank: -1}
		w.adapters[a.Name] = r
	}
	if rank == 0 {
		rank = max(r.rank, 0)
	}
	if rank == 0 && w.profile.Adapters.DefaultRank > engine.MaxLoraRank {
		rank = engine.MaxLoraRank // the path is not read, so any rank that the worker can run may be the adapter's
	}
	if rank != r.rank && w.eng.srv.Gone(r.index) {
		r.rank = rank
		w.eng.srv.Define(r.index, trace.Adapter{Name: a.Name, Rank: rank})
	}
	r.path, r.busy = a.Path, true
	return r, nil
}

func (w *Worker) preload(a Adapter) error {
	r, err := w.beginLoad(a)
	if err == nil {
		w.eng.srv.Preload(r.index)
		r.loaded, r.busy = true, false
	}
	return err
}

// load loads an adapter and returns when it is loaded, or when the client has gone before the storage answered.
func (w *Worker) load(ctx context.Context, a Adapter, pinned bool) (err error) {
	var r *row
	if w.eng.do(func() { r, err = w.beginLoad(a) }); err != nil {
		return err
	}
	begun := time.Now()
	if err := w.read(ctx, a); err != nil {
		w.eng.do(func() { r.busy = false })
		return err
	}
	w.eng.do(func() {
		w.eng.srv.Load(r.index)
		w.eng.srv.Pin(r.index, pinned)
	})
	w.eng.wait(func() bool { return w.eng.srv.Loaded(r.index) })()
	w.eng.do(func() {
		r.loaded, r.busy = true, false
		w.eng.measures.loads.observe(time.Since(begun).Seconds() * w.cfg.Speed)
	})
	return nil
}

// read waits for the storage of an adapter.
func (w *Worker) read(ctx context.Context, a Adapter) error {
	s := storageOf(a.Path)
	switch {
	case s.missing:
		return errNoAdapter{a}
	case s.hangs:
		select {
		case <-ctx.Done():
		case <-w.eng.done:
		}
		return refusedLoad("the storage does not answer")
	case s.slow > 0:
		select {
		case <-time.After(s.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// unload stops new requests from using an adapter, and drops the adapter once its requests in flight have ended. If
// wait is true, it returns after that.
func (w *Worker) unload(name string, wait bool) error {
	var r *row
	w.eng.do(func() {
		if r = w.adapters[name]; r == nil || !r.loaded {
			r = nil
			return
		}
		r.loaded, r.busy = false, true
		w.eng.srv.Pin(r.index, false)
		w.eng.srv.Unload(r.index)
	})
	if r == nil {
		return errUnknownAdapter{name}
	}
	gone := w.eng.wait(func() bool { // called under the engine's lock
		r.busy = !w.eng.srv.Gone(r.index)
		return !r.busy
	})
	if wait {
		gone()
	}
	return nil
}

// lookup returns the index of an adapter that requests may use.
func (w *Worker) lookup(name string) (int32, bool) {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	if r := w.adapters[name]; r != nil && r.loaded {
		return r.index, true
	}
	return trace.BaseModel, false
}

// loadedAdapters returns the paths of the loaded adapters by name.
func (w *Worker) loadedAdapters() map[string]string {
	m := map[string]string{}
	w.eng.do(func() {
		for name, r := range w.adapters {
			if r.loaded {
				m[name] = r.path
			}
		}
	})
	return m
}

// loadedNames returns the names of the loaded adapters as sglang's messages list them.
func (w *Worker) loadedNames() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.loadedAdapters())) {
		names = append(names, "'"+name+"'")
	}
	return strings.Join(names, ", ")
}
