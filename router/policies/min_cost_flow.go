package policies

import (
	"cmp"
	"context"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/place"
)

// minCost places adapters as Dynamo does: each gets replicas by its share of the
// load, and a minimum-cost flow says where, which prefers the workers that its
// hash ranks first and those that have it. An adapter's number of replicas
// changes at most once per cooldown.
type minCost struct {
	place.Placer
	hashes     *hrw
	move, keep float64
	cooldown   float64 // s
	replicas   []int
	changed    []float64 // when an adapter's number of replicas last changed
}

type minCostOptions struct {
	intervalOption
	Move     float64 `default:"4" check:">=0" help:"cost of a new place, in ranks of the adapter's hash order"`
	Keep     float64 `default:"4" check:">=0" help:"bonus for keeping a place, in ranks as well"`
	Cooldown float64 `default:"30" check:">=0" help:"time between changes of an adapter's number of replicas, s"`
}

// Build implements Builder.
func (o *minCostOptions) Build(env router.Env) (*router.Router, error) {
	p := &minCost{
		Placer:   place.New(o.Interval, env),
		hashes:   newHRW(env),
		move:     o.Move,
		keep:     o.Keep,
		cooldown: o.Cooldown,
		replicas: make([]int, len(env.Adapters)),
		changed:  make([]float64, len(env.Adapters)),
	}
	for k := range p.replicas {
		p.replicas[k], p.changed[k] = 1, math.Inf(-1)
	}
	p.SetPlacement(p.target(slices.Repeat([]bool{true}, len(env.Workers))))
	return p.Router(p), nil
}

func (p *minCost) Begin(s *router.PlannerInput) *router.Pending {
	p.Forecast(s.Now)
	up := make([]bool, len(s.Workers))
	n, slots := 0, 0
	for j := range s.Workers {
		if up[j] = s.Workers[j].Usable(); up[j] {
			n++
			slots += p.Env().Workers[j].Slots
		}
	}
	if n == 0 {
		return nil
	}
	p.resize(s.Now, n, float64(slots))
	return p.Towards(func() [][]int32 { return p.target(up) },
		"replicas follow the load", "no change: replicas and places match the load")
}

// resize shares out the slots by the largest remainder of load share x slots,
// at least one and at most every worker to each adapter.
func (p *minCost) resize(now float64, up int, slots float64) {
	total := 0.0
	for k := range p.Demand() {
		total += p.Demand()[k].Rate
	}
	if total == 0 {
		return
	}
	want := make([]int, len(p.replicas))
	rest := make([]float64, len(p.replicas))
	order := upTo(len(p.replicas))
	left := int(slots)
	for k := range want {
		exact := slots * p.Demand()[k].Rate / total
		want[k] = int(exact)
		rest[k] = exact - math.Floor(exact)
		left -= want[k]
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(rest[b], rest[a]) })
	for _, k := range order[:min(max(left, 0), len(order))] {
		want[k]++
	}
	for k := range want {
		want[k] = min(max(want[k], 1), up)
	}
	for k, n := range want {
		if n != p.replicas[k] && now-p.changed[k] >= p.cooldown {
			p.replicas[k], p.changed[k] = n, now
		}
	}
}

// target is the cheapest placement of the replicas, of which routing changes nothing.
func (p *minCost) target(up []bool) [][]int32 {
	n := len(p.Env().Workers)
	room := make([]int, n)
	slots, total := 0, 0
	for j := range up {
		if up[j] {
			slots += max(p.Env().Workers[j].Slots, 1)
		}
	}
	for _, r := range p.replicas {
		total += r
	}
	for j := range room {
		if up[j] { // more than the slots where there are more adapters
			own := max(p.Env().Workers[j].Slots, 1)
			room[j] = max(own, (total*own+slots-1)/slots)
		}
	}
	cost := make([][]float64, len(p.replicas))
	for k := range cost {
		cost[k] = make([]float64, n)
		for rank, j := range p.hashes.order(int32(k)) {
			cost[k][j] = float64(rank) + p.move
			if p.Holds(int32(k), int(j)) {
				cost[k][j] = float64(rank) - p.keep
			}
		}
	}
	where, err := transport(p.Env().Context, p.replicas, room, cost)
	if err != nil {
		return p.Held() // the run has been stopped
	}
	return place.Transpose(where, n)
}

