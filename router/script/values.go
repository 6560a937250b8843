package script

import (
	"fmt"

	"go.starlark.net/starlark"

	"lorasim/router"
)

// request is a request as a program sees it.
type request struct {
	router.Request
	policy *policy
}

var requestAttrs = []string{"adapter", "adapter_name", "expected_tokens", "id", "max_new_tokens", "now", "num_adapters",
	"num_workers", "prompt_tokens", "rank"}

// Attr implements starlark.HasAttrs.
func (r *request) Attr(name string) (starlark.Value, error) {
	v := r.policy.view
	known := r.Adapter >= 0 && int(r.Adapter) < len(v.Adapters)
	switch name {
	case "id":
		return starlark.MakeInt64(r.ID), nil
	case "adapter":
		if r.Adapter < 0 {
			return starlark.None, nil
		}
		return starlark.MakeInt(int(r.Adapter)), nil
	case "adapter_name":
		if !known {
			return starlark.None, nil
		}
		return starlark.String(v.Adapters[r.Adapter].Name), nil
	case "rank":
		if !known {
			return starlark.MakeInt(0), nil
		}
		return starlark.MakeInt(v.Adapters[r.Adapter].Rank), nil
	case "prompt_tokens":
		return starlark.MakeInt(int(r.Prompt)), nil
	case "max_new_tokens":
		return starlark.MakeInt(int(r.MaxNew)), nil
	case "expected_tokens":
		return starlark.MakeInt(int(r.Expected)), nil
	case "now":
		return starlark.Float(v.Now), nil
	case "num_workers":
		return starlark.MakeInt(len(v.Workers)), nil
	case "num_adapters":
		return starlark.MakeInt(len(v.Adapters)), nil
	}
	return nil, nil // no such attribute
}

// worker is a worker as a program sees it: always as it is in the view of the latest request. A program may keep it.
type worker struct {
	policy  *policy
	index   int
	state   *router.Worker
	request *request // the latest
}

var workerAttrs = []string{
	"active_loras", "adapter", "adapter_loading", "adapter_pinned", "adapter_queued", "adapter_running",
	"adapter_tier", "age", "cached_tokens", "decode_time", "flight_loras", "has_adapter", "host_slots",
	"index", "kv_capacity", "kv_share", "kv_used", "load_time", "max_rank", "max_running", "prefill_time",
	"queued", "queued_tokens", "requests", "running", "slots", "slots_idle", "slots_used", "tokens", "usable",
	"waiting_loras",
}

// Attr implements starlark.HasAttrs.
func (w *worker) Attr(name string) (starlark.Value, error) {
	s := w.state
	switch name {
	case "index":
		return starlark.MakeInt(w.index), nil
	case "requests":
		return starlark.MakeInt(s.Running + s.Queued), nil
	case "running":
		return starlark.MakeInt(s.Running), nil
	case "queued":
		return starlark.MakeInt(s.Queued), nil
	case "max_running":
		return starlark.MakeInt(s.MaxRunning), nil
	case "tokens":
		return starlark.MakeInt64(s.Tokens), nil
	case "queued_tokens":
		return starlark.MakeInt64(s.QueuedToks), nil
	case "max_rank":
		return starlark.MakeInt(s.MaxRank), nil
	case "slots":
		return starlark.MakeInt(s.Slots), nil
	case "slots_used":
		return starlark.MakeInt(s.SlotsUsed), nil
	case "slots_idle":
		return starlark.MakeInt(s.SlotsIdle), nil
	case "host_slots":
		return starlark.MakeInt(s.HostSlots), nil
	case "active_loras":
		return starlark.MakeInt(s.ActiveLoras), nil
	case "flight_loras":
		return starlark.MakeInt(s.FlightLoras), nil
	case "waiting_loras":
		return starlark.MakeInt(s.WaitingLoras), nil
	case "kv_capacity":
		return starlark.MakeInt64(s.KVCapacity), nil
	case "kv_used":
		return starlark.MakeInt64(w.readKV().KVUsed), nil
	case "kv_share":
		return starlark.Float(w.readKV().KVShare()), nil
	case "age":
		return starlark.Float(s.Age), nil
	case "usable":
		return starlark.Bool(s.Usable()), nil
	case "cached_tokens":
		return starlark.MakeInt(int(w.cachedTokens())), nil
	case "adapter", "prefill_time", "decode_time", "load_time":
		return workerMethods[name].BindReceiver(w), nil
	}
	return adapterAttr(s.Adapter(w.request.Adapter), name)
}

