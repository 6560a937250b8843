package policies

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/place"
)

// dlora holds what the three migration types of dLoRA's reference benchmark
// (OSDI'24) share: which adapters lie on which workers, and the greedy
// placement that puts them there.
//
// Its rules are kept to the letter, with these slips left out: execution times
// read with a wrong index, plans without request moves dropped, migrated
// requests resumed without their adapter.
type dlora struct {
	router.Base
	env   router.Env
	held  [][]int32 // by worker: its adapters, in the order they came
	where [][]int32 // by adapter: its workers, in the order they came
	cap   []int     // by worker: adapters it was given at the start
	// arrived counts the requests of each adapter. It starts at 1 for each, so
	// that the expected shares are even before anything is known.
	arrived []float64
	total   float64
}

func newDLoRA(env router.Env, period bool) *dlora {
	d := &dlora{env: env, arrived: make([]float64, len(env.Adapters))}
	for k := range d.arrived {
		d.arrived[k] = 1
	}
	d.total = float64(len(d.arrived))
	d.placeAll(period)
	return d
}

// dispatchOnlyOptions routes by dLoRA's dispatch cost and never changes the placement.
type dispatchOnlyOptions struct{}

// Build implements Builder.
func (*dispatchOnlyOptions) Build(env router.Env) (*router.Router, error) {
	d := newDLoRA(env, false)
	return &router.Router{Policy: dispatch{d}, Placement: place.Clone(d.held)}, nil
}

// dispatch sends a request to the worker with its adapter where the dispatch
// cost is least; of equals, the one that got the adapter first.
type dispatch struct{ *dlora }

// Route implements Policy.
func (p dispatch) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p dispatch) pick(r router.Request, v *router.View) int {
	p.count(r.Adapter)
	w, _ := p.cheapest(r.Adapter, v)
	return w
}

func (d *dlora) count(k int32) {
	if k >= 0 {
		d.arrived[k]++
		d.total++
	}
}

// cheapest returns the usable holder of an adapter with the least cost. Where
// none is usable, or no worker holds the adapter, it is the usable worker with
// the fewest requests, which loads the adapter on demand; the cost is then
// infinite. Every worker holds the base model.
func (d *dlora) cheapest(k int32, v *router.View) (int, float64) {
	t := choose.New(nil)
	offer := func(j int) {
		if w := &v.Workers[j]; w.Usable() {
			t.Offer(j, d.cost(j, w))
		}
	}
	if k < 0 {
		for j := range v.Workers {
			offer(j)
		}
		return t.Worker, t.Cost
	}
	for _, j := range d.where[k] {
		offer(int(j))
	}
	if t.Worker == router.None {
		return v.LeastLoaded(), math.Inf(1)
	}
	return t.Worker, t.Cost
}

// mergedCost is the price of a full batch of one adapter, which dLoRA runs with
// the adapter merged into the weights, against 1 for a mixed batch.
const mergedCost = 0.6

// cost is dLoRA's dispatch cost: full batches of one adapter, and the mixed
// batches that the remainders make.
func (d *dlora) cost(j int, w *router.Worker) float64 {
	bs := int64(max(d.env.Workers[j].MaxRunning, 1))
	var full, rest int64
	for _, f := range w.InFlight() {
		n := int64(f.Running) + int64(f.Queued)
		full += n / bs
		rest += n % bs
	}
	return float64(full)*mergedCost + float64(rest/bs)
}

func (d *dlora) add(j int, k int32) {
	d.held[j] = append(d.held[j], k)
	d.where[k] = append(d.where[k], int32(j))
}

func (d *dlora) remove(j int, k int32) {
	d.held[j] = slices.DeleteFunc(d.held[j], func(a int32) bool { return a == k })
	d.where[k] = slices.DeleteFunc(d.where[k], func(w int32) bool { return int(w) == j })
}

func (d *dlora) holds(j int, k int32) bool { return slices.Contains(d.held[j], k) }

// swapBandwidth is the rate at which dispatch_mig takes adapters to come over
// PCIe, bytes/s.
const swapBandwidth = 32 << 30

// dispatchMig also considers workers without the adapter that could take it in
// the place of an idle one with another replica.
type dispatchMig struct{ *dlora }

type dispatchMigOptions struct{}

// Build implements Builder.
func (*dispatchMigOptions) Build(env router.Env) (*router.Router, error) {
	d := newDLoRA(env, false)
	return &router.Router{Policy: &dispatchMig{d}, Placement: place.Clone(d.held), Places: true}, nil
}

// Route implements Policy.
func (p *dispatchMig) Route(r router.Request, v *router.View) router.Decision {
	p.count(r.Adapter)
	best, cost := p.cheapest(r.Adapter, v)
	if r.Adapter < 0 {
		return router.To(best)
	}
	out := int32(-1)
	for j, w := range v.Usable() {
		if p.holds(j, r.Adapter) {
			continue
		}
		s := p.idle(j, w)
		if s < 0 {
			continue
		}
		c := p.cost(j, w)
		if bytes := p.env.Workers[j].AdapterBytes; bytes != nil {
			c += bytes[r.Adapter] / swapBandwidth
		}
		if c < cost {
			best, cost, out = j, c, s
		}
	}
	d := router.To(best)
	if out >= 0 {
		p.remove(best, out)
		p.add(best, r.Adapter)
		d.Change = &router.Plan{
			Reason: "a busy adapter takes the place of an idle one",
			Load:   []router.Placement{{Worker: int32(best), Adapter: r.Adapter}},
			Unload: []router.Placement{{Worker: int32(best), Adapter: out}},
		}
	}
	return d
}

