package resample

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// recorded is a workload of n sessions of one to four turns, with a system prompt
// for each of 3 adapters. The prompt tokens of a request are its number, so that a
// copy tells which it is of.
func recorded(n int, seed uint64) *trace.Workload {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &trace.Workload{Adapters: trace.Names(3, []int{8, 16, 32})}
	at := 5.0
	for s := range n {
		at += rng.ExpFloat64()
		turn, text := at, &trace.Text{Parent: &trace.Text{ID: 1}, Start: 0, ID: int64(10 + s)}
		a := int32(rng.IntN(4)) - 1
		if a >= 0 {
			text.Parent = systems[a]
		}
		for range 1 + rng.IntN(4) {
			w.Requests = append(w.Requests, trace.Request{Arrival: turn, Adapter: a, Output: 1, Text: text,
				Reply: text})
			turn += 3 * rng.ExpFloat64()
		}
	}
	slices.SortStableFunc(w.Requests, func(a, b trace.Request) int {
		return int(math.Copysign(1, a.Arrival-b.Arrival))
	})
	for i := range w.Requests {
		w.Requests[i].ID, w.Requests[i].Prompt = int64(i), int32(i+1)
	}
	return w
}

var systems = []*trace.Text{{ID: 2}, {ID: 3}, {ID: 4}}

func draw(t interface{ Fatal(...any) }, w *trace.Workload, spec string, seed uint64) *trace.Workload {
	s, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Draw(w, s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func spanOf(w *trace.Workload) float64 {
	n := float64(len(w.Requests))
	return (w.Requests[len(w.Requests)-1].Arrival - w.Requests[0].Arrival) * n / (n - 1)
}

// Whatever is drawn is a workload: ids from 0 on, in the order of arrival, within
// the time of the recorded one, and each request is a copy of a recorded one.
func TestDrawnIsAWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := recorded(rapid.IntRange(5, 60).Draw(t, "sessions"), rapid.Uint64().Draw(t, "workload"))
		spec := rapid.SampledFrom([]string{"block:0.5", "block:2", "sessions", "sessions:2", "adapters"}).Draw(t,
			"spec")
		seed := rapid.Uint64().Draw(t, "seed")
		before := slices.Clone(w.Requests)
		s, _ := Parse(spec)
		d, err := Draw(w, s, seed)
		if err != nil {
			return // no request
		}
		for i, r := range d.Requests {
			of := w.Requests[r.Prompt-1]
			switch {
			case r.ID != int64(i), r.Arrival < 0, r.Arrival >= spanOf(w), i > 0 && r.Arrival < d.Requests[i-1].Arrival:
				t.Fatalf("request %d: %+v", i, r)
			case r.Check(len(d.Adapters)) != nil, r.Output != of.Output, spec != "adapters" && r.Adapter != of.Adapter:
				t.Fatalf("request %d: %+v of %+v", i, r, of)
			case r.Text != r.Reply, r.Text.Start != of.Text.Start, of.Adapter >= 0 && r.Text.Parent.ID < 10 &&
				r.Text.Parent != of.Text.Parent:
				t.Fatalf("request %d: its text is %+v, of %+v", i, r.Text, of.Text)
			}
		}
		if !slices.Equal(before, w.Requests) {
			t.Fatal("the recorded workload has changed")
		}
	})
}

// Within a block the requests are those of one stretch of the record, with their
// gaps, and different blocks share no text but system prompts.
func TestBlocksKeepGaps(t *testing.T) {
	const length = 10.0
	w := recorded(200, 3)
	d := draw(t, w, "block:10", 1)
	n, span := len(w.Requests), spanOf(w)
	blockOf := map[*trace.Text]int{}
	for i, r := range d.Requests {
		k := int(r.Arrival / length)
		if was, seen := blockOf[r.Text]; seen && was != k {
			t.Fatalf("request %d shares a text with block %d", i, was)
		}
		blockOf[r.Text] = k
		if i == 0 || int(d.Requests[i-1].Arrival/length) != k {
			continue
		}
		last, this := d.Requests[i-1], int(r.Prompt-1)
		if this != int(last.Prompt)%n {
			t.Fatalf("request %d of the block is number %d of the record, after %d", i, this, last.Prompt-1)
		}
		gap := w.Requests[this].Arrival - w.Requests[last.Prompt-1].Arrival
		if this == 0 {
			gap += span
		}
		if math.Abs(r.Arrival-last.Arrival-gap) > 1e-9 {
			t.Fatalf("gap before request %d is %v, want %v", i, r.Arrival-last.Arrival, gap)
		}
	}
}

// A drawn session has all of its turns with the times between them; two copies have
// no text in common but the system prompt.
func TestSessionsAreWhole(t *testing.T) {
	w := recorded(150, 4)
	d := draw(t, w, "sessions", 2)
	span := spanOf(w)
	count := make([]int, len(w.Requests))
	starts := map[*trace.Text][]float64{}
	for _, r := range d.Requests {
		count[r.Prompt-1]++
		of := w.Requests[r.Prompt-1]
		offset := r.Arrival - of.Arrival // the same for all turns, but for those beyond the end
		starts[r.Text] = append(starts[r.Text], math.Mod(offset+10*span, span))
	}
	texts := map[*trace.Text]int{}
	for i, r := range w.Requests {
		if was, seen := texts[r.Text]; seen && was != count[i] {
			t.Fatalf("turns of a session have %d and %d copies", was, count[i])
		}
		texts[r.Text] = count[i]
	}
	for x, at := range starts {
		for _, o := range at {
			if d := math.Abs(o - at[0]); d > 1e-6 && math.Abs(d-span) > 1e-6 {
				t.Fatalf("turns of text %d have moved by %v", x.ID, at)
			}
		}
	}
	if slices.Max(count) < 2 || slices.Min(count) > 0 {
		t.Error("some sessions should be drawn twice and some not at all")
	}
}

