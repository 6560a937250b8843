package sim

import (
	"context"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"

	"pgregory.net/rapid"
)

// fate is what a listener heard of one request.
type fate struct {
	tokens []tick.Ticks
	ended  int
	status record.Status
	reason string
	end    tick.Ticks
}

type fates map[int64]*fate

func (f fates) of(id int64) *fate {
	if f[id] == nil {
		f[id] = &fate{}
	}
	return f[id]
}

func (f fates) hooks() ServerHooks { return ServerHooks{Token: f.Token, Ended: f.Ended} }

func (f fates) Token(id int64, at tick.Ticks) { r := f.of(id); r.tokens = append(r.tokens, at) }
func (f fates) Ended(id int64, st record.Status, reason string, at tick.Ticks) {
	r := f.of(id)
	r.ended++
	r.status, r.reason, r.end = st, reason, at
}

func newTestServer(t interface{ Fatal(...any) }, p *profile.Profile, adapters []trace.Adapter) (*Server, fates) {
	heard := fates{}
	srv, err := NewServer(ServerConfig{Costs: p.Compile(), Hooks: heard.hooks(), MaxAdapters: len(adapters),
		Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range adapters {
		srv.Define(int32(i), a)
	}
	return srv, heard
}

// The same workload through a Server whose clock a program moves has exactly
// the token times, ends and statuses of Run, whatever other times the program
// stops at between.
func TestServerEqualsRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		wl := genWorkload(t)
		want := newLedger()
		_, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{p.Compile()},
			Router: &router.Router{Policy: byID{n: 1}}, Observer: want, Home: router.Disk, TokenTimes: true})
		if err != nil {
			t.Fatal(err)
		}

		srv, heard := newTestServer(t, &p, wl.Adapters)
		for i := range wl.Adapters {
			if n := p.Engine.HostLoras(); n == 0 || i < n {
				srv.Preload(int32(i))
			}
		}
		stops := rapid.SliceOfN(rapid.Float64Range(0, 3), 0, 20).Draw(t, "stops")
		slices.Sort(stops)
		for i, r := range wl.Requests {
			for len(stops) > 0 && stops[0] < r.Arrival {
				srv.Advance(tick.FromSeconds(stops[0]))
				stops = stops[1:]
			}
			if err := srv.Submit(r); err != nil {
				t.Fatal(err)
			}
			if i+1 == len(wl.Requests) || wl.Requests[i+1].Arrival > r.Arrival {
				srv.Advance(tick.FromSeconds(r.Arrival)) // those of one instant come together
			}
		}
		for at := srv.Next(); at != tick.Never; at = srv.Next() {
			srv.Advance(at)
		}
		for _, r := range wl.Requests {
			compareFates(t, r.ID, heard.of(r.ID), want.recs[r.ID])
		}
	})
}

func compareFates(t *rapid.T, id int64, got *fate, want record.Request) {
	if got.ended != 1 || got.status != want.Status || got.reason != want.Error ||
		got.end != tick.FromSeconds(want.Finish) {
		t.Fatalf("request %d: server %+v, run %v (%s) at %v", id, got, want.Status, want.Error, want.Finish)
	}
	if want.Status != record.OK {
		return
	}
	if len(got.tokens) != int(want.Output) || got.tokens[0] != tick.FromSeconds(want.FirstToken) {
		t.Fatalf("request %d: server's tokens at %v, run's first at %v of %d", id, got.tokens, want.FirstToken,
			want.Output)
	}
	for k, gap := range want.Gaps {
		if got.tokens[k+1]-got.tokens[k] != tick.FromSeconds(gap) {
			t.Fatalf("request %d: gap %d is %v, run says %v", id, k, got.tokens[k+1]-got.tokens[k],
				tick.FromSeconds(gap))
		}
	}
}