// adapterAttr is an attribute of the state of the request's adapter on a worker.
func adapterAttr(a router.AdapterState, name string) (starlark.Value, error) {
	switch name {
	case "has_adapter":
		return starlark.Bool(a.Wanted()), nil
	case "adapter_running":
		return starlark.MakeInt(int(a.Running)), nil
	case "adapter_queued":
		return starlark.MakeInt(int(a.Queued)), nil
	case "adapter_tier":
		return tiers[a.Tier], nil
	case "adapter_loading":
		return starlark.Bool(a.Loading), nil
	case "adapter_pinned":
		return starlark.Bool(a.Pinned), nil
	}
	return nil, nil // no such attribute
}

// tiers are the names of tiers.
var tiers = [...]starlark.Value{router.Remote: starlark.String("remote"), router.Disk: starlark.String("disk"),
	router.Host: starlark.String("host"), router.GPU: starlark.String("gpu")}

// readKV updates the KV cache use of the worker in the view.
func (w *worker) readKV() *router.Worker {
	if v := w.policy.view; v.Read != nil && w.index < len(v.Workers) {
		v.Read(w.index)
	}
	return w.state
}

// cachedTokens returns the number of first tokens of the request's prompt that the worker reports as cached.
func (w *worker) cachedTokens() int32 {
	r, v := w.request, w.policy.view
	if v.Prefixes == nil || r.Text == nil || w.index >= len(v.Workers) {
		return 0
	}
	return v.Prefixes.Match(w.index, r.Text, r.Adapter, min(r.Known, r.Prompt-1))
}

// workerMethods are methods of workers.
var workerMethods = map[string]*starlark.Builtin{
	"adapter":      method("adapter", adapterOf),
	"prefill_time": method("prefill_time", prefillTime),
	"decode_time":  method("decode_time", decodeTime),
	"load_time":    method("load_time", loadTime),
}

type arguments struct {
	name   string
	args   starlark.Tuple
	kwargs []starlark.Tuple
}

func (a arguments) unpack(pairs ...any) error {
	return starlark.UnpackArgs(a.name, a.args, a.kwargs, pairs...)
}

func method(name string, f func(w *worker, a arguments) (starlark.Value, error)) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple,
		kwargs []starlark.Tuple) (starlark.Value, error) {
		return f(b.Receiver().(*worker), arguments{name, args, kwargs})
	})
}

// adapterOf is the state of any adapter on a worker.
func adapterOf(w *worker, a arguments) (starlark.Value, error) {
	var index int
	if err := a.unpack("index", &index); err != nil {
		return nil, err
	}
	if n := len(w.policy.view.Adapters); index < 0 || index >= n {
		return nil, fmt.Errorf("adapter %d, expected 0 to %d", index, n-1)
	}
	return adapterState{w.state.Adapter(int32(index))}, nil
}

// costs are the step times of a worker.
func (w *worker) costs() (router.CostModel, error) {
	if specs := w.policy.env.Workers; w.index < len(specs) && specs[w.index].Cost != nil {
		return specs[w.index].Cost, nil
	}
	return nil, fmt.Errorf("the step times of worker %d are unknown", w.index)
}

func prefillTime(w *worker, a arguments) (starlark.Value, error) {
	var tokens int64
	if err := a.unpack("tokens", &tokens); err != nil {
		return nil, err
	}
	return seconds(w, tokens >= 0, func(c router.CostModel) float64 { return c.Prefill(tokens) })
}

func decodeTime(w *worker, a arguments) (starlark.Value, error) {
	var running, rank int
	var tokens int64
	if err := a.unpack("running", &running, "kv_tokens", &tokens, "max_rank?", &rank); err != nil {
		return nil, err
	}
	return seconds(w, running >= 0 && tokens >= 0 && rank >= 0,
		func(c router.CostModel) float64 { return c.DecodeStep(running, running, tokens, rank) })
}

func loadTime(w *worker, a arguments) (starlark.Value, error) {
	var rank int
	from := "host"
	if err := a.unpack("rank", &rank, "tier?", &from); err != nil {
		return nil, err
	}
	for tier, name := range tiers {
		if name == starlark.String(from) {
			return seconds(w, rank >= 0,
				func(c router.CostModel) float64 { return c.AdapterLoad(rank, router.Tier(tier)) })
		}
	}
	return nil, fmt.Errorf("tier %q, expected remote, disk, host or gpu", from)
}

