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
			tokens := int64(0)
			for _, s := range prompts {
				tokens += int64(s.Computed)
			}
			for _, s := range decoding {
				tokens += s.Tokens(steps)
			}
			if err := p.Check(int64(len(decoding)), tokens); err != nil {
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
		if err := errors.Join(p.Check(0, 0), p.CheckEmpty()); err != nil {
			t.Fatal(err)
		}
	})
}

// Pages of 4 tokens, by hand.
func TestPages(t *testing.T) {
	p, _ := newPool(NoPrefixes)
	for tokens, want := range map[int64]int64{0: 0, 1: 1, 4: 1, 5: 2, 8: 2} {
		if got := p.Pages(tokens); got != want || p.RoundUp(tokens) != 4*want {
			t.Errorf("%d tokens take %d pages, %d rounded up; expected %d", tokens, got, p.RoundUp(tokens), want)
		}
	}
	for _, c := range [][3]int64{{0, 4, 1}, {3, 1, 0}, {4, 1, 1}, {3, 6, 2}} {
		if got := p.PagesFor(c[0], c[1]); got != c[2] {
			t.Errorf("a request of %d tokens takes %d pages to grow by %d, expected %d", c[0], got, c[1], c[2])
		}
	}
	if p.CapacityTokens() != 100 || p.FreeTokens() != 100 {
		t.Errorf("capacity %d, free %d, expected 100", p.CapacityTokens(), p.FreeTokens())
	}
	p.Reserve(5)
	if p.Reserved() != 5 || p.Free() != 23 || p.Stored() != 5 || p.FreeTokens() != 92 {
		t.Errorf("%d reserved, %d pages free, %d tokens stored, expected 5, 23 and 5", p.Reserved(), p.Free(),
			p.Stored())
	}
	if p.Reserve(-5); p.Reserved() != 0 || p.Free() != 25 || p.Stored() != 0 {
		t.Errorf("%d reserved, %d pages free, %d tokens stored, expected 0, 25 and 0", p.Reserved(), p.Free(),
			p.Stored())
	}
}

// As many decode steps fit as can be taken one by one until a page is missing.
func TestStepsThatFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int64{1, 4}).Draw(t, "page size")
		p := New(size*rapid.Int64Range(0, 12).Draw(t, "pages"), size, NoPrefixes, &CacheStats{})
		steps, batch := rapid.Int64Range(0, 9).Draw(t, "steps"), int64(0)
		for range rapid.IntRange(0, 4).Draw(t, "requests") {
			s := &Sequence{Prompt: rapid.Int32Range(1, 9).Draw(t, "prompt")}
			if p.Pages(int64(s.Prompt)) <= p.Free() {
				p.Grow(s, int64(s.Prompt))
				p.StartDecoding(s, steps)
				batch++
			}
		}
		limit := rapid.Int64Range(0, 30).Draw(t, "limit")
		got, k := p.StepsThatFit(steps, batch, limit), int64(0)
		for need := p.DecodePages(steps, batch, got); k < limit && p.StepNeed(steps+k) <= p.Free(); k++ {
			need -= p.StepNeed(steps + k)
			if p.Decode(steps+k, batch, 1); k == got-1 && need != 0 {
				t.Fatalf("%d steps are to take %d pages more than they do", got, need)
			}
		}
		if got != k {
			t.Fatalf("%d of %d steps fit, expected %d", got, limit, k)
		}
	})
}

// Each broken count is an error of its own.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Pool){
		"decoding request not counted": func(p *Pool) { p.at[0]-- },
		"count below 0":                func(p *Pool) { p.at[0]--; p.at[1]++ },
		"more used than there is":      func(p *Pool) { p.used = p.capacity + 1 },
		"pages below 0":                func(p *Pool) { p.used = -1 },
		"tokens of nobody":             func(p *Pool) { p.tokens = 1 },
		"reserved below 0":             func(p *Pool) { p.reserved, p.tokens = -1, -1 },
		"shared without holders":       func(p *Pool) { p.shared = 1 },
	} {
		p, _ := newPool(RadixPages)
		if err := p.Check(0, 0); err != nil {
			t.Fatal(err)
		}
		if spoil(p); p.Check(0, 0) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, spoil := range map[string]func(*Pool){
		"used": func(p *Pool) { p.used = 1 }, "tokens": func(p *Pool) { p.tokens = 1 },
		"shared": func(p *Pool) { p.shared = 1 }, "reserved": func(p *Pool) { p.reserved = 1 },
		"holds":   func(p *Pool) { p.holds = 1 },
		"replies": func(p *Pool) { p.replies = map[*trace.Text][]*Sequence{nil: nil} },
		"held":    func(p *Pool) { admit(p, &trace.Text{}, 0, 8); p.used, p.tokens, p.holds = 0, 0, 0 },
	} {
		p, _ := newPool(RadixPages)
		if err := p.CheckEmpty(); err != nil {
			t.Fatal(err)
		}
		if spoil(p); p.CheckEmpty() == nil {
			t.Errorf("%s left: no error", name)
		}
	}
}
