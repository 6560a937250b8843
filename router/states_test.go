package router

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRows compares a worker with rows of some adapters with one that has the states of all.
func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 9
		tier := rapid.SampledFrom([]Tier{Disk, Host}).Draw(t, "tier")
		var few, many Worker
		few.SetAdapters(n, tier)
		many.rows = &rows{adapters: n, tier: tier, of: map[int32]*AdapterState{}, listed: true}
		fewBooks, manyBooks := NewBooks(&few, 0, NewIndex(1, n)), NewBooks(&many, 0, NewIndex(1, n))
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			a := int32(rapid.IntRange(0, n-1).Draw(t, "adapter"))
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 4:
				loading := rapid.Bool().Draw(t, "loading")
				fewBooks.SetLoading(a, loading)
				manyBooks.SetLoading(a, loading)
			case 0:
				to := rapid.SampledFrom([]Tier{Remote, Disk, Host, GPU}).Draw(t, "to")
				few.Row(a).Tier, many.Row(a).Tier = to, to
			case 1:
				few.Row(a).Pinned, many.Row(a).Pinned = true, true
			default:
				more := rapid.Int32Range(0, 2)
				running, queued := more.Draw(t, "run"), more.Draw(t, "wait")
				if few.Count(a, running, queued) != many.Count(a, running, queued) {
					t.Fatalf("adapter %d, %d and %d more requests: they differ", a, running, queued)
				}
			}
			alike(t, &few, &many)
		}
		// Stale copies are those of the reported states, with the requests of the live worker.
		var lateFew, lateMany Worker
		lateFew.copyStates(&few)
		lateMany.copyStates(&many)
		reported := many.Tiers()
		few.Row(0).Tier, many.Row(0).Tier = Remote, Remote
		few.Count(1, 1, 0)
		many.Count(1, 1, 0)
		lateFew.copyRequests(&few)
		lateMany.copyRequests(&many)
		alike(t, &lateFew, &lateMany)
		if got, want := reported.Of(0), lateFew.Adapter(0).Tier; got != want {
			t.Fatalf("adapter 0 was in tier %d, expected %d", got, want)
		}
		copied := many
		copied.Detach(nil)
		copied.Count(2, 1, 0)
		alike(t, &few, &many)
	})
}

// alike compares two workers.
func alike(t *rapid.T, few, many *Worker) {
	if few.Loading() != many.Loading() {
		t.Fatalf("%d adapters are loading, %d where there are rows", few.Loading(), many.Loading())
	}
	tiers, want := many.Tiers(), few.Tiers()
	listed := map[int32]bool{}
	for a, st := range many.Rows() {
		if listed[a] = true; st != many.Adapter(a) {
			t.Fatalf("adapter %d: %+v and %+v", a, st, many.Adapter(a))
		}
	}
	for a := int32(-1); int(a) <= few.NumAdapters(); a++ {
		if few.Adapter(a) != many.Adapter(a) {
			t.Fatalf("adapter %d: %+v, expected %+v", a, many.Adapter(a), few.Adapter(a))
		}
		if a < 0 || int(a) == few.NumAdapters() {
			continue
		}
		if tiers.Of(a) != want.Of(a) {
			t.Fatalf("adapter %d is in tier %d, expected %d", a, tiers.Of(a), want.Of(a))
		}
		if st := few.Adapter(a); !listed[a] && st.Running+st.Queued > 0 {
			t.Fatalf("adapter %d has %+v and no row", a, st)
		}
	}
	if few.NumAdapters() != many.NumAdapters() || few.Hosted() != many.Hosted() ||
		!slices.Equal(few.InFlight(), many.InFlight()) {
		t.Fatalf("%d adapters, %d hosted, %v in flight; expected %d, %d, %v", many.NumAdapters(), many.Hosted(),
			many.InFlight(), few.NumAdapters(), few.Hosted(), few.InFlight())
	}
}
