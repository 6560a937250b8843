package fit

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/sim/profile"
)

func tables(t *testing.T) *measured.HourTables {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kv_capacity.csv": "model,slots,rank,kv_tokens\nm,8,16,300000\nm,16,16,310000\nm,64,16,200000\nm,8,32,250000\nm,64,32,100000\n",
		"load_times.csv":  "model,adapter_rank,max_lora_rank,cpu_mean_ms,disk_mean_rest_ms\nm,8,8,6,30\nm,8,16,9,31\nm,16,16,8,50\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tab, err := measured.ReadHourTables(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestRootNear(t *testing.T) {
	for _, c := range []struct{ x, slope, root, want float64 }{
		{4, 2, 3, 3}, {4, 0.1, 1.2345, 1.235}, {4, 1, 9, 8}, {4, 1, -1, 0}, {4, 0, 3, 4}, {4, -1, 3, 4},
	} {
		if got := rootNear(c.x, func(x float64) float64 { return c.slope * (x - c.root) }); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A law gives the step times that are fitted; the fit gives back the law. All
// adapters of a run run at once here, so that their number is known.
func TestFitLawRecovers(t *testing.T) {
	tab := tables(t)
	law := profile.AdapterLaw{
		BaseMs: 13, PerRequestMs: 0.03, PerTokenUs: 25, PerKVTokenUs: 0.07, PerSlotUs: 8, PerWaitingUs: 0.5,
		ByRank: []profile.RankCost{
			{Rank: 16, PerAdapterMs: 0.4, PerAdapterTokenUs: 0.2, PerSlotTokenUs: 0.1},
			{Rank: 32, PerAdapterMs: 0.6, PerAdapterTokenUs: 0.1, PerSlotTokenUs: 0.15},
		},
	}
	var steps []StepTiming
	for _, b := range []float64{50, 100, 400, 800} {
		for _, kv := range []float64{55, 205} {
			steps = append(steps, StepTiming{Batch: b, KV: b * kv, Ms: 12 + 0.03*b + 0.00007*b*kv})
		}
	}
	steps = append(steps, StepTiming{Prompt: 2000, Ms: 12 + 50})
	const loadMs = 6.0
	var runs []measured.Hour
	var loads []float64
	for _, rank := range law.ByRank {
		for i, slots := range []int{8, 16, 32, 64, 8, 16, 32, 64, 24, 48} {
			adapters := 2 + i%5
			p := point{
				running: float64(40 + 37*i%200), slots: float64(slots), waiting: float64(i * i * 20),
				adapters: float64(adapters), loads: 0.1 * float64(i%3),
			}
			kv, err := tab.KVTokens("m", slots, rank.Rank)
			if err != nil {
				t.Fatal(err)
			}
			share := 0.1 + 0.05*float64(i)
			prompt := 10 + 3*float64(i%4)
			m := p.running + prompt
			ms := 13 + 0.03*p.running + 0.025*prompt + 0.00007*share*float64(kv) +
				p.adapters*(rank.PerAdapterMs+rank.PerAdapterTokenUs/1000*m) +
				p.slots*(0.008+rank.PerSlotTokenUs/1000*m) + 0.0005*p.waiting + loadMs*p.loads
			r := measured.Hour{HourSetup: measured.HourSetup{Model: "m", Slots: slots, MaxRank: rank.Rank},
				Rates: make([]float64, adapters), InRate: prompt / ms * 1000,
				Waiting: p.waiting, KVShare: share,
				Measured: measured.Values{measured.TPOT: ms, measured.Running: p.running}}
			for k := range r.Rates {
				r.Rates[k] = 1
			}
			runs, loads = append(runs, r), append(loads, p.loads)
		}
	}
	runs = append(runs, measured.Hour{
		HourSetup: measured.HourSetup{Model: "m", Slots: 8, MaxRank: 16}, Rates: []float64{1},
		Measured: measured.Values{},
		Waiting:  math.NaN(),
	})
	loads = append(loads, 9) // nothing completed: the run does not count
	fit, err := fitLaw(runs, loads, loadMs, tab, steps, profile.AdapterLaw{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.02*want {
			t.Errorf("%s is %v, expected %v", what, got, want)
		}
	}
	l := fit.law
	near("base", l.BaseMs, law.BaseMs)
	near("request", l.PerRequestMs, law.PerRequestMs)
	near("token", l.PerTokenUs, law.PerTokenUs)
	near("KV token", l.PerKVTokenUs, law.PerKVTokenUs)
	near("slot", l.PerSlotUs, law.PerSlotUs)
	near("waiting", l.PerWaitingUs, law.PerWaitingUs)
	for i, c := range l.ByRank {
		near("adapter", c.PerAdapterMs, law.ByRank[i].PerAdapterMs)
		near("adapter x token", c.PerAdapterTokenUs, law.ByRank[i].PerAdapterTokenUs)
		near("slot x token", c.PerSlotTokenUs, law.ByRank[i].PerSlotTokenUs)
	}
	if len(l.ByRank) != 2 || fit.runs.Runs != 20 || fit.runs.MedianAbsError > 0.001 || len(fit.held) != 0 {
		t.Errorf("%+v", fit)
	}
	// what the card allows bounds the cost of a KV token, and the fit goes on from there
	if fit, err = fitLaw(runs, loads, loadMs, tab, steps, profile.AdapterLaw{}, 0.08); err != nil ||
		fit.law.PerKVTokenUs != 0.08 || len(fit.bounded) != 1 {
		t.Errorf("a bound of 0.08 us: %+v, %v", fit, err)
	}
	start := profile.AdapterLaw{PerTokenUs: 31}
	if fit, err = fitLaw(runs, loads, loadMs, tab, steps[:8], start, 0); err != nil || fit.law.PerTokenUs != 31 ||
		len(fit.held) != 1 {
		t.Errorf("without timings of prompts: %+v, %v", fit, err)
	}
	if _, err = fitLaw(runs[:10], loads, loadMs, tab, steps, start, 0); err == nil ||
		!strings.Contains(err.Error(), "10 runs, expected at least 14") {
		t.Errorf("few runs: %v", err)
	}
	if _, err = fitLaw(runs, loads, loadMs, tab, steps[:5], start, 0); err == nil ||
		!strings.Contains(err.Error(), "5 step timings") {
		t.Errorf("few timings: %v", err)
	}
}

// Adapters of rates 3 and 1 beside 4 running requests: 1 - e^-3 and 1 - e^-1.
func TestDistinct(t *testing.T) {
	if got, want := distinct([]float64{3, 1}, 4, 8), 2-math.Exp(-3)-math.Exp(-1); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v distinct adapters, expected %v", got, want)
	}
	if got := distinct([]float64{3, 1}, 4, 1); got != 1 {
		t.Errorf("%v distinct adapters in one slot", got)
	}
}

// A size above that of fewer slots is another server's. From disk: 30 ms at
// rank 8, 50 at 16, so 10 ms and 2.5 ms per rank of 5 MB.
func TestSizes(t *testing.T) {
	p := profile.Default()
	if err := sizes(&p, "m", tables(t)); err != nil {
		t.Fatal(err)
	}
	if c := p.Memory.KVTable; len(c) != 2 || len(c[0].Slots) != 2 || c[0].Tokens[1] != 200000 || c[1].Rank != 32 {
		t.Errorf("curves %+v", c)
	}
	if a := p.Adapters; a.HostToGPU.LatencyMs != 7 || a.DiskToHost.LatencyMs != 10 || a.DiskToHost.GBPerS != 2 {
		t.Errorf("loads %+v", a)
	}
	if err := sizes(&p, "other", tables(t)); err == nil {
		t.Error("a model without sizes passes")
	}
}

const stepsHead = "model,max_loras,max_num_seqs,requests,output_len,in_tokens,steps,step_median_ms\n"

func TestReadStepTimings(t *testing.T) {
	got, err := ReadStepTimings(strings.NewReader(stepsHead+
		"m,,100,4096,200,20480,4202,14\n"+ // 5 prompt tokens, 100 more on average
		"m,,50,4096,1,860160,420,55\n"+
		"m,,50,4096,1,860160,100,55\n"+ // more tokens than a step takes
		"m,8,50,4096,1,860160,420,99\n"+ // with adapters
		"m,,50,64,1,1000,5,99\n"+ // too few requests
		"m,,50,4096,1,860160,,\n"), "t.csv")
	want := []StepTiming{{Batch: 100, KV: 10500, Ms: 14}, {Prompt: 2048, Ms: 55}, {Prompt: 2048, Ms: 55}}
	if err != nil || len(got["m"]) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, s := range got["m"] {
		if s != want[i] {
			t.Errorf("timing %d: %+v, expected %+v", i, s, want[i])
		}
	}
	for want, text := range map[string]string{
		`no column "max_loras"`:   "model\n",
		"expected a header line":  "",
		`t.csv:2: steps: "x"`:     stepsHead + "m,,100,4096,200,20480,x,14\n",
		`t.csv:2: requests: "-1"`: stepsHead + "m,,100,-1,200,20480,1,14\n",
	} {
		if _, err := ReadStepTimings(strings.NewReader(text), "t.csv"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected an error with %q", err, want)
		}
	}
}

func FuzzReadStepTimings(f *testing.F) {
	f.Add(stepsHead + "m,,100,4096,200,20480,4202,14\n")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ReadStepTimings(strings.NewReader(s), "fuzz")
		for _, steps := range got {
			for _, s := range steps {
				if err == nil && (!(s.Ms > 0) || !(s.Batch+s.Prompt > 0)) {
					t.Errorf("accepted %+v", s)
				}
			}
		}
	})
}
