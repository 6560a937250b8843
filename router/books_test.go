package router

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBooks has requests of random adapters, the base model included, come to a worker, wait, run and leave. The worker
// shows what counting the requests afresh gives, and the index has an adapter where it has requests.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const adapters = 3 // the base model is number 3
		ranks := []int32{8, 64, 130, 0}
		type request struct {
			adapter, prompt, expected int32
			pending, waits, runs      bool
		}
		w := Worker{Adapters: make([]AdapterState, adapters)}
		index := NewIndex(1, adapters)
		b := NewBooks(&w, 0, index)
		var all []*request
		for range rapid.IntRange(1, 50).Draw(t, "operations") {
			op := rapid.IntRange(0, 3).Draw(t, "operation")
			if op == 0 || len(all) == 0 {
				r := &request{adapter: rapid.Int32Range(0, adapters).Draw(t, "adapter"),
					prompt:   rapid.Int32Range(1, 9).Draw(t, "prompt"),
					expected: rapid.Int32Range(1, 9).Draw(t, "expected"),
					pending:  rapid.Bool().Draw(t, "pending"), waits: true}
				b.Assign(r.prompt, r.expected, ranks[r.adapter], r.pending, 1)
				b.Wait(r.adapter, r.prompt, 1)
				all = append(all, r)
			} else {
				k := rapid.IntRange(0, len(all)-1).Draw(t, "request")
				switch r := all[k]; {
				case r.waits:
					b.Wait(r.adapter, r.prompt, -1)
					b.Run(r.adapter, 1)
					b.Running++ // the engine counts these
					r.waits, r.runs = false, true
				default:
					b.Run(r.adapter, -1)
					b.Running--
					b.Assign(r.prompt, r.expected, ranks[r.adapter], r.pending, -1)
					all = append(all[:k:k], all[k+1:]...)
				}
			}
			var want struct{ tokens, pending, queuedTokens, queued, maxRank int64 }
			var of [adapters]AdapterState
			for _, r := range all {
				want.tokens += int64(r.prompt + r.expected)
				if r.pending {
					want.pending += int64(r.prompt)
				}
				if r.waits {
					want.queued++
					want.queuedTokens += int64(r.prompt)
				}
				want.maxRank = max(want.maxRank, int64(ranks[r.adapter]))
				if r.adapter < adapters {
					if r.waits {
						of[r.adapter].Queued++
					} else {
						of[r.adapter].Running++
					}
				}
			}
			got := want
			got.tokens, got.pending, got.queuedTokens = w.Tokens, b.PendingPromptTokens, w.QueuedToks
			got.queued, got.maxRank = int64(w.Queued), int64(w.MaxRank)
			if got != want {
				t.Fatalf("books show %+v, expected %+v", got, want)
			}
			active, waiting := 0, 0
			for a, st := range of {
				if w.Adapters[a] != st {
					t.Fatalf("adapter %d: %+v, expected %+v", a, w.Adapters[a], st)
				}
				if index.Has(0, int32(a)) != st.Wanted() {
					t.Fatalf("adapter %d: the index disagrees with %+v", a, st)
				}
				active += min(int(st.Running), 1)
				waiting += min(int(st.Queued), 1)
			}
			if w.ActiveLoras != active || w.WaitingLoras != waiting {
				t.Fatalf("%d active and %d waiting adapters, expected %d and %d", w.ActiveLoras, w.WaitingLoras, active,
					waiting)
			}
		}
	})
}
