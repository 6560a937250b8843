package replay

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// record2000 runs 2000 requests.
func record2000(tb testing.TB, watch func([]trace.Adapter) record.Watcher) {
	tb.Helper()
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](2000)
	sc.Workload.RequestRate = 12
	sc.Cluster.NumWorkers = settings.Some(3)
	testutil.Set(tb, &sc, "policy", "plan-and-route:interval=2")
	if _, err := sc.Simulate(tb.Context(), scenario.RunOptions{Watch: watch}); err != nil {
		tb.Fatal(err)
	}
}

func replayOf(t *testing.T, l Limits) *Replay {
	t.Helper()
	rec := NewRecorder(l)
	record2000(t, rec.Watching)
	return rec.Replay()
}

// The requests that a thinned recording keeps, and all adapters, are where those of the whole are.
func TestThinned(t *testing.T) {
	all, some := replayOf(t, DefaultLimits()), replayOf(t, Limits{Requests: 300, Plans: 4, Events: 1e6})
	if want := (Thinned{Every: 8, Requests: 2000, PlanEvery: some.Thinned.PlanEvery, Plans: all.Thinned.Plans,
		Until: tick.Never}); some.Thinned != want || len(some.Requests) != 250 || some.Thinned.PlanEvery < 2 {
		t.Fatalf("%+v with %d requests, expected %+v with 250", some.Thinned, len(some.Requests), want)
	}
	if len(some.Plans) > 4 || int64(len(all.Plans)) != all.Thinned.Plans {
		t.Errorf("%d and %d plans of %d", len(some.Plans), len(all.Plans), all.Thinned.Plans)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for range 100 {
		at := tick.Ticks(rng.Int64N(int64(all.End)))
		a, s := all.StateAt(at), some.StateAt(at)
		for n := range some.Requests {
			k, w := whereIs(s, int32(n))
			if wantK, wantW := whereIs(a, int32(8*n)); k != wantK || w != wantW {
				t.Fatalf("request %d at %v s: %d on %d, expected %d on %d", n, at.Seconds(), k, w, wantK, wantW)
			}
		}
		for w := range a.Workers {
			for tier := range a.Workers[w].Tiers {
				if a.Workers[w].Tiers[tier] != s.Workers[w].Tiers[tier] {
					t.Fatalf("adapter %d of worker %d differs at %v s", tier, w, at.Seconds())
				}
			}
		}
	}
}

// A recording that grows too large ends, says so, and is right until then.
func TestRecordingEnds(t *testing.T) {
	all, some := replayOf(t, DefaultLimits()), replayOf(t, Limits{Requests: 100_000, Plans: 100, Events: 2000})
	until := some.Thinned.Until
	if until == tick.Never || until >= all.End || len(some.events) != 2000 {
		t.Fatalf("%d events until %v s of %v s, expected 2000", len(some.events), until.Seconds(), all.End.Seconds())
	}
	a, s := all.StateAt(until-1), some.StateAt(until-1)
	for w := range a.Workers {
		a, s := &a.Workers[w], &s.Workers[w]
		if !slices.Equal(a.Queue, s.Queue) || !slices.Equal(a.Running, s.Running) {
			t.Errorf("worker %d differs", w)
		}
	}
}

// The JSON form holds the events and the keyframes: numbers that its reader can walk through.
func TestJSON(t *testing.T) {
	r := replayOf(t, DefaultLimits())
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var f file
	if err := json.Unmarshal(b.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	arity := [...]int{queued: 2, running: 2, moving: 3, held: 1, gone: 1, tier: 3, loadOf: 5, power: 2, outage: 2,
		plan: 1}
	events, at := 0, int64(0)
	frames := map[int]fileFrame{}
	for _, k := range f.Keyframes {
		frames[k.Event] = k
	}
	seen := 0
	for i := 0; i < len(f.Events); i += 2 + arity[f.Events[i+1]] {
		if k, ok := frames[i]; ok {
			if seen++; k.At != at {
				t.Errorf("keyframe at %d, expected %d", k.At, at)
			}
		}
		at += f.Events[i]
		e := &r.events[events]
		if want := micros(e.at); at != want || kind(f.Events[i+1]) != e.kind {
			t.Fatalf("event %d: kind %d at %d, expected %d at %d", events, f.Events[i+1], at, e.kind, want)
		}
		events++
	}
	if events != len(r.events) || seen != len(r.keyframes) || seen == 0 || len(f.Requests.ID) != 2000 ||
		len(f.Plans) != len(r.Plans) || f.End != micros(r.End) {
		t.Errorf("%d events, %d keyframes, %d requests, %d plans", events, seen, len(f.Requests.ID), len(f.Plans))
	}
}

// BenchmarkRecording is a run of 2000 requests with and without a recording.
func BenchmarkRecording(b *testing.B) {
	for _, on := range []bool{false, true} {
		name := "off"
		if on {
			name = "on"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if !on {
					record2000(b, nil)
					continue
				}
				rec := NewRecorder(DefaultLimits())
				record2000(b, rec.Watching)
				if len(rec.Replay().Requests) != 2000 {
					b.Fatal("requests are missing")
				}
			}
		})
	}
}

// BenchmarkJSON writes a recording.
func BenchmarkJSON(b *testing.B) {
	rec := NewRecorder(DefaultLimits())
	record2000(b, rec.Watching)
	r := rec.Replay()
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		if err := r.JSON(&out); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len()), "bytes")
	}
}