// A drawn adapter has the requests, the rank and the priority of its original.
func TestAdaptersAreWhole(t *testing.T) {
	w := recorded(100, 5)
	w.Adapters = append(w.Adapters, trace.Adapter{Name: "idle", Rank: 64, Priority: 3})
	perAdapter := map[int32][]int32{}
	for _, r := range w.Requests {
		perAdapter[r.Adapter] = append(perAdapter[r.Adapter], r.Prompt)
	}
	twice := false
	for seed := range uint64(20) {
		d := draw(t, w, "adapters", seed)
		got := map[int32][]int32{}
		for _, r := range d.Requests {
			got[r.Adapter] = append(got[r.Adapter], r.Prompt)
		}
		if !slices.Equal(got[-1], perAdapter[-1]) || len(d.Adapters) != len(w.Adapters) {
			t.Fatalf("%d adapters; base model: %v", len(d.Adapters), got[-1])
		}
		names := map[string]bool{}
		for k, a := range d.Adapters {
			of := slices.IndexFunc(w.Adapters, func(b trace.Adapter) bool { return b.Rank == a.Rank })
			slices.Sort(got[int32(k)])
			if names[a.Name] || of < 0 || a.Priority != w.Adapters[of].Priority ||
				!slices.Equal(got[int32(k)], perAdapter[int32(of)]) {
				t.Fatalf("adapter %d, %+v: %v", k, a, got[int32(k)])
			}
			twice = twice || a.Name == w.Adapters[of].Name+"#2"
			names[a.Name] = true
		}
	}
	if !twice {
		t.Error("no adapter was drawn twice")
	}
}

func TestSeeds(t *testing.T) {
	w := recorded(80, 6)
	for _, spec := range []string{"block:10", "sessions", "sessions:3", "adapters"} {
		a, b, c := draw(t, w, spec, 1), draw(t, w, spec, 1), draw(t, w, spec, 2)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: one seed gives two workloads", spec)
		}
		if reflect.DeepEqual(a.Requests, c.Requests) {
			t.Errorf("%s: two seeds give one workload", spec)
		}
	}
}

// Conversations of a trace of blocks: turns go on with all full blocks of the
// prompt before; a system prompt, which many prompts go on with, joins none.
func TestSessionsOfBlocks(t *testing.T) {
	b := trace.Blocks{Tokens: 16}
	prompt := func(tokens int32, ids ...int64) trace.Request {
		x, err := b.Text(ids, tokens)
		if err != nil {
			t.Fatal(err)
		}
		return trace.Request{Prompt: tokens, Text: x}
	}
	got := sessionsByPrompt([]trace.Request{
		prompt(16, 0),                          // 0: the system prompt alone
		prompt(40, 0, 1, 2),                    // 1: a conversation
		prompt(40, 0, 3, 4),                    // 2: another one
		prompt(90, 0, 1, 5, 6, 7, 8),           // 1 goes on
		{Prompt: 9},                            // 3: nothing is known
		prompt(30, 0, 9),                       // 4: its last block is not full, so that only the system prompt is
		prompt(120, 0, 1, 5, 6, 7, 10, 11, 12), // 1 goes on
		prompt(60, 0, 3, 13, 14),               // 2 goes on
	})
	if want := []int32{0, 1, 2, 1, 3, 4, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("sessions %v, want %v", got, want)
	}
}

func TestParse(t *testing.T) {
	for _, ok := range []string{"block:60", "block:0.5", "sessions", "sessions:300", "adapters"} {
		if s, err := Parse(ok); err != nil || s.String() != ok {
			t.Errorf("%s: %+v, %v", ok, s, err)
		}
	}
	for bad, want := range map[string]string{
		"":            `unknown resample ""`,
		"blok:60":     `unknown resample "blok", did you mean "block"? (known: block, sessions, adapters)`,
		"block":       "resample block: seconds is missing (length of a block, as in block:60)",
		"block:":      "seconds is missing",
		"block:-1":    `seconds: "-1" is not a number from 1e-06 to 1000000000`,
		"block:NaN":   "not a number",
		"block:inf":   "not a number",
		"sessions:0":  `pause: "0" is not a number`,
		"adapters:32": `"32", expected no options`,
	} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

func TestTags(t *testing.T) {
	for _, f := range Forms() {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	w := recorded(20, 1)
	for _, c := range []struct {
		w          *trace.Workload
		spec, want string
	}{
		{&trace.Workload{Requests: []trace.Request{{Arrival: 3}, {Arrival: 3}}}, "block:1", "2 requests at one time"},
		{&trace.Workload{}, "adapters", "0 requests at one time"},
		{w, "block:1000", "expected at most half of that"},
		{&trace.Workload{Requests: []trace.Request{{}, {Arrival: 3}}}, "sessions", "give sessions:SECONDS"},
		{&trace.Workload{Requests: []trace.Request{{}, {Arrival: 3}}}, "adapters", "no adapters"},
	} {
		s, _ := Parse(c.spec)
		if _, err := Draw(c.w, s, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.spec, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"block:60", "sessions", "sessions:300", "adapters", "block:1e-6", "block:0x1p3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%q is %+v, which is read as %+v, %v", text, s, again, err)
		}
	})
}
