package steady

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/sim/record"
)

// drawRequest is any request that a driver may report, with times that never came.
func drawRequest(t *rapid.T, id int64) record.Request {
	when := func(name string) float64 {
		if rapid.IntRange(0, 20).Draw(t, name+" is absent") == 0 {
			return math.NaN()
		}
		return rapid.Float64Range(0, 1e4).Draw(t, name)
	}
	return record.Request{
		ID: id, Arrival: when("arrival"), Sent: when("sent"), FirstToken: when("first"), Finish: when("finish"),
		Output: rapid.Int32Range(0, 100).Draw(t, "output"), WorkerLast: rapid.Int32Range(-1, 3).Draw(t, "worker"),
		Status: record.Status(rapid.IntRange(0, int(record.NumStatus)-1).Draw(t, "status")),
	}
}

// TestAnyRequests: no requests make the assessment fail, and what it says is a number
// and agrees with the state.
func TestAnyRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRecorder(rapid.Bool().Draw(t, "not streamed"))
		for id := range rapid.Int64Range(0, 400).Draw(t, "requests") {
			q := drawRequest(t, id)
			r.Done(&q)
		}
		a := r.Assess()
		for _, v := range []float64{a.Warmup, a.LastArrival, a.OfferedRate, a.SustainableRate, a.EffectiveSamples} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%+v: expected finite numbers", a)
			}
		}
		if (a.State == Steady) != (a.Reason == "") || a.State != Steady && (a.Intervals != nil || a.TooShort != nil) {
			t.Fatalf("%+v: expected a reason or intervals", a)
		}
		for _, s := range a.TooShort {
			if s.Needed <= int64(r.requests) || slices.ContainsFunc(a.Intervals, func(in Interval) bool {
				return in.Metric == s.Metric
			}) {
				t.Fatalf("%+v of %d requests: expected more, and no interval", s, r.requests)
			}
		}
		for _, in := range a.Intervals {
			if !(in.Low <= in.High) {
				t.Fatalf("interval %+v", in)
			}
		}
	})
}

// TestAnyOrder: the order in which requests end does not matter to counts.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 100).Draw(t, "requests")
		forth, back := NewRecorder(false), NewRecorder(false)
		var qs []record.Request
		for id := range n {
			qs = append(qs, drawRequest(t, id))
			forth.Done(&qs[id])
		}
		for i := range qs {
			back.Done(&qs[len(qs)-1-i])
		}
		if forth.slots.width != back.slots.width || len(forth.slots.slots) != len(back.slots.slots) {
			t.Fatalf("%d slots of %g s, the other way round %d of %g s",
				len(forth.slots.slots), forth.slots.width, len(back.slots.slots), back.slots.width)
		}
		var arrived, begun, finished int64
		for i := range forth.slots.slots {
			a, b := &forth.slots.slots[i], &back.slots.slots[i]
			if a.arrived != b.arrived || a.sent != b.sent || a.begun != b.begun || a.finished != b.finished ||
				a.done != b.done {
				t.Fatalf("slot %d: %+v, the other way round %+v", i, a, b)
			}
			arrived, begun, finished = arrived+a.arrived, begun+a.begun, finished+a.finished
		}
		if arrived != n || begun > n || finished > begun {
			t.Fatalf("%d arrived, %d began, %d finished, of %d", arrived, begun, finished, n)
		}
	})
}