// Whatever is canceled and when: every request ends once, nothing is left on
// the worker, and no token comes after the end.
func TestServerCancel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		wl := genWorkload(t)
		srv, heard := newTestServer(t, &p, wl.Adapters)
		now := tick.Ticks(0)
		for _, r := range wl.Requests {
			if err := srv.Submit(r); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "advance") {
				now += rapid.SampledFrom([]tick.Ticks{0, tick.Millisecond, 17 * tick.Millisecond, tick.Second}).Draw(t,
					"by")
				srv.Advance(now)
			}
			for range rapid.IntRange(0, 2).Draw(t, "cancels") {
				id := int64(rapid.IntRange(0, len(wl.Requests)).Draw(t, "victim"))
				in := id <= r.ID && heard.of(id).ended == 0
				if got := srv.Cancel(id); got != in {
					t.Fatalf("cancel of request %d: %v, expected %v", id, got, in)
				}
			}
		}
		for at := srv.Next(); at != tick.Never; at = srv.Next() {
			srv.Advance(at)
		}
		for _, r := range wl.Requests {
			f := heard.of(r.ID)
			output := int(expectedOutput(r, p))
			if f.ended != 1 || !slices.IsSorted(f.tokens) || len(f.tokens) > max(output, 0) ||
				f.status == record.OK && len(f.tokens) != output ||
				len(f.tokens) > 0 && f.tokens[len(f.tokens)-1] > f.end {
				t.Fatalf("request %d of %d tokens: %+v", r.ID, r.Output, f)
			}
		}
		if err := srv.engine.CheckEmpty(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestServerAdapters(t *testing.T) {
	p := testProfile()
	p.Engine.MaxLorasPerBatch = 2
	srv, heard := newTestServer(t, &p, trace.Names(3, []int{8}))
	srv.Load(0)
	if srv.Loaded(0) || srv.Gone(0) {
		t.Fatal("an adapter that has begun to load is there, or gone")
	}
	// 50 ms + 40 MB at 1.5 GB/s, of the default profile's disk
	want := tick.FromMilliseconds(50 + 40e6/1.5e9*1000)
	if got := srv.Next(); got != want {
		t.Fatalf("the load ends at %v ms, expected %v", got.Milliseconds(), want.Milliseconds())
	}
	srv.Advance(want)
	if !srv.Loaded(0) {
		t.Fatal("the adapter is not there when its load is over")
	}
	if err := srv.Submit(trace.Request{ID: 1, Adapter: 0, Prompt: 10, Output: 5}); err != nil {
		t.Fatal(err)
	}
	srv.Advance(srv.Now())
	srv.Unload(0)
	if srv.Gone(0) {
		t.Fatal("an adapter went while a request used it")
	}
	for at := srv.Next(); at != tick.Never; at = srv.Next() {
		srv.Advance(at)
	}
	if f := heard[1]; f.status != record.OK || len(f.tokens) != 5 {
		t.Fatalf("the request that used it: %+v", f)
	}
	if !srv.Gone(0) || srv.View().SlotsUsed != 0 {
		t.Fatal("the adapter did not go with its last request")
	}

	srv.Define(1, trace.Adapter{Name: "other", Rank: 64}) // a rank of its own
	srv.Preload(1)
	if err := srv.Submit(trace.Request{ID: 2, Adapter: 1, Prompt: 10, Output: 5}); err != nil {
		t.Fatal(err)
	}
	srv.Advance(srv.Now())
	if got := srv.View().MaxRank; got != 64 {
		t.Fatalf("largest rank %d, expected the new one", got)
	}
	if err := srv.Submit(trace.Request{ID: 2, Adapter: 1, Prompt: 10, Output: 5}); err == nil {
		t.Fatal("two requests in flight have the same id")
	}
}

// BenchmarkServer measures one token of one request in a batch of 16.
func BenchmarkServer(b *testing.B) {
	p := testProfile()
	p.Memory.KVTokens = 1 << 40
	p.Engine.ContextLength = 1 << 40
	srv, err := NewServer(ServerConfig{Costs: p.Compile(), Hooks: ServerHooks{Token: func(int64, tick.Ticks) {}}})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 16 {
		if err := srv.Submit(trace.Request{ID: int64(i), Adapter: trace.BaseModel, Prompt: 1, Output: 1 << 30,
			MaxNew: 1 << 30}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += 16 {
		srv.Advance(srv.Next())
	}
	if srv.View().Running != 16 {
		b.Fatalf("%d requests run, expected 16", srv.View().Running)
	}
}
