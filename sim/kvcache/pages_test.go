package kvcache

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// TestPool holds a pool against requests counted one by one: whatever is admitted, decodes, is retracted and
// is copied elsewhere, no page is lost, and the invariants hold after every operation.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{1, 4, 16}).Draw(t, "page size")
		kind := Prefixes(rapid.IntRange(int(NoPrefixes), int(BlockPool)).Draw(t, "prefixes"))
		var stats CacheStats
		p := New(400, size, kind, &stats)
		texts := []*trace.Text{nil}
		if kind != NoPrefixes {
			all := trace.Texts{}
			texts = append(texts, all.Of(nil, 0, 1), all.Of(nil, 0, 2))
		}
		var prompts, decoding []*Sequence
		steps, reserved := int64(0), int64(0)
		pick := func(from *[]*Sequence) *Sequence {
			k := rapid.IntRange(0, len(*from)-1).Draw(t, "request")
			s := (*from)[k]
			*from = append((*from)[:k:k], (*from)[k+1:]...)
			return s
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			switch op := rapid.IntRange(0, 5).Draw(t, "operation"); {
			case op <= 1:
				s := &Sequence{Prompt: rapid.Int32Range(1, 60).Draw(t, "prompt"), Text: rapid.SampledFrom(texts).Draw(t,
					"text")}
				match, idle := p.MatchPrefix(s, s.Prompt-1, steps)
				if match < 0 || idle > match {
					t.Fatalf("%d tokens match, %d of them evictable", match, idle)
				}
				if p.Pages(int64(s.Prompt)-match+idle)+int64(len(decoding)) > p.Free() {
					continue
				}
				if found := p.LockPrefix(s, s.Prompt-1); int64(found) != match {
					t.Fatalf("%d tokens locked, %d matched", found, match)
				}
				p.Grow(s, int64(s.Prompt-s.Computed))
				p.Insert(s)
				prompts = append(prompts, s)
			case op == 2 && len(prompts) > 0:
				s := pick(&prompts)
				p.StartDecoding(s, steps)
				decoding = append(decoding, s)
			case op == 3 && len(decoding) > 0:
				b := int64(len(decoding))
				if k := p.StepsThatFit(steps, b, rapid.Int64Range(1, 40).Draw(t, "steps")); k > 0 {
					p.Decode(steps, b, k)
					steps += k
				}
			case op == 4 && len(decoding) > 0:
				s := pick(&decoding)
				p.StopDecoding(s, steps)
				s.Retracted = rapid.Bool().Draw(t, "retracted")
				p.Release(s)
			case op == 5 && reserved == 0 && p.Free() > 3+int64(len(decoding)):
				reserved = rapid.Int64Range(1, size).Draw(t, "reserved")
				p.Reserve(reserved)
			case op == 5 && reserved > 0:
				p.Reserve(-reserved)
				reserved = 0
			}
			if err := p.Check(int64(len(decoding))); err != nil {
				t.Fatal(err)
			}
			if kind == NoPrefixes {
				pages := p.Pages(reserved)
				for _, s := range prompts {
					pages += p.Pages(int64(s.Computed))
				}
				for _, s := range decoding {
					pages += p.Pages(s.Tokens(steps))
				}
				if got := p.CapacityTokens()/size - p.Free(); got != pages {
					t.Fatalf("%d pages taken, %d by request", got, pages)
				}
			}
		}
		for _, s := range decoding {
			p.StopDecoding(s, steps)
			p.Release(s)
		}
		for _, s := range prompts {
			p.Release(s)
		}
		p.Reserve(-reserved)
		if err := errors.Join(p.Check(0), p.CheckEmpty()); err != nil {
			t.Fatal(err)
		}
	})
}