// seconds returns a time from the worker's cost model.
func seconds(w *worker, sound bool, of func(router.CostModel) float64) (starlark.Value, error) {
	c, err := w.costs()
	if err != nil {
		return nil, err
	}
	if !sound {
		return nil, fmt.Errorf("a number below 0")
	}
	return starlark.Float(of(c)), nil
}

// adapterState is an adapter on a worker.
type adapterState struct{ router.AdapterState }

var adapterAttrs = []string{"loading", "pinned", "queued", "running", "tier", "wanted"}

// Attr implements starlark.HasAttrs.
func (a adapterState) Attr(name string) (starlark.Value, error) {
	if name == "wanted" {
		return starlark.Bool(a.Wanted()), nil
	}
	return adapterAttr(a.AdapterState, "adapter_"+name)
}

// finished is how a request ended.
type finished struct{ router.Event }

var finishedAttrs = []string{"adapter", "e2e", "id", "now", "output_tokens", "ttft", "worker"}

// Attr implements starlark.HasAttrs.
func (f *finished) Attr(name string) (starlark.Value, error) {
	switch name {
	case "id":
		return starlark.MakeInt64(f.ID), nil
	case "adapter":
		if f.Adapter < 0 {
			return starlark.None, nil
		}
		return starlark.MakeInt(int(f.Adapter)), nil
	case "worker":
		return starlark.MakeInt(int(f.Worker)), nil
	case "output_tokens":
		return starlark.MakeInt(int(f.Output)), nil
	case "e2e":
		return starlark.Float(f.E2E), nil
	case "ttft":
		return starlark.Float(f.TTFT), nil
	case "now":
		return starlark.Float(f.Now), nil
	}
	return nil, nil // no such attribute
}

// workers is the list of usable workers.
type workers struct{ values []starlark.Value }

// Index implements starlark.Indexable.
func (l *workers) Index(i int) starlark.Value { return l.values[i] }

// Len implements starlark.Sequence.
func (l *workers) Len() int { return len(l.values) }

// Iterate implements starlark.Iterable.
func (l *workers) Iterate() starlark.Iterator { return &iterator{values: l.values} }

type iterator struct {
	values []starlark.Value
	next   int
}

// Next implements starlark.Iterator.
func (i *iterator) Next(v *starlark.Value) bool {
	if i.next >= len(i.values) {
		return false
	}
	*v = i.values[i.next]
	i.next++
	return true
}

// Done implements starlark.Iterator.
func (i *iterator) Done() {}

// The rest of what starlark.Value asks of a type.

func (r *request) String() string            { return fmt.Sprintf("request %d", r.ID) }
func (r *request) Type() string              { return "request" }
func (r *request) Freeze()                   {}
func (r *request) Truth() starlark.Bool      { return true }
func (r *request) Hash() (uint32, error)     { return uint32(r.ID), nil }
func (r *request) AttrNames() []string       { return requestAttrs }
func (w *worker) String() string             { return fmt.Sprintf("worker %d", w.index) }
func (w *worker) Type() string               { return "worker" }
func (w *worker) Freeze()                    {}
func (w *worker) Truth() starlark.Bool       { return true }
func (w *worker) Hash() (uint32, error)      { return uint32(w.index), nil }
func (w *worker) AttrNames() []string        { return workerAttrs }
func (a adapterState) String() string        { return "adapter state" }
func (a adapterState) Type() string          { return "adapter_state" }
func (a adapterState) Freeze()               {}
func (a adapterState) Truth() starlark.Bool  { return true }
func (a adapterState) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: adapter_state") }
func (a adapterState) AttrNames() []string   { return adapterAttrs }
func (f *finished) String() string           { return fmt.Sprintf("finished request %d", f.ID) }
func (f *finished) Type() string             { return "finished" }
func (f *finished) Freeze()                  {}
func (f *finished) Truth() starlark.Bool     { return true }
func (f *finished) Hash() (uint32, error)    { return uint32(f.ID), nil }
func (f *finished) AttrNames() []string      { return finishedAttrs }
func (l *workers) String() string            { return fmt.Sprintf("%d workers", len(l.values)) }
func (l *workers) Type() string              { return "workers" }
func (l *workers) Freeze()                   {}
func (l *workers) Truth() starlark.Bool      { return len(l.values) > 0 }
func (l *workers) Hash() (uint32, error)     { return 0, fmt.Errorf("unhashable: workers") }
