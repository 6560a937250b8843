package renewal

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func compare(e, f Event) int {
	return cmp.Or(cmp.Compare(e.At, f.At), cmp.Compare(e.Seq, f.Seq), cmp.Compare(e.Item, f.Item))
}

// TestQueue compares a queue with a sorted list; small numbers give many ties.
func TestQueue(t *testing.T) {
	event := rapid.Custom(func(t *rapid.T) Event {
		return Event{
			At:   float64(rapid.IntRange(0, 4).Draw(t, "at")),
			Seq:  rapid.Int64Range(0, 2).Draw(t, "seq"),
			Item: rapid.Int32Range(0, 2).Draw(t, "item"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var sorted []Event
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				e := event.Draw(t, "event")
				q.Push(e)
				sorted = append(sorted, e)
			},
			"pop": func(t *rapid.T) {
				if len(q) > 0 {
					q.Pop()
					sorted = sorted[1:]
				}
			},
			"replace": func(t *rapid.T) {
				if len(q) > 0 {
					e := event.Draw(t, "event")
					q.Replace(e)
					sorted[0] = e
				}
			},
			"": func(t *rapid.T) {
				slices.SortFunc(sorted, compare)
				if len(q) != len(sorted) || len(q) > 0 && q[0] != sorted[0] {
					t.Fatalf("queue %v, expected %v", q, sorted)
				}
			},
		})
	})
}

func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{32, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var q Queue
			for i := range int32(n) {
				q.Push(Event{At: r.ExpFloat64(), Item: i})
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Replace(Event{At: q[0].At + r.ExpFloat64(), Item: q[0].Item})
			}
		})
	}
}
