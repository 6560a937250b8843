package synth_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/synth"
)

// converse makes n turns at 10 a second.
func converse(t *testing.T, spec string, n, seed int64) []trace.Request {
	t.Helper()
	law, err := synth.ParseConversations(spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg := synth.Default()
	cfg.Adapters, cfg.Seed, cfg.Rate = 4, uint64(seed), 10/law.MeanTurns()
	going := cfg
	going.Rate, going.Requests = math.Inf(1), 1e9
	starts, err := synth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := synth.ConverseOptions{Lengths: lengths.Constant{Prompt: 50, Output: 100}, Rate: cfg.Rate, Requests: n,
		Seed: uint64(seed)}
	if o.Going, err = synth.New(going); err != nil {
		t.Fatal(err)
	}
	src, err := synth.Converse(starts, law, o)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil || int64(len(w.Requests)) != n {
		t.Fatalf("%d requests, expected %d, error %v", len(w.Requests), n, err)
	}
	for i, r := range w.Requests {
		if err := r.Check(4); err != nil || i > 0 && r.Arrival < w.Requests[i-1].Arrival || r.ID != int64(i) ||
			float64(r.Prompt+r.Output) > law.Context || float64(r.Prompt) <= law.System ||
			r.Text.Known(r.Prompt) != r.Prompt {
			t.Fatalf("request %d is %+v, error %v", i, r, err)
		}
	}
	return w.Requests
}

// TestConversationTurns: a turn goes on with all of the turn before, or all but its
// reply, after the adapter's system prompt.
func TestConversationTurns(t *testing.T) {
	for _, c := range []struct {
		spec  string
		reply int32
	}{{"chat:new_sigma=0,new=20,system=300,context=100000", 100},
		{"chat:new_sigma=0,new=20,system=300,replies=0,context=100000", 0}} {
		systems := map[int32]*trace.Text{}
		last := map[*trace.Text]int32{}
		later := 0
		for _, r := range converse(t, c.spec, 5000, 1) {
			if s := systems[r.Adapter]; s != nil && s != r.Text.Parent || r.Text.Parent == nil || r.Text.Start != 300 {
				t.Fatalf("%s: request %d does not follow the system prompt of its adapter", c.spec, r.ID)
			}
			systems[r.Adapter] = r.Text.Parent
			if (r.Reply == r.Text) != (c.reply > 0) {
				t.Fatalf("%s: request %d has the reply %v", c.spec, r.ID, r.Reply)
			}
			if before := last[r.Text]; before > 0 {
				later++
				if r.Prompt != before+c.reply+21 {
					t.Fatalf("%s: request %d has a prompt of %d tokens after one of %d", c.spec, r.ID, r.Prompt, before)
				}
			}
			last[r.Text] = r.Prompt
		}
		if later < 2000 {
			t.Errorf("%s: %d later turns", c.spec, later)
		}
	}
}

// TestConversationRate: in the steady state from the first second on, with the
// turns and the time between them that are asked for.
func TestConversationRate(t *testing.T) {
	rs := converse(t, "chat:think=20,think_sigma=1,pace=0", 40000, 2)
	at := func(i int) float64 { return rs[i].Arrival }
	for _, part := range [][2]int{{0, 4000}, {4000, 20000}, {20000, 39999}} {
		if rate := float64(part[1]-part[0]) / (at(part[1]) - at(part[0])); math.Abs(rate-10) > 0.6 {
			t.Errorf("requests %v come at %.2f/s, expected 10", part, rate)
		}
	}
	turns, last := map[*trace.Text]float64{}, map[*trace.Text]float64{}
	var gaps []float64
	for _, r := range rs {
		if before, ok := last[r.Text]; ok {
			gaps = append(gaps, r.Arrival-before)
		}
		turns[r.Text]++
		last[r.Text] = r.Arrival
	}
	if mean := float64(len(rs)) / float64(len(turns)); math.Abs(mean-3.5) > 0.15 {
		t.Errorf("%.2f turns a conversation, expected 3.5", mean)
	}
	slices.Sort(gaps)
	if p50, p84 := gaps[len(gaps)/2], gaps[len(gaps)*84/100]; math.Abs(p50-20) > 1 || math.Abs(p84-20*math.E) > 4 {
		t.Errorf("think times have the percentiles %.1f and %.1f, expected 20 and %.1f", p50, p84, 20*math.E)
	}
}

// TestConversationsBeginInTheSteadyState: replies that take longer than the think time are part of the gaps, so
// conversations wait for them at time 0, too.
func TestConversationsBeginInTheSteadyState(t *testing.T) {
	const seeds, seconds = 20, 12
	early := 0
	for seed := range int64(seeds) {
		for _, r := range converse(t, "chat:think=2,think_sigma=0.5,pace=0.1", 300, 10+seed) {
			if r.Arrival < seconds {
				early++
			}
		}
	}
	if rate := float64(early) / (seeds * seconds); math.Abs(rate-10) > 0.7 {
		t.Errorf("requests come at %.2f/s in the first %d s, expected 10", rate, seconds)
	}
}

// TestConversationBranches: edits repeat what came before the message that they
// replace; what does not fit the context begins anew after the system prompt.
func TestConversationBranches(t *testing.T) {
	edits, later := 0, 0
	seen := map[*trace.Text]trace.Request{}
	for _, r := range converse(t, "chat:new_sigma=0,edits=0.5,context=100000", 5000, 3) {
		if _, ok := seen[r.Text]; ok {
			later++
		} else if parent, ok := seen[r.Text.Parent]; ok {
			edits, later = edits+1, later+1
			if back := parent.Prompt - r.Text.Start; back != 21 && back != 50 || r.Prompt != r.Text.Start+21 {
				t.Fatalf("request %d branches off at %d of %d tokens", r.ID, r.Text.Start, parent.Prompt)
			}
		}
		seen[r.Text] = r
	}
	if share := float64(edits) / float64(later); later < 2000 || math.Abs(share-0.5) > 0.05 {
		t.Errorf("%d of %d later turns are edits, expected half", edits, later)
	}
	long := 0
	for _, r := range converse(t, "agents:system=100,context=1000,turns=30", 2000, 4) {
		if r.Prompt == 500 {
			long++
			if r.Text.Start != 100 || r.Text.Parent == nil || r.Text.Parent.Parent != nil || seen[r.Text].Text != nil {
				t.Fatalf("request %d repeats more than the system prompt: %+v", r.ID, r.Text)
			}
		}
		seen[r.Text] = r
	}
	if long < 100 {
		t.Errorf("%d prompts are cut to half of what there is room for", long)
	}
}

// TestConversationSeed: a seed says all.
func TestConversationSeed(t *testing.T) {
	bare := func(seed int64) []trace.Request {
		rs := converse(t, "documents", 500, seed)
		for i := range rs {
			rs[i].Text, rs[i].Reply = &trace.Text{ID: rs[i].Text.ID}, nil
		}
		return rs
	}
	same := func(a, b trace.Request) bool {
		a.Text, b.Text, a.ID, b.ID = nil, nil, a.Text.ID, b.Text.ID
		return a == b
	}
	a := bare(5)
	if !slices.EqualFunc(a, bare(5), same) || slices.EqualFunc(a, bare(6), same) {
		t.Error("expected the same of the same seed and something else of another")
	}
}

func TestParseConversations(t *testing.T) {
	for _, spec := range []string{"chat", "documents:think=60,shared=1", "agents:turns=20,turns_sigma=0", ""} {
		if c, err := synth.ParseConversations(spec); err != nil || c.Turns == 20 != strings.Contains(spec, "turns=20") {
			t.Errorf("%q is %+v, error %v", spec, c, err)
		}
	}
	for _, spec := range []string{"talk", "chat:turns=0", "chat:turns", "chat:replies=0.5", "chat:system=3000",
		"chat:x=1", "chat:think=1,think=2"} {
		if _, err := synth.ParseConversations(spec); err == nil {
			t.Errorf("no error for %q", spec)
		}
	}
}