// idle returns the first adapter of a worker that has no requests there and
// another replica, or -1.
func (p *dispatchMig) idle(j int, w *router.Worker) int32 {
	for _, k := range p.held[j] {
		if st := w.Adapter(k); st.Running == 0 && st.Queued == 0 && len(p.where[k]) > 1 {
			return k
		}
	}
	return -1
}

// streamPad is the stream of random numbers of the padding.
const streamPad = 0x646c6f7261

// placeAll makes the initial placement: greedily, then padded to one replica
// fewer than workers and adapters together. period pads as period_mig does:
// with one random adapter on worker after worker.
func (d *dlora) placeAll(period bool) {
	n, k := len(d.env.Workers), len(d.env.Adapters)
	d.held, d.where, d.cap = make([][]int32, n), make([][]int32, k), make([]int, n)
	if k > 0 {
		d.greedy(n+k-1, d.room)
		d.pad(n+k-1, period)
	}
	for j := range d.held {
		d.cap[j] = len(d.held[j])
	}
}

// room is the number of adapters that worker j may hold.
func (d *dlora) room(j int) int {
	if n := d.env.Workers[j].HostSlots; n > 0 {
		return n
	}
	return len(d.env.Adapters)
}

// replicas counts adapters on workers.
func (d *dlora) replicas() (n int) {
	for j := range d.held {
		n += len(d.held[j])
	}
	return n
}

// greedy adds replicas up to limit in all and room(j) on each worker: always of
// the adapter that falls furthest short of its expected share, on the first
// worker, from the emptiest, where the least served adapter does not lose.
func (d *dlora) greedy(limit int, room func(j int) int) {
	for total := d.replicas(); total < limit; total++ {
		if !d.addReplica(d.shortest(total), room) {
			return
		}
	}
}

// shortest returns the adapter to replicate: one without a replica, else the
// one whose share of the replicas is furthest below its share of the requests.
func (d *dlora) shortest(total int) int32 {
	best, short := int32(0), math.Inf(1)
	for k := range d.where {
		if len(d.where[k]) == 0 {
			return int32(k)
		}
		if s := float64(len(d.where[k]))/float64(total) - d.arrived[k]/d.total; s < short {
			best, short = int32(k), s
		}
	}
	return best
}

func (d *dlora) addReplica(k int32, room func(j int) int) bool {
	before := d.bottleneck()
	order := upTo(len(d.held))
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(len(d.held[a]), len(d.held[b])) })
	for _, w := range order {
		j := int(w)
		if len(d.held[j]) >= room(j) || d.holds(j, k) {
			continue
		}
		if d.add(j, k); d.bottleneck() >= before {
			return true
		}
		d.remove(j, k)
	}
	return false
}

// bottleneck is the throughput of the least served adapter: the free memory of
// its workers over its share of the requests. Adapters take memory from those
// that they lie beside.
func (d *dlora) bottleneck() float64 {
	free := make([]float64, len(d.held))
	for j := range d.held {
		w := &d.env.Workers[j]
		if free[j] = cmp.Or(w.Memory, 1); w.Memory == 0 || w.AdapterBytes == nil {
			continue
		}
		for _, k := range d.held[j] {
			free[j] -= w.AdapterBytes[k]
		}
	}
	least := math.Inf(1)
	for k := range d.where {
		sum := 0.0
		for _, j := range d.where[k] {
			sum += free[j]
		}
		least = min(least, sum/(d.arrived[k]/d.total))
	}
	return least
}

// pad fills the placement up to limit.
func (d *dlora) pad(limit int, period bool) {
	k, n := 0, len(d.where)
	if period {
		k = rand.New(rand.NewPCG(d.env.Seed, streamPad)).IntN(n)
	}
	// Every adapter on every worker would be the end of it.
	for skipped := 0; d.replicas() < limit && skipped < n; {
		if d.padOne(int32(k)) {
			if skipped = 0; period {
				continue
			}
		} else {
			skipped++
		}
		k = (k + 1) % n
	}
}

// padOne adds a replica to the emptiest worker without it.
func (d *dlora) padOne(k int32) bool {
	t := choose.New(nil)
	for j := range d.held {
		if len(d.held[j]) < d.room(j) && !d.holds(j, k) {
			t.Offer(j, float64(len(d.held[j])))
		}
	}
	if t.Worker != router.None {
		d.add(t.Worker, k)
	}
	return t.Worker != router.None
}

// refine gives back the replicas that a plan took away, each worker up to what
// it held at the start.
func (d *dlora) refine() {
	limit := 0
	for _, c := range d.cap {
		limit += c
	}
	d.greedy(limit, func(j int) int { return d.cap[j] })
}
