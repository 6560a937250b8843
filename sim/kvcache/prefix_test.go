package kvcache

import (
	"testing"

	"lorasim/trace"
)

// newPool returns a cache of 100 tokens in pages of 4, and its counts.
func newPool(kind Prefixes) (*Pool, *CacheStats) {
	stats := &CacheStats{}
	p := New(100, 4, kind, stats)
	return &p, stats
}

// admit has a request of a prompt be admitted and computed.
func admit(p *Pool, text *trace.Text, adapter, prompt int32) *Sequence {
	s := &Sequence{Prompt: prompt, Adapter: adapter, Text: text}
	p.LockPrefix(s, prompt-1)
	p.Grow(s, int64(s.Prompt-s.Computed))
	p.Insert(s)
	return s
}

func expectMatch(t *testing.T, p *Pool, s *Sequence, steps, match, evictable int64) {
	t.Helper()
	if m, e := p.MatchPrefix(s, s.Prompt-1, steps); m != match || e != evictable {
		t.Errorf("%d tokens match, %d of them evictable, expected %d and %d", m, e, match, evictable)
	}
}

// A prompt's tokens are those of its text, as far as that goes; those that follow are the reply's.
func TestKnown(t *testing.T) {
	text, reply := &trace.Text{Block: 6}, &trace.Text{}
	s := &Sequence{Prompt: 8, Text: text}
	for n, want := range map[int32]int32{4: 4, 8: 6, 12: 6} {
		if of, got := s.Known(n); of != text || got != want {
			t.Errorf("%d of the first %d tokens are known, expected %d of the prompt's text", got, n, want)
		}
	}
	s.Reply = reply
	for n, want := range map[int32]*trace.Text{8: text, 9: reply} {
		if of, got := s.Known(n); of != want || got != min(n, 6+3*int32(n/9)) {
			t.Errorf("first %d tokens: %d known", n, got)
		}
	}
	if of, got := (&Sequence{Prompt: 8}).Known(8); of != nil || got != 0 {
		t.Errorf("%d tokens of an unknown prompt are known", got)
	}
}

// Of a prompt of 11 tokens two whole pages are kept, for its own adapter alone. Requests that hold them share them.
func TestPrefixIsShared(t *testing.T) {
	for _, kind := range []Prefixes{RadixPages, RadixNodes, BlockPool} {
		text := &trace.Text{}
		p, stats := newPool(kind)
		first := admit(p, text, 0, 11)
		expectMatch(t, p, &Sequence{Prompt: 20, Text: text}, 0, 8, 0)
		expectMatch(t, p, &Sequence{Prompt: 8, Text: text}, 0, 4, 0) // the last token is always computed
		expectMatch(t, p, &Sequence{Prompt: 20, Text: text, Adapter: 1}, 0, 0, 0)
		expectMatch(t, p, &Sequence{Prompt: 20}, 0, 0, 0)
		second := &Sequence{Prompt: 20, Text: text}
		if n := p.LockPrefix(second, 19); n != 8 || second.Computed != 8 || second.Found != 8 ||
			stats.CachedTokens != 8 {
			t.Errorf("%d tokens found, request %+v, %+v", n, *second, *stats)
		}
		if p.Stored() != 11 || p.Free() != 22 { // 3 pages of 25
			t.Errorf("%d tokens stored, %d pages free, expected 11 and 22", p.Stored(), p.Free())
		}
		p.Release(second)
		if got := p.Peek(text, 0, 11, 0); got != 8 {
			t.Errorf("routers see %d tokens, expected 8", got)
		}
		if p.Peek(nil, 0, 11, 0) != 0 || p.Peek(text, 1, 11, 0) != 0 || p.Peek(text, 0, 7, 0) != 4 {
			t.Error("routers see tokens of no text or another adapter, or half a page")
		}
		p.Release(first)
		expectMatch(t, p, &Sequence{Prompt: 20, Text: text}, 0, 8, 8)
		p.Flush()
		if n := p.LockPrefix(second, 19); n != 0 || second.Found != 8 || second.Computed != 0 {
			t.Errorf("%d tokens found, request %+v; expected none now, 8 when it first ran", n, *second)
		}
		p.Release(second)
	}
}

// A retracted request under sglang leaves what was kept of it before and nothing of its reply; under vLLM all its
// blocks stay.
func TestRetractedPrefix(t *testing.T) {
	for kind, want := range map[Prefixes]int64{RadixPages: 8, BlockPool: 16} {
		text := &trace.Text{}
		p, _ := newPool(kind)
		s := admit(p, text, 0, 8)
		s.Reply = text
		p.StartDecoding(s, 0)
		p.Decode(0, 1, 9) // 17 tokens
		p.StopDecoding(s, 9)
		s.Retracted = true
		p.Release(s)
		expectMatch(t, p, &Sequence{Prompt: 40, Text: text}, 9, want, want)
		if err := p.CheckEmpty(); err != nil || s.Retracted {
			t.Errorf("kind %d: %v, still retracted %v", kind, err, s.Retracted)
		}
	}
}

