package planroute

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/routertest"
)

// TestCheapestIsThatOfAFullScan compares the choice among workers, of which most are not priced, with the least price
// of all of them.
func TestCheapestIsThatOfAFullScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(rapid.IntRange(1, 12).Draw(t, "workers"), rapid.IntRange(1, 6).Draw(t, "adapters"))
		firstUses := rapid.SampledFrom([][]float64{{0}, {0, 0, 0.3}}).Draw(t, "first uses")
		for j := range env.Workers {
			s := &env.Workers[j]
			s.Cost = distant{routertest.Slower(rapid.SampledFrom([]float64{1, 1, 3}).Draw(t, "cost"))}
			s.Blocks = rapid.Bool().Draw(t, "blocks")
			s.FetchesInSteps = rapid.Bool().Draw(t, "fetches in steps")
			s.LoadsOverlap = rapid.Bool().Draw(t, "loads overlap")
			s.Mixes = rapid.Bool().Draw(t, "mixes")
			s.FrontEnd = rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "front end")
			s.FirstUse = rapid.SampledFrom(firstUses).Draw(t, "first use")
		}
		if rapid.Bool().Draw(t, "alike") {
			for j := range env.Workers {
				env.Workers[j] = env.Workers[0]
			}
		}
		p := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute)
		p.outlines.few, p.outlines.groups.from = 0, rapid.SampledFrom([]int{0, 0, manyWorkers}).Draw(t, "groups from")
		p.outlines.holders = rapid.IntRange(0, 4).Draw(t, "few holders")
		p.outlines.groups.most = rapid.SampledFrom([]int{1, 2, mostAlike}).Draw(t, "most workers of a group")
		held := make([][]int32, len(env.Workers))
		for j := range held {
			for k := range env.Adapters {
				if rapid.Bool().Draw(t, "placed") {
					held[j] = append(held[j], int32(k))
				}
			}
		}
		if rapid.Bool().Draw(t, "a plan has placed adapters") {
			p.SetPlacement(held)
		}
		v := routertest.View(env)
		least := rapid.SampledFrom([]router.Tier{router.Remote, router.Disk}).Draw(t, "least tier")
		draw := func(v *router.View, fill bool) {
			if fill {
				routertest.DrawWorkers(t, v)
			}
			for j := range v.Workers {
				for k := range v.Workers[j].Adapters {
					a := &v.Workers[j].Adapters[k]
					if a.Tier = max(a.Tier, least); !fill {
						a.Tier = rapid.SampledFrom([]router.Tier{least, router.Disk, router.Host}).Draw(t, "tier")
					}
				}
			}
		}
		unused := rapid.Bool().Draw(t, "unused workers")
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			v.Now += rapid.SampledFrom([]float64{0.01, 0.2, 2}).Draw(t, "later")
			switch {
			case i%4 == 0:
				draw(v, i > 0 || !unused)
				v.Index = nil
				if rapid.Bool().Draw(t, "index") {
					v.Index = indexOf(v)
				}
			case v.Index != nil:
				j := rapid.IntRange(0, len(v.Workers)-1).Draw(t, "changes")
				draw(&router.View{Workers: v.Workers[j : j+1]}, true)
				enter(v.Index, v, j)
			}
			adapter := rapid.IntRange(-1, len(env.Adapters)-1).Draw(t, "adapter")
			r := router.Request{ID: int64(i), Adapter: int32(adapter),
				Prompt: int32(rapid.IntRange(1, 4000).Draw(t, "prompt")), MaxNew: 500,
				Expected: int32(rapid.IntRange(1, 500).Draw(t, "output"))}
			p.arrived(r, v)
			got, first := p.cheapest(r, v)
			checkOutlines(t, p, v)
			var bounds []float64
			if p.outlinesSuffice(&r, v) {
				p.bounds.begin(p, &r, v)
				if len(p.Where(r.Adapter)) > 0 {
					p.bounds.placed = p.placedOn(r.Adapter)
				}
				bounds = p.outlined(&r, v)
				checkGroupBounds(t, p, &r, v, bounds)
			}
			want, wantFirst := choose.New(nil), 0.0
			for j := range v.Usable() {
				price, at := p.price(r, j, v)
				if bounds != nil && bounds[j] > price {
					t.Fatalf("the price of worker %d is %g, its bound %g", j, price, bounds[j])
				}
				if want.OfferLowest(j, price); want.Worker == j {
					wantFirst = at
				}
			}
			if got != want.Worker || first != wantFirst {
				t.Fatalf("worker %d, first token after %g s; expected worker %d, %g s", got, first, want.Worker,
					wantFirst)
			}
			if p.send(r, v) != router.None && rapid.Bool().Draw(t, "another one ends there") {
				if err := p.Note(router.Event{Kind: router.Finished, Worker: int32(got),
					Exec: rapid.Float64Range(0.1, 20).Draw(t, "execution")}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// distant is a cost model of workers that load adapters from disk, or from farther away, more slowly than from host
// memory.
type distant struct{ routertest.Slower }

// AdapterLoad implements router.CostModel.
func (d distant) AdapterLoad(rank int, from router.Tier) float64 {
	times := [...]float64{router.Remote: 40, router.Disk: 12, router.Host: 1}
	return d.Slower.AdapterLoad(rank, from) * times[min(from, router.Host)]
}

// checkOutlines compares the outlines with the workers.
func checkOutlines(t *rapid.T, p *planAndRoute, v *router.View) {
	o := &p.outlines
	if !o.follows(v) {
		return
	}
	sums := outlines{}
	for j, have := range o.workers {
		want := p.outlineOf(j, v)
		if have != want {
			t.Fatalf("worker %d: the outline is %+v, expected %+v", j, have, want)
		}
		sums.count(&want, 1)
		if at := o.groups.at; o.groups.on && (at[j].group >= 0) != v.Workers[j].Usable() {
			t.Fatalf("worker %d is in group %d, usable %v", j, at[j].group, v.Workers[j].Usable())
		}
	}
	for i := range o.groups.list {
		g := &o.groups.list[i]
		for k, j := range g.workers {
			w := o.workers[j]
			same := *g
			if same.lower(&w); same.least != g.least {
				t.Fatalf("group %+v: worker %d has less, %+v", g, j, w)
			}
			if w.kind != g.kind || w.running != g.running || w.fetches != g.fetches || w.evicts != g.evicts ||
				w.exec < 0 != g.unknown || w.closes > v.Now && !g.prefills {
				t.Fatalf("group %+v: worker %d is another one, %+v", g.groupKey, j, w)
			}
			if o.groups.at[j] != (groupPlace{int32(i), int32(k)}) {
				t.Fatalf("worker %d is at %+v, expected group %d, index %d", j, o.groups.at[j], i, k)
			}
		}
	}
	if o.slots != sums.slots || o.taken != sums.taken || o.toRead != sums.toRead {
		t.Fatalf("%d slots, %d taken, %d workers to read; expected %d, %d, %d", o.slots, o.taken, o.toRead, sums.slots,
			sums.taken, sums.toRead)
	}
}

// checkGroupBounds compares the bounds of groups with those of their workers.
func checkGroupBounds(t *rapid.T, p *planAndRoute, r *router.Request, v *router.View, bounds []float64) {
	usual, others := v.Index.Hosts(r.Adapter)
	for i := range p.outlines.groups.list {
		g := &p.outlines.groups.list[i]
		for _, j := range g.workers {
			some := standing{wanted: v.Index.Has(int(j), r.Adapter), placed: p.Holds(r.Adapter, int(j)),
				hosted: !usual[j] && slices.Contains(others, j)}
			if some.wanted && g.unused.is {
				continue // it is looked at anyway
			}
			if bound := g.boundOf(p, r, v.Now, some); bound > bounds[j]*(1+1e-12) {
				t.Fatalf("group %+v: the bound is %g, that of worker %d is %g", g.groupKey, bound, j, bounds[j])
			}
		}
	}
}

// indexOf is the index of a view.
func indexOf(v *router.View) *router.Index {
	x := router.NewIndex(len(v.Workers), len(v.Adapters))
	for j := range v.Workers {
		enter(x, v, j)
	}
	return x
}

// enter enters a worker of a view in an index.
func enter(x *router.Index, v *router.View, j int) {
	for k := range v.Adapters {
		x.Set(j, int32(k), v.Workers[j].Adapter(int32(k)))
	}
	x.Touch(j)
}

// TestInFlight compares the list of a worker's adapters with requests, which its books keep, with the adapters' states.
func TestInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const adapters = 5
		w := router.Worker{Adapters: make([]router.AdapterState, adapters)}
		b := router.NewBooks(&w, 0, nil)
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			a := int32(rapid.IntRange(0, adapters).Draw(t, "adapter")) // the last one is the base model
			switch st := w.Adapter(a); {
			case st.Queued > 0 && rapid.Bool().Draw(t, "starts"):
				b.Wait(a, 1, -1)
				b.Run(a, 1)
			case st.Running > 0 && rapid.Bool().Draw(t, "ends"):
				b.Run(a, -1)
			default:
				b.Wait(a, 1, 1)
			}
			if rapid.Bool().Draw(t, "is asked") {
				list := w.InFlight()
				for k := range int32(adapters) {
					st := w.Adapter(k)
					if st.Running+st.Queued == 0 {
						continue
					}
					want := router.AdapterRequests{Adapter: k, Running: st.Running, Queued: st.Queued}
					if len(list) == 0 || list[0] != want {
						t.Fatalf("%+v at adapter %d, which has %+v", list, k, st)
					}
					list = list[1:]
				}
				if len(list) > 0 {
					t.Fatalf("%+v have no requests", list)
				}
			}
		}
	})
}