// transport solves a transportation problem exactly: supply[k] units from each
// source k to different sinks, at most room[j] to sink j, at least total cost. An
// edge carries one unit; infinite cost forbids it. It returns the sinks of each
// source, ascending, and fewer than its supply where there is no room. Two ways give
// the same cost, and of equally cheap solutions different ones: small problems keep to
// the older. transport returns an error if ctx ends, which it looks at before each unit.
func transport(ctx context.Context, supply, room []int, cost [][]float64) ([][]int32, error) {
	if len(supply)*len(room) <= 4096 {
		return inOrder(supply, room, cost), nil
	}
	return byPrices(ctx, supply, room, cost)
}

// byPrices solves a large problem.
//
// Unit after unit goes to the sink that is cheapest at the prices of the moment,
// whatever its room; from one that is then too full a unit goes on along the cheapest
// chain of exchanges, by Dijkstra's algorithm, to one that has room (successive
// shortest paths over the sinks alone; the prices are their potentials). The work is in
// the units that find no room, and a search ends at the first sink with room.
func byPrices(ctx context.Context, supply, room []int, cost [][]float64) ([][]int32, error) {
	t := newTransport(room, cost)
	for k, n := range supply {
		for range n {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if j := t.take(k); j < len(room) && len(t.from[j]) > room[j] {
				t.relieve(j)
			}
		}
	}
	return place.Transpose(t.from[:len(room)], len(supply)), nil
}

type transportation struct {
	room []int
	cost [][]float64
	drop float64 // cost of a unit that goes nowhere: more than any chain of exchanges
	from [][]int32
	used [][]bool // by source, then sink

	// A last sink, len(room), takes what goes nowhere.
	potential, dist []float64
	via             []exchange // how a sink is reached
	done            []bool
}

// exchange is a unit of a source that leaves a sink for another.
type exchange struct{ source, sink int32 }

func newTransport(room []int, cost [][]float64) *transportation {
	n, m := len(cost), len(room)
	t := &transportation{
		room: room, cost: cost, from: make([][]int32, m+1), used: make([][]bool, n),
		potential: make([]float64, m+1), dist: make([]float64, m+1),
		via: make([]exchange, m+1), done: make([]bool, m+1),
	}
	most := 0.0
	for _, row := range cost {
		for _, c := range row {
			if !math.IsInf(c, 0) {
				most = max(most, math.Abs(c))
			}
		}
	}
	t.drop = 1 + 2*most*float64(m+1)
	for k := range t.used {
		t.used[k] = make([]bool, m)
	}
	return t
}

// take puts a unit of a source where it is cheapest, and says where.
func (t *transportation) take(k int) int {
	best, used := len(t.room), t.used[k]
	least := t.drop - t.potential[best]
	for j, c := range t.cost[k] {
		if d := c - t.potential[j]; d < least && !used[j] {
			best, least = j, d
		}
	}
	if best < len(t.room) {
		used[best] = true
		t.from[best] = append(t.from[best], int32(k))
	}
	return best
}

// relieve takes a unit away from a sink, along the cheapest chain.
func (t *transportation) relieve(start int) {
	end := t.search(start)
	for j := end; j != start; {
		x := t.via[j]
		if t.from[j] = append(t.from[j], x.source); j < len(t.room) {
			t.used[x.source][j] = true
		}
		i := int(x.sink)
		t.used[x.source][i] = false
		t.from[i] = slices.Delete(t.from[i], slices.Index(t.from[i], x.source), slices.Index(t.from[i], x.source)+1)
		j = i
	}
	for j := range t.potential {
		t.potential[j] += min(t.dist[j], t.dist[end])
	}
}

