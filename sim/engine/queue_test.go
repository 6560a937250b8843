package engine

import (
	"slices"
	"testing"

	"lorasim/sim/profile"
)

// wait puts requests into the queue of an engine that does not run.
func wait(b *bench, rs ...*Request) {
	for _, r := range rs {
		b.e.Add(r)
	}
}

// ids are those of the waiting requests, and of the heads of the adapters that have some.
func ids(b *bench) (all, heads []int64) {
	for r := range b.e.Queue.All() {
		all = append(all, r.ID)
	}
	for _, a := range b.e.Queue.Adapters() {
		heads = append(heads, a.Head().ID)
	}
	slices.Sort(heads)
	return all, heads
}

// A request that comes back goes to the head of the queue, or to the place that it had when it came.
func TestQueueComesBack(t *testing.T) {
	for _, c := range []struct {
		byCome     bool
		all, heads []int64
	}{{false, []int64{2, 4, 1, 3}, []int64{1, 2}}, {true, []int64{2, 4, 1, 3}, []int64{1, 2}}} {
		b := newBench(t, nil)
		b.view.Up = false
		b.e.Queue.byCome = c.byCome
		one, two, four := request(1, 0, 9, 1), request(2, 1, 9, 1), request(4, 1, 9, 1)
		wait(b, one, two, request(3, 0, 9, 1), four)
		for _, r := range []*Request{two, four} {
			b.e.Queue.remove(r)
		}
		q := &b.e.Queue
		if q.Len() != 2 || q.Oldest() != one || len(q.Adapters()) != 1 {
			t.Fatalf("%d requests of %d adapters left", q.Len(), len(q.Adapters()))
		}
		q.add(four, true)
		q.add(two, true)
		all, heads := ids(b)
		if !slices.Equal(all, c.all) || !slices.Equal(heads, c.heads) {
			t.Errorf("by place %v: queue %v, heads %v, expected %v and %v", c.byCome, all, heads, c.all, c.heads)
		}
		if want := two.Seq() < four.Seq() && (two.Seq() == two.ArrivalSeq()) == c.byCome; !want {
			t.Errorf("by place %v: places %d and %d, of arrival %d and %d", c.byCome, two.Seq(), four.Seq(),
				two.ArrivalSeq(), four.ArrivalSeq())
		}
		if two.Next() != four || four.Next() != nil {
			t.Error("adapter 1's requests are not one behind the other")
		}
	}
}

// With their old places, requests stand among those of their adapter as they came, though they come back in another
// order.
func TestQueueKeepsPlaces(t *testing.T) {
	b := newBench(t, nil)
	b.view.Up = false
	q := &b.e.Queue
	q.byCome = true
	rs := []*Request{request(1, 0, 9, 1), request(2, 0, 9, 1), request(3, 0, 9, 1), request(4, 0, 9, 1)}
	wait(b, rs...)
	for _, k := range []int{0, 2} {
		q.remove(rs[k])
	}
	for _, k := range []int{0, 2} {
		q.add(rs[k], true)
	}
	var got []int64
	for r := b.adapter(0).Head(); r != nil; r = r.Next() {
		got = append(got, r.ID)
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("the adapter's requests are %v, expected in the order in which they came", got)
	}
}

// Of the adapters' candidates the one that came first is next; an adapter without one is passed over.
func TestOldestOf(t *testing.T) {
	b := newBench(t, nil)
	b.view.Up = false
	wait(b, request(1, 0, 9, 1), request(2, 1, 9, 1), request(3, 2, 9, 1), request(4, 1, 9, 1))
	among := []*Adapter{b.adapter(3), b.adapter(2), b.adapter(1), b.adapter(0)}
	if got := b.e.Queue.OldestOf(among, (*Adapter).Head); got.ID != 1 {
		t.Errorf("request %d is first, expected 1", got.ID)
	}
	got := b.e.Queue.OldestOf(among, func(a *Adapter) *Request {
		switch a.Index {
		case 0:
			return nil
		case 1:
			return a.Head().Next() // behind the other adapter's
		}
		return a.Head()
	})
	if got.ID != 3 {
		t.Errorf("request %d is first, expected 3", got.ID)
	}
	if got := b.e.Queue.OldestOf(among[:1], (*Adapter).Head); got != nil {
		t.Errorf("request %d of an adapter without any is first", got.ID)
	}
}

// prioritized is an engine whose adapters have the priorities 2, 0 and 2, and the base model 0.
func prioritized(t *testing.T, lowFirst bool) *bench {
	b := newBench(t, func(p *profile.Profile, c *Config) {
		p.Engine.SchedulePolicy, p.Engine.LowPriorityFirst = profile.OrderPriority, lowFirst
		c.Adapters[0].Priority, c.Adapters[2].Priority = 2, 2
	})
	b.view.Up = false
	return b
}

