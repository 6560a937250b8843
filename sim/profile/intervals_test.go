package profile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// validated are the intervals of runs with 1 to 2 workers, 8 to 32 slots, two
// ways of loading, and loads of their own.
func validated(base *Profile) *Intervals {
	var runs []ValidatedRun
	for i, slots := range []int{16, 8, 32, 16} {
		p := *base
		p.Engine.MaxLorasPerBatch = slots
		p.Adapters.DiskToHost.LatencyMs++
		if i == 2 {
			p.Engine.AdapterLoading = LoadOverlapped
		}
		runs = append(runs, ValidatedRun{1 + i%2, []string{"static", "least-loaded:ties=first"}[i%2], &p, 1000 - i,
			4 + i, 300.5 + float64(i), 120, false})
	}
	return NewIntervals(base, runs)
}

func TestNewIntervals(t *testing.T) {
	base, err := Load(t.Context(), "llama-2-7b-rtx-4090-sglang-0.5") // 8 slots
	if err != nil {
		t.Fatal(err)
	}
	in := validated(base)
	want := map[string][]string{"engine.max_loras_per_batch": {"8", "32"}, "engine.adapter_loading": {LoadBlocking,
		LoadOverlapped}}
	if in.Workers != 2 || !reflect.DeepEqual(in.Policies, []string{"least-loaded", "static"}) ||
		!reflect.DeepEqual(in.Settings, want) ||
		in.Workload != (Workload{997, 7, [2]float64{300, 304}, [2]float64{120, 120}, false}) {
		t.Errorf("%+v", in)
	}
}

// compare is what Compare says, refusals with a "!".
func compare(in *Intervals, r ValidatedRun, base *Profile) string {
	all, refused := in.Compare(r, base)
	for _, why := range refused {
		all = append(all, "! "+why)
	}
	return strings.Join(all, "; ")
}