// search finds the nearest sink with room. Distances are reduced by the potentials,
// so that none is negative but for rounding.
func (t *transportation) search(start int) int {
	for j := range t.dist {
		t.dist[j], t.done[j] = math.Inf(1), false
	}
	t.dist[start] = 0
	for {
		next := -1
		for j, d := range t.dist {
			if !t.done[j] && (next < 0 || d < t.dist[next]) {
				next = j
			}
		}
		if next == len(t.room) || len(t.from[next]) < t.room[next] {
			return next
		}
		t.done[next] = true
		for _, k := range slices.Backward(t.from[next]) {
			base := t.dist[next] + t.potential[next] - t.cost[k][next]
			used, cost := t.used[k], t.cost[k]
			for j, c := range cost {
				if d := base + c - t.potential[j]; d < t.dist[j] && !used[j] && !t.done[j] {
					t.dist[j], t.via[j] = d, exchange{k, int32(next)}
				}
			}
			if d, none := base+t.drop-t.potential[len(cost)], len(cost); d < t.dist[none] {
				t.dist[none], t.via[none] = d, exchange{k, int32(next)}
			}
		}
	}
}

// inOrder solves a small problem: successive shortest augmenting paths with
// Bellman-Ford, so that costs may be negative: O(units x passes x sources x sinks).
func inOrder(supply, room []int, cost [][]float64) [][]int32 {
	n, m := len(supply), len(room)
	used := make([][]bool, n)
	for k := range used {
		used[k] = make([]bool, m)
	}
	left, free := slices.Clone(supply), slices.Clone(room)
	p := paths{
		fromSource: make([]float64, n), fromSink: make([]float64, m),
		sourceVia: make([]int, n), sinkVia: make([]int, m),
	}
	for {
		end := p.shortest(left, free, cost, used)
		if end < 0 {
			break
		}
		free[end]--
		for j := end; ; {
			i := p.sinkVia[j]
			used[i][j] = true
			if p.sourceVia[i] < 0 {
				left[i]--
				break
			}
			j = p.sourceVia[i]
			used[i][j] = false
		}
	}
	out := make([][]int32, n)
	for k := range used {
		for j, u := range used[k] {
			if u {
				out[k] = append(out[k], int32(j))
			}
		}
	}
	return out
}

// paths holds shortest paths from the sources that have units left: the distance
// of each source and sink, and where its path comes from (-1: it begins there).
type paths struct {
	fromSource, fromSink []float64
	sourceVia, sinkVia   []int
}

// shortest finds the paths and returns the nearest sink with room, or -1.
func (p *paths) shortest(left, free []int, cost [][]float64, used [][]bool) int {
	for i := range p.fromSource {
		p.fromSource[i], p.sourceVia[i] = math.Inf(1), -1
		if left[i] > 0 {
			p.fromSource[i] = 0
		}
	}
	for j := range p.fromSink {
		p.fromSink[j] = math.Inf(1)
	}
	for changed := true; changed; {
		changed = false
		for i, row := range cost {
			for j, c := range row {
				if !used[i][j] && p.fromSource[i]+c < p.fromSink[j]-tiny {
					p.fromSink[j], p.sinkVia[j], changed = p.fromSource[i]+c, i, true
				}
				if used[i][j] && p.fromSink[j]-c < p.fromSource[i]-tiny {
					p.fromSource[i], p.sourceVia[i], changed = p.fromSink[j]-c, j, true
				}
			}
		}
	}
	end := -1
	for j, d := range p.fromSink {
		if free[j] > 0 && !math.IsInf(d, 1) && (end < 0 || d < p.fromSink[end]) {
			end = j
		}
	}
	return end
}

// tiny keeps rounding from looking like progress.
const tiny = 1e-9