// vLLM enters blocks as they fill, those of a reply included: while a request decodes, the next turn of its
// conversation finds them, with the token of the step that is being formed. sglang enters a reply when it ends.
func TestReplyOfARunningRequest(t *testing.T) {
	for kind, want := range map[Prefixes]int64{RadixPages: 8, BlockPool: 12} {
		text := &trace.Text{}
		p, _ := newPool(kind)
		s, other := admit(p, text, 0, 8), admit(p, &trace.Text{}, 0, 4)
		for _, r := range []*Sequence{s, other} {
			r.Reply = text
			p.StartDecoding(r, 0)
		}
		p.StopDecoding(other, 0) // the reply of s is still looked for
		p.Decode(0, 1, 3)        // 11 tokens, and one in the step that is being formed
		expectMatch(t, p, &Sequence{Prompt: 40, Text: text}, 3, want, 0)
		p.StopDecoding(s, 3)
		p.Release(s)
		p.Release(other)
		if err := p.CheckEmpty(); err != nil {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

// What nobody holds is free, and evicted where requests need it.
func TestPrefixIsEvicted(t *testing.T) {
	p, stats := newPool(RadixPages)
	text := &trace.Text{}
	p.Release(admit(p, text, 0, 40))
	if p.Free() != 25 || p.Kept() != 10 {
		t.Errorf("%d pages free, %d kept, expected 25 and 10", p.Free(), p.Kept())
	}
	big := &Sequence{Prompt: 72} // 18 pages, so that 3 of the 10 have to go
	p.Grow(big, 72)
	expectMatch(t, p, &Sequence{Prompt: 41, Text: text}, 0, 28, 28)
	if got := p.Peek(text, 0, 40, 2); got != 20 || stats.EvictedPages != 5 { // 2 more for the steps under way
		t.Errorf("%d tokens kept, %d pages evicted, expected 20 and 5", got, stats.EvictedPages)
	}
	if p.Flush(); p.Kept() != 0 || stats.EvictedPages != 10 {
		t.Errorf("%d pages kept, %d evicted, expected 0 and 10", p.Kept(), stats.EvictedPages)
	}
}

// The memory of a step is allocated when the whole step is formed: a look at a waiting request's prompt until then
// counts as a use of it, although the requests of the step need the memory of the pages that were used longest ago.
func TestStepIsAllocatedAtItsEnd(t *testing.T) {
	p, stats := newPool(RadixNodes)
	old, recent := &trace.Text{}, &trace.Text{}
	p.Release(admit(p, old, 0, 40)) // 10 of 25 pages each
	p.Release(admit(p, recent, 0, 40))
	p.BeginStep()
	big := &Sequence{Prompt: 40}
	p.Grow(big, 40)
	expectMatch(t, p, &Sequence{Prompt: 41, Text: old}, 0, 40, 40)
	p.EndStep()
	if got := p.Peek(recent, 0, 40, 0); got != 0 || stats.EvictedPages != 10 {
		t.Errorf("%d tokens of the other prompt kept, %d pages evicted, expected 0 and 10", got, stats.EvictedPages)
	}
	if got := p.Peek(old, 0, 40, 0); got != 40 {
		t.Errorf("%d tokens kept of the prompt that was looked at, expected 40", got)
	}
	p.Release(big)
	if p.MakeFree(60); p.Kept() != 10 { // 15 pages are free
		t.Errorf("%d pages kept, expected 10", p.Kept())
	}
	if p.MakeFree(61); p.Kept() != 0 {
		t.Errorf("%d pages kept for a sixteenth free one, expected 0", p.Kept())
	}
}

// sglang evicts a reply without the prompt before it, also one that was inserted in one piece with it.
func TestReplyIsEvictedFirst(t *testing.T) {
	p, _ := newPool(RadixNodes)
	text := &trace.Text{}
	s := &Sequence{Prompt: 20, Text: text, Reply: text}
	p.LockPrefix(s, 39)
	p.Grow(s, 40) // its prompt and what it generated before it was retracted
	p.Release(s)
	p.MakeFree(64)
	if got := p.Peek(text, 0, 40, 0); got != 20 {
		t.Errorf("%d tokens kept, expected the 20 of the prompt", got)
	}
}

// An adapter that is loaded again is another one to sglang; vLLM knows it by its name.
func TestUnloadedPrefix(t *testing.T) {
	for kind, want := range map[Prefixes]int64{RadixPages: 0, RadixNodes: 0, BlockPool: 8} {
		text := &trace.Text{}
		p, _ := newPool(kind)
		p.Release(admit(p, text, 0, 8))
		p.UnloadAdapter(1)
		expectMatch(t, p, &Sequence{Prompt: 40, Text: text}, 0, 8, 8)
		p.UnloadAdapter(0)
		expectMatch(t, p, &Sequence{Prompt: 40, Text: text}, 0, want, want)
	}
}

// Without a prefix cache nothing is found or kept, and nothing breaks.
func TestNoPrefixes(t *testing.T) {
	text := &trace.Text{}
	p, _ := newPool(NoPrefixes)
	s := admit(p, text, 0, 8)
	expectMatch(t, p, &Sequence{Prompt: 40, Text: text}, 0, 0, 0)
	p.Release(s)
	p.UnloadAdapter(0)
	p.Flush()
	if p.Peek(text, 0, 8, 0) != 0 || p.Kept() != 0 || p.Free() != 25 {
		t.Errorf("%d pages kept, %d free, expected 0 and 25", p.Kept(), p.Free())
	}
}
