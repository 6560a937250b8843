package advise

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/bench/study/tune"
	"lorasim/router"
	"lorasim/router/epp"
)

// artificial samples configurations whose true score is known: score of a configuration's numbers, plus noise that
// all share on a seed, plus noise of the run.
func artificial(t *testing.T, score func(value map[string]float64) float64, noise float64) sampler {
	return func(stream int, wants []want) ([][]Figures, error) {
		out := make([][]Figures, len(wants))
		for i, w := range wants {
			c, err := epp.ReadPickerConfig(t.Context(), w.Spec)
			if err != nil {
				t.Fatal(err)
			}
			value := map[string]float64{}
			for _, n := range c.Config.Numbers(DefaultAdd...) {
				value[n.Name()] = n.Value
			}
			for seed := w.From; seed < w.To; seed++ {
				common := rand.New(rand.NewPCG(uint64(stream), uint64(seed))).NormFloat64()
				own := rand.New(rand.NewPCG(uint64(stream*1000+seed), hash(w.Spec))).NormFloat64()
				out[i] = append(out[i], Figures{Score: score(value) + 0.2*common + noise*own})
			}
		}
		return out, nil
	}
}

// newArtificial is a tuner of the default configuration, before any run.
func newArtificial(t *testing.T, sample sampler, left func() int64) *tuner {
	t.Helper()
	config, err := epp.ReadPickerConfig(t.Context(), "epp")
	if err != nil {
		t.Fatal(err)
	}
	base := &contestant{Candidate: Candidate{"epp"}}
	tn := &tuner{Tuned: &Tuned{Of: base.Candidate, Config: config, base: base,
		space: tune.NewSpace(config.Config, DefaultAdd...)}, of: map[string]tune.Point{},
		can: func(spec string) bool { return router.CheckSpec(spec) == nil }}
	tn.race = &race{sample: sample, first: 2, most: 8, left: left, known: map[string]*contestant{"epp": base}}
	tn.of["epp"] = tn.space.Base()
	return tn
}

// TestTunerFinds: the search comes close to the best weights, and keeps no change that does not help.
func TestTunerFinds(t *testing.T) {
	// the best has the LoRA scorer at 6 and no queue scorer; all other numbers do not matter
	score := func(v map[string]float64) float64 {
		return 0.05*math.Abs(math.Log2((v["lora-affinity-scorer"]+1)/7)) + 0.1*v["queue-scorer"]/(v["queue-scorer"]+1)
	}
	for seed := range uint64(5) {
		tn := newArtificial(t, artificial(t, score, 0.005), nil)
		objective, _ := ParseObjective("balanced")
		if err := tn.run("", objective, rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatal(err)
		}
		value := map[string]float64{}
		for _, ch := range tn.Changes {
			value[ch.Name] = ch.Value
		}
		if got := score(value); got > 0.02 {
			t.Errorf("seed %d: %s scores %.3f, expected at most 0.02", seed, tn.Best.Spec, got)
		}
		for _, ch := range tn.Changes {
			if ch.Name != "queue-scorer" && ch.Name != "lora-affinity-scorer" {
				t.Errorf("seed %d: %v does not help", seed, ch)
			}
		}
		if tn.Tried < designs || tn.Tried > len(tn.of) {
			t.Errorf("seed %d: %d configurations tried", seed, tn.Tried)
		}
	}
}