// Priorities decide, then the order in which requests came. The last is of the worst priority, of these the latest.
func TestPriorityOrder(t *testing.T) {
	for _, c := range []struct {
		lowFirst                  bool
		head, without, last, base int64
	}{{false, 3, 4, 5, 0}, {true, 1, 2, 6, 0}} {
		b := prioritized(t, c.lowFirst)
		wait(b, request(1, 1, 9, 1), request(2, 3, 9, 1), request(3, 2, 9, 1), request(4, 0, 9, 1), request(5, 1, 9, 1),
			request(6, 0, 9, 1))
		p := &b.e.Policy
		if got := p.Head(); got.ID != c.head {
			t.Errorf("low first %v: request %d is first, expected %d", c.lowFirst, got.ID, c.head)
		}
		if got := p.Last(); got.ID != c.last {
			t.Errorf("low first %v: request %d is last, expected %d", c.lowFirst, got.ID, c.last)
		}
		if got := p.Priority(b.adapter(3)); got != c.base || p.FCFS() || !p.ByPriority() {
			t.Errorf("the base model's priority is %d, expected %d", got, c.base)
		}
		head := p.Head().Row
		got := p.First([]*Adapter{b.adapter(3), b.adapter(2), b.adapter(1), b.adapter(0)}, func(a *Adapter) *Request {
			if a == head {
				return nil
			}
			return a.Head()
		})
		if got.ID != c.without {
			t.Errorf("low first %v: request %d is next, expected %d", c.lowFirst, got.ID, c.without)
		}
	}
}

// Where an adapter's candidate is not its head, another adapter of the same priority may have an older one.
func TestFirstAmongEquals(t *testing.T) {
	b := prioritized(t, false)
	wait(b, request(1, 0, 9, 1), request(2, 2, 9, 1), request(3, 0, 9, 1))
	second := func(a *Adapter) *Request {
		if a.Index == 0 {
			return a.Head().Next()
		}
		return a.Head()
	}
	for _, among := range [][]*Adapter{{b.adapter(0), b.adapter(2)}, {b.adapter(2), b.adapter(0)}} {
		if got := b.e.Policy.First(among, second); got.ID != 2 {
			t.Errorf("request %d is first, expected 2", got.ID)
		}
	}
}

// Virtual token counters: prompts count once, each token twice; the least counter is next. An adapter that comes (back)
// is lifted to the least of those that wait, or to that of the last one that did.
func TestVTC(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) { p.Engine.SchedulePolicy = profile.OrderVTC })
	p := &b.e.Policy
	b.send(0, request(1, 0, 10, 4))
	b.until(37 * ms) // its prompt until 15 ms, steps until 25, 35 and 45
	served := func(a int32) int64 { return p.Service(b.adapter(a), b.e.Step.done(b.l.Now())) }
	if got := served(0); got != 10+2*3 {
		t.Errorf("adapter 0 was served %d, expected 16", got)
	}
	b.view.Up = false
	wait(b, request(2, 1, 5, 1)) // nobody waits; the last who did is adapter 0's
	if got := served(1); got != 16 {
		t.Errorf("adapter 1 begins with %d, expected 16", got)
	}
	b.adapter(2).served.tokens, b.adapter(3).served.tokens = 40, 5
	wait(b, request(3, 2, 5, 1), request(4, 3, 5, 1))
	if got := [2]int64{served(2), served(3)}; got != [2]int64{40, 16} {
		t.Errorf("adapter 2 and the base model begin with %v, expected 40, which it has, and 16", got)
	}
	if got := p.Head(); got.ID != 2 {
		t.Errorf("request %d is first, expected 2", got.ID)
	}
	p.add(b.adapter(1), 1)
	if got := p.Head(); got.ID != 4 {
		t.Errorf("request %d is first, expected 4", got.ID)
	}
}

// A gate is open if something has changed and it is not full.
func TestGate(t *testing.T) {
	var g Gate
	for _, c := range []struct {
		name       string
		do         func()
		open, full bool
	}{
		{"begins", func() {}, false, false}, {"changed", g.Look, true, false}, {"full", g.NoRoom, false, true},
		{"left", g.RequestLeft, true, false}, {"looked", g.Exhausted, false, false},
		{"set full", func() { g.SetFull(true) }, false, true}, {"changed and full", g.Look, false, true},
		{"set not full", func() { g.SetFull(false) }, true, false},
	} {
		if c.do(); g.Open() != c.open || g.Full() != c.full {
			t.Errorf("%s: open %v, full %v, expected %v and %v", c.name, g.Open(), g.Full(), c.open, c.full)
		}
	}
}

// What opens a full gate, and what ends a decode run.
func TestGateOfAnEngine(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(g *Gate)
		arrival bool // a request that comes opens it
		cuts    bool // and ends the run
	}{
		{"nothing", func(*Gate) {}, false, false}, {"arrivals", func(g *Gate) { g.ArrivalOpens = true }, true, true},
		{"always", func(g *Gate) { g.Always = true }, false, true},
	} {
		b := newBench(t, nil)
		b.send(0, request(1, 0, 10, 50))
		b.until(30 * ms)
		g := &b.e.Gate
		c.change(g)
		g.NoRoom()
		wait(b, request(2, 0, 10, 1))
		if cut := b.e.Step.run.Count == 2; g.Full() == c.arrival || cut != c.cuts {
			t.Errorf("%s: full %v, the run is of %d steps; expected full %v, cut %v", c.name, g.Full(),
				b.e.Step.run.Count, !c.arrival, c.cuts)
		}
		if b.e.CapacityFreed(); g.Full() || b.e.Step.run.Count != 2 {
			t.Errorf("%s: room was made; full %v, the run is of %d steps", c.name, g.Full(), b.e.Step.run.Count)
		}
	}
}