func TestIntervalsCompare(t *testing.T) {
	base, err := Load(t.Context(), "llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	in := validated(base)
	run := func(workers int, policy string) ValidatedRun {
		p := *base
		return ValidatedRun{workers, policy, &p, 1000, 4, 300, 120, false}
	}
	for name, c := range map[string]struct {
		workers int
		policy  string
		change  func(r *ValidatedRun)
		want    string // "": nothing
	}{
		"as validated": {2, "static", func(r *ValidatedRun) { r.Profile.Engine.MaxLorasPerBatch = 20 }, ""},
		"fewest slots": {1, "", func(r *ValidatedRun) { r.Profile.Engine.MaxLorasPerBatch = 8 }, ""},
		"most slots":   {1, "", func(r *ValidatedRun) { r.Profile.Engine.MaxLorasPerBatch = 32 }, ""},
		"one worker":   {1, "any", func(*ValidatedRun) {}, ""},
		"workers":      {3, "least-loaded", func(*ValidatedRun) {}, "3 workers (validated with 2)"},
		"policy":       {2, "p2c:x=1", func(*ValidatedRun) {}, "policy p2c (validated with least-loaded, static)"},
		"a number": {1, "", func(r *ValidatedRun) { r.Profile.Engine.MaxLorasPerBatch = 64 },
			"engine.max_loras_per_batch 64 (validated with 8 to 32)"},
		"a choice": {1, "", func(r *ValidatedRun) { r.Profile.Engine.AdapterLoading = "other" },
			"engine.adapter_loading other (validated with blocking, overlapped)"},
		"another key": {1, "", func(r *ValidatedRun) { r.Profile.Engine.PageSize = 64 },
			"engine.page_size 64 (validated with 1)"},
		"one of two": {1, "", func(r *ValidatedRun) {
			r.Profile.Engine.MaxLorasPerBatch,
				r.Profile.Engine.PageSize = 20, 64
		}, "engine.page_size 64 (validated with 1)"},
		"the scheduler": {1, "", func(r *ValidatedRun) { r.Profile.Engine.UseVLLM() },
			"! The run has engine.scheduler vllm, with which the profile was not validated (sglang)."},
		"the backend": {1, "", func(r *ValidatedRun) { r.Profile.Latency.LoRA.Backend = BackendTriton },
			"! The run has latency.lora.backend triton, with which the profile was not validated (csgmv)."},
		// the runs had 997 requests and more, up to 7 adapters, prompts of 300 to 304 tokens
		"half and twice": {1, "", func(r *ValidatedRun) {
			r.Requests, r.Adapters, r.Prompt, r.Output = 499, 14, 608,
				60
		}, ""},
		"more, fewer": {1, "", func(r *ValidatedRun) {
			r.Requests, r.Adapters, r.Prompt, r.Output = 1e6, 1, 150,
				240
		}, ""},
		"requests": {1, "", func(r *ValidatedRun) { r.Requests = 498 },
			"498 requests (validated with 997 and more)"},
		"adapters": {1, "", func(r *ValidatedRun) { r.Adapters = 15 }, "15 adapters (validated with 7)"},
		"long prompts": {1, "", func(r *ValidatedRun) { r.Prompt = 609 },
			"a mean prompt of 609 tokens (validated with 300 to 304)"},
		"short outputs": {1, "", func(r *ValidatedRun) { r.Output = 59 },
			"a mean output of 59 tokens (validated with 120 to 120)"},
		"a quarter": {1, "", func(r *ValidatedRun) { r.Requests, r.Prompt = 249, 76 },
			"a mean prompt of 76 tokens (validated with 300 to 304); " +
				"! The run has 249 requests, less than a quarter of the 997 of the shortest validated run."},
		"four times": {1, "", func(r *ValidatedRun) { r.Prompt = 1217 },
			"! The mean prompt has 1217 tokens, more than 4 times off the 300 to 304 of the validated runs."},
		"a window": {1, "", func(r *ValidatedRun) { r.Window = true },
			"a run that ends after its window (validated with runs until all requests end)"},
		"a new choice": {1, "", func(r *ValidatedRun) { r.Profile.Engine.SchedulePolicy = "priority" },
			"engine.schedule_policy priority (validated with none)"},
		// for which there is a reason already
		"no success": {1, "", func(r *ValidatedRun) { r.Prompt, r.Output = 0, 0 }, ""},
	} {
		r := run(c.workers, c.policy)
		c.change(&r)
		for range 8 { // settings are looked at in any order
			if got := compare(in, r, base); got != c.want {
				t.Errorf("%s: %q, expected %q", name, got, c.want)
			}
		}
	}
	in.Workload.Window = true
	want := "a run until all requests end (validated with runs that end after a window)"
	if got := compare(in, run(1, ""), base); got != want {
		t.Errorf("without a window: %q", got)
	}
	for name, edit := range map[string]func(p *Profile){
		"a coefficient": func(p *Profile) { p.Latency.Decode.BaseMs++ },
		"an engine":     func(p *Profile) { p.Engine.MaxRunningRequests *= 4 },
		"a switch":      func(p *Profile) { p.Engine.PrefixCache = true },
	} {
		r := run(1, "")
		edit(r.Profile)
		if got := compare(in, r, r.Profile); !strings.HasPrefix(got, "! Profile ") ||
			!strings.Contains(got, "was changed") {
			t.Errorf("of a profile with %s edited: %q", name, got)
		}
	}
}

// Where step times depend on slots, up to twice as many as validated extrapolate.
func TestFarSlots(t *testing.T) {
	base, err := Embedded("llama-3.1-8b-h100-64gb-vllm-0.8.5") // validated with 8 to 192 slots of rank 16 to 32
	if err != nil {
		t.Fatal(err)
	}
	in, w := base.Intervals, base.Intervals.Workload
	for _, c := range []struct {
		slots, rank int
		want        string
	}{
		{192, 16, ""}, {384, 16, "engine.max_loras_per_batch 384 (validated with 8 to 192)"},
		{4, 8, "engine.max_lora_rank 8 (validated with 16 to 32); engine.max_loras_per_batch 4 (validated with 8 to 192)"},
		{385, 16, "! The run has engine.max_loras_per_batch 385, with which the profile was not validated (8 to 192)."},
		{3, 16, "! The run has engine.max_loras_per_batch 3, with which the profile was not validated (8 to 192)."},
		{8, 65, "! The run has engine.max_lora_rank 65, with which the profile was not validated (16 to 32)."},
	} {
		p := *base
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = c.slots, c.rank
		if got := compare(in, ValidatedRun{1, "", &p, w.Requests, 8, 220, 195, true}, base); got != c.want {
			t.Errorf("%d slots of rank %d: %q, expected %q", c.slots, c.rank, got, c.want)
		}
	}
}

// Bounds lie twice as far from the prediction, on a logarithmic scale, and hold it.
func TestWidened(t *testing.T) {
	b := Band{Metric: "m", Half: &[2]float64{1.1, 1.2}, Most: &[2]float64{0.5, 3}}
	w := b.Widened()
	if *w.Half != [2]float64{1, 1.44} || *w.Most != [2]float64{0.25, 9} || w.Metric != "m" ||
		*b.Most != [2]float64{0.5, 3} {
		t.Errorf("%v and %v, of %v and %v", *w.Half, *w.Most, *b.Half, *b.Most)
	}
	if w = (Band{Most: &[2]float64{0.5, 0.8}}).Widened(); w.Half != nil || *w.Most != [2]float64{0.25, 1} {
		t.Errorf("%v and %v", w.Half, *w.Most)
	}
}

// Embedded intervals belong to the profile that they stand in, are checked, and
// tell the classes of load apart.
func TestEmbeddedIntervals(t *testing.T) {
	with := 0
	for _, name := range Names() {
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		in := p.Intervals
		if in == nil {
			continue
		}
		with++
		w := in.Workload
		if why := compare(in, ValidatedRun{1, "", p, w.Requests, w.Adapters, w.Prompt[0], w.Output[1], w.Window},
			p); why != "" {
			t.Errorf("%s: %q", name, why)
		}
		n := 0
		for _, w := range []float64{0, 0.5, 0.99, 1} {
			n += len(in.At(w))
		}
		saturated := slices.ContainsFunc(in.Bands, func(b Band) bool { return b.Waiting[1] == 1 })
		if last := len(in.At(0.99)); (last > 0) != saturated || n != len(in.Bands)+last {
			t.Errorf("%s: of %d bands %d are found", name, len(in.Bands), n)
		}
	}
	if with == 0 {
		t.Error("no profile has intervals")
	}
}

// Near saturation no range of an embedded profile is narrower than where workers
// keep up, and those of the times that a queue makes are wider. Every range says of
// how many runs it is, and no more than its runs support.
func TestEmbeddedIntervalsWiden(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Intervals == nil {
			continue
		}
		at := func(waiting float64) map[string]Band {
			out := map[string]Band{}
			for _, b := range p.Intervals.At(waiting) {
				out[b.Metric] = b
				if b.Most == nil || b.Level > 0.9 || b.Level > (b.Runs+0.05)/(b.Runs+1.05) || b.Half != nil &&
					(b.Half[0] < b.Most[0] || b.Half[1] > b.Most[1]) {
					t.Errorf("%s: %+v", name, b)
				}
			}
			return out
		}
		low, near := at(0), at(0.5)
		at(1)
		if len(low) < 4 || len(near) < 3 {
			t.Errorf("%s: %d metrics where workers keep up, %d near saturation", name, len(low), len(near))
		}
		for metric, n := range near {
			l, queued := low[metric], strings.Contains(metric, "e2e") || strings.Contains(metric, "ttft")
			for _, r := range [][2]*[2]float64{{l.Half, n.Half}, {l.Most, n.Most}} {
				if n.Runs < minHeldOut { // at a lower level
					continue
				}
				if was, is := r[0][1]/r[0][0], r[1][1]/r[1][0]; is < was || queued && is == was {
					t.Errorf("%s: %s is within %v near saturation, within %v where workers keep up", name, metric,
						*r[1], *r[0])
				}
			}
		}
	}
}

func TestIntervalsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"{metric: duration, waiting: [0, 0.1], runs: 0}":   "entry 1: expected a metric",
		"{waiting: [0, 0.1], runs: 3}":                     "expected a metric",
		"{metric: duration, waiting: [0.1, 0.1], runs: 3}": "[FROM, BELOW]",
		"{metric: duration, waiting: [0, 1], runs: 30, " +
			"most: [1.1, 0.9], level: 0.9}": "entry 1: [1.1 0.9], expected [LOW, HIGH]",
		"{metric: duration, waiting: [0, 1], runs: 30, half: [.nan, 0.9]}":             "[LOW, HIGH]",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [0.9, 1.1]}":              "level 0",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [0.9, 1.1], level: 1}":    "level 1",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [0.9, 1.1], level: .nan}": "level NaN",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [0.9, 1.1], x: 1}":        "x",
	} {
		_, err := Parse([]byte("name: m\nlatency: {decode: {base_ms: 1}, prefill: {base_ms: 1}}\n"+
			"memory: {kv_tokens: 9999}\nintervals: {bands: ["+text+"]}\n"), "m.yaml")
		testutil.ExpectError(t, err, want, "m.yaml")
	}
}