// TestTunerBudget: a small budget bounds the runs.
func TestTunerBudget(t *testing.T) {
	runs := 0
	flat := artificial(t, func(map[string]float64) float64 { return 0 }, 0.01)
	count := func(stream int, wants []want) ([][]Figures, error) {
		for _, w := range wants {
			runs += w.To - w.From
		}
		return flat(stream, wants)
	}
	tn := newArtificial(t, count, func() int64 { return int64(100 - runs) })
	objective, _ := ParseObjective("e2e")
	if err := tn.run("", objective, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	if runs > 300 { // the first designs and the choice are always run
		t.Errorf("%d runs of a budget of 100", runs)
	}
	if tn.best == nil || tn.best == tn.base {
		t.Error("expected a best one beside the configuration as it is, for the verdict")
	}
}

// TestTunedErrorRate: where no configuration differs, one is called better in few of the cases.
func TestTunedErrorRate(t *testing.T) {
	better := 0
	const cases = 60
	for i := range cases {
		sample := artificial(t, func(map[string]float64) float64 { return 0 }, 0.05)
		shifted := func(stream int, wants []want) ([][]Figures, error) { return sample(stream+100*i, wants) }
		tn := newArtificial(t, shifted, func() int64 { return 0 })
		objective, _ := ParseObjective("balanced")
		if err := tn.run("", objective, rand.New(rand.NewPCG(uint64(i), 1))); err != nil {
			t.Fatal(err)
		}
		held, err := shifted(forVerdict, []want{{tn.best.Candidate, 0, 20}, {tn.base.Candidate, 0, 20}})
		if err != nil {
			t.Fatal(err)
		}
		if tn.Diff = stats.PairedOf("", scoresOf(held[0]), scoresOf(held[1])); tn.Better() {
			better++
		}
	}
	if better > 6 { // 2.5 % of them are expected; P(more than 6) is below 0.001
		t.Errorf("%d of %d equal configurations are called better", better, cases)
	}
}

func TestPickers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("plugins:\n- type: queue-scorer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Policies: []string{"static", "epp:file=" + file, "epp"}, Add: DefaultAdd}
	if got := o.pickers("epp:file=" + file); !slices.Equal(got, []string{"epp:file=" + file, "epp"}) {
		t.Errorf("configurations %v", got)
	}
	if n, err := o.CheckConfigs(t.Context(), "static"); n != 2 || err != nil {
		t.Errorf("%d, %v; expected 2 configurations", n, err)
	}
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{Policies: []string{"epp:file=" + file + ".none"}}, "no such file"},
		{Options{Policies: []string{"epp:file=" + file + ",set=queue:1"}}, `unknown number "queue"`},
		{Options{Policies: []string{"epp"}, Add: []string{"load-aware-scorer"}},
			`scorer "load-aware-scorer": gie has no`},
		{Options{Policies: []string{"epp"}, Add: []string{"random-picker"}}, `scorer "random-picker"`},
	} {
		if _, err := test.o.CheckConfigs(t.Context(), "static"); err == nil || !strings.Contains(err.Error(),
			test.want) {
			t.Errorf("%v: error %v, expected %q", test.o.Policies, err, test.want)
		}
	}
}

// TestTunedText: the answer in words, and the configuration that it writes.
func TestTunedText(t *testing.T) {
	config, err := epp.ReadPickerConfig(t.Context(), "epp:set=queue-scorer:4")
	if err != nil {
		t.Fatal(err)
	}
	a := &Advice{Confirmed: true, Options: Options{Seeds: 20}}
	a.Objective, _ = ParseObjective("e2e")
	gain := func(mean, half float64) stats.Estimate {
		return stats.Estimate{N: 20, Mean: mean, Low: mean - half, High: mean + half, Std: 0.1}
	}
	changes := []NumberChange{{epp.Change{Name: "queue-scorer", Value: 0}, 4, false},
		{epp.Change{Name: "lora-affinity-scorer", Value: 3}, 0, true}}
	best := Candidate{"epp:set=queue-scorer:0/lora-affinity-scorer:3"}
	for _, test := range []struct {
		t    Tuned
		want string
	}{
		{Tuned{Best: best, Diff: gain(-0.1, 0.02), Changes: changes, Tried: 80}, "Better config than the default " +
			"configuration: queue-scorer 4 -> 0, add lora-affinity-scorer with weight 3. It changes the objective by " +
			"-9.5 % ±1.8 (negative is better; 95 % interval, 20 fresh seeds). It is the best of 80 configurations, chosen " +
			"with other seeds."},
		{Tuned{Best: best, Diff: gain(-0.01, 0.02), Tried: 80}, "No better config found for the default " +
			"configuration: the best of 80 configurations changes the objective by -1.0 % ±2.0 (negative is better; " +
			"95 % interval, 20 fresh seeds), which is no significant gain."},
		{Tuned{Best: best, Diff: gain(-0.01, 0.005), MinGain: 0.02, Tried: 80}, "No better config found for the " +
			"default configuration: the best of 80 configurations changes the objective by -1.0 % ±0.5 (negative is " +
			"better; 95 % interval, 20 fresh seeds), which is less than --min-gain."},
		{Tuned{Best: best, Diff: stats.Estimate{N: 1, Mean: -0.1, Low: math.NaN(), High: math.NaN()}, Tried: 2},
			"Config the default configuration: the best of 2 configurations changes the objective by -9.5 %. One saved " +
				"workload has no intervals, so whether it is better is unknown."},
		{Tuned{Tried: 8}, "No better config found for the default configuration: 8 configurations give the same results."},
	} {
		test.t.Config = config
		if got := a.TunedText(&test.t); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	tuned := &Tuned{Best: best, Config: config, Changes: changes}
	text, err := tuned.Text(t.Context(), "Above.")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Above.\napiVersion: ", "queue-scorer\n    weight: 0\n",
		"lora-affinity-scorer\n    weight: 3\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if tuned.Better() {
		t.Error("better without an interval")
	}
}
