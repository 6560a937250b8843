package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// streamPad is the stream of random numbers of the padding.
const streamPad = 0x646c6f7261

// placeAll makes the initial placement: greedily, then padded to one replica
// fewer than workers and adapters together. period pads as period_mig does:
// with one random adapter on worker after worker.
func (d *dlora) placeAll(period bool) {
	n, k := len(d.env.Workers), len(d.env.Adapters)
	d.held, d.where = make([][]int32, n), make([][]int32, k)
	if k == 0 {
		d.cap = make([]int, n)
		return
	}
	limit := n + k - 1
	d.greedy(limit, d.room)
	d.pad(limit, period)
	d.cap = make([]int, n)
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
	order := make([]int, len(d.held))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(d.held[a]), len(d.held[b])) })
	for _, j := range order {
		if len(d.held[j]) >= room(j) || d.holds(j, k) {
			continue
		}
		d.add(j, k)
		if d.bottleneck() >= before {
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
		free[j] = w.Memory
		if w.Memory == 0 {
			free[j] = 1
		}
		for _, k := range d.held[j] {
			if w.AdapterBytes != nil && w.Memory > 0 {
				free[j] -= w.AdapterBytes[k]
			}
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
	k := int32(0)
	if period {
		k = int32(rand.New(rand.NewPCG(d.env.Seed, streamPad)).IntN(len(d.where)))
	}
	// Every adapter on every worker would be the end of it.
	for skipped := 0; d.replicas() < limit && skipped < len(d.where); {
		if !d.padOne(k) {
			skipped++
			k = (k + 1) % int32(len(d.where))
			continue
		}
		skipped = 0
		if !period {
			k = (k + 1) % int32(len(d.where))
		}
	}
}

// padOne adds a replica to the emptiest worker without it.
func (d *dlora) padOne(k int32) bool {
	best := -1
	for j := range d.held {
		if len(d.held[j]) < d.room(j) && !d.holds(j, k) && (best < 0 || len(d.held[j]) < len(d.held[best])) {
			best = j
		}
	}
	if best < 0 {
		return false
	}
	d.add(best, k)
	return true
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
