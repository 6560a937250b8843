package capacity

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

// tried is a candidate with an interval.
func tried(c Candidate, holds bool, mean, half float64, n int) Tried {
	return Tried{Candidate: c, Holds: holds, Certain: true, Attainment: sweep.Estimate{N: n, Mean: mean, Low: mean - half, High: mean + half},
		Causes: Causes{compute: 3, kvCache: 1}, Worst: result.Worst{Name: "lora7", Share: 0.5, Requests: 12}}
}

// Answers by hand, and what is printed of them.
func TestTextByHand(t *testing.T) {
	asked := Options{SLO: result.SLO{TTFT: 500}, Attain: 0.99, MaxWorkers: 16}
	three, four := tried(Candidate{Workers: 3}, false, 0.98, 0.001, 4), tried(Candidate{Workers: 4}, true, 0.995, 0.006, 3)
	holds := Answer{Options: asked, Found: four, NextCheaper: &three, Headroom: 1.25, Limit: Causes{slots: 1}, Verdict: Stable}
	for _, c := range []struct {
		name   string
		change func(*Answer)
		has    []string
		hasNot []string
		json   string
	}{
		{"holds", nil, []string{
			"3        98.00 %     97.90 % to 98.10 %   4      no     50.00 % of 12, lora7  compute 75 %, KV 25 %",
			"4        99.50 %     98.90 % to 100.00 %  3      yes",
			"Answer:      4 workers for 99.00 % of the requests within ttft:500",
			"Headroom:    1.25: it holds up to so many times the load, then requests wait for slots 100 %",
			"Verdict:     stable (headroom of 1.10 or more)", "Bottleneck:  slots"},
			[]string{"an hour", "not certain", "rejected", "Cost"},
			`{"workers":4,"attainment":0.995,"certain":true,"next_cheaper":{"workers":3,"attainment":0.98,"bottleneck":"compute"},"headroom":1.25,"verdict":"stable","bottleneck":"slots"`},
		{"one worker, one seed", func(a *Answer) {
			a.Found, a.NextCheaper = tried(Candidate{Workers: 1}, true, 1, 0, 1), nil
		}, []string{"1        100.00 %    -              1      yes", "Answer:      1 worker for"}, []string{" 3   "}, `"next_cheaper":null`},
		{"near", func(a *Answer) { a.Headroom, a.Verdict = 1.05, Near }, []string{"Verdict:     near (headroom below 1.10)"}, nil, `"verdict":"near"`},
		{"any rate", func(a *Answer) { a.Headroom = 64 }, []string{"Headroom:    64 or more: the rate is not what limits it"}, nil, `"headroom":64`},
		{"not certain", func(a *Answer) { a.NextCheaper.Certain = false },
			[]string{"not certain: with 3 workers the interval of 4 seeds holds the share asked for"}, []string{"with 4 workers the interval"}, `"workers":4,"attainment":0.995,"certain":false,`},
		{"rejected", func(a *Answer) { a.Found.Rejected = 0.004 }, []string{"0.40 % of the requests are rejected\n"}, nil, `"workers":4`},
		{"it only ends", func(a *Answer) { a.Found.Backlog, a.Verdict = 0.5, Overloaded },
			[]string{"Verdict:     overloaded (50.00 % of the requests still wait when the last one arrives"}, []string{"does not hold"}, `"verdict":"overloaded"`},
		{"nothing holds", func(a *Answer) {
			a.Found, a.NextCheaper, a.Headroom, a.Verdict = tried(Candidate{Workers: 16}, false, 0.8, 0.01, 3), nil, 0.7, Overloaded
		}, []string{"Answer:      none up to 16 workers; the most reached 80.00 %, asked for 99.00 % of the requests within ttft:500",
			"Headroom:    0.70: it holds up to that share of the load", "Verdict:     overloaded (the SLO does not hold)"}, nil,
			`{"workers":null,"attainment":0.8,"certain":true,"next_cheaper":{"workers":16,"attainment":0.8,"bottleneck":"compute"},"headroom":0.7`},
		{"several kinds", func(a *Answer) {
			a.Cost = map[string]float64{"h100": 2.5}
			a.Found.Candidate = Candidate{Workers: 4, Profile: "h100", Slots: 8}
			a.Kinds = []Kind{{Candidate: a.Found.Candidate, Cost: 10}, {Candidate: Candidate{Profile: "a10"}},
				{Candidate: Candidate{Profile: "t4"}, Err: "no memory"}}
		}, []string{"4        10    profile h100, slots 8", "over 16        profile a10", "-              profile t4: no memory",
			"Answer:      4 workers (profile h100, slots 8), 10 an hour for 99.00 %"}, nil,
			`"choice":{"workers":4,"profile":"h100","slots":8},"cost":10}`},
	} {
		a, b := holds, three
		a.NextCheaper = &b
		if c.change != nil {
			c.change(&a)
		}
		var out bytes.Buffer
		if err := a.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.has {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%s: expected %q in\n%s", c.name, s, out.String())
			}
		}
		for _, s := range c.hasNot {
			if strings.Contains(out.String(), s) {
				t.Errorf("%s: expected no %q in\n%s", c.name, s, out.String())
			}
		}
		if line, err := json.Marshal(&a); err != nil || !strings.Contains(string(line), c.json) {
			t.Errorf("%s: %v, expected %s in\n%s", c.name, err, c.json, line)
		}
		if err := a.Failure(); (err == nil) != a.Found.Holds {
			t.Errorf("%s: failure %v", c.name, err)
		}
	}
}

func TestCauses(t *testing.T) {
	for _, c := range []struct {
		causes           Causes
		text, bottleneck string
	}{
		{Causes{}, "nothing was lost", "compute"},
		{Causes{compute: 1, routing: 1}, "compute 50 %, routing 50 %", "compute"},
		{Causes{slots: 2, loads: 1, kvCache: 1}, "slots 50 %, KV 25 %, loads 25 %", "slots"},
		{Causes{hostMemory: 994, loads: 6}, "host memory 99 %, loads 1 %", "host memory"},
		{Causes{hostMemory: 996, loads: 4}, "host memory 100 %", "host memory"},
	} {
		if got, b := c.causes.String(), c.causes.Bottleneck(); got != c.text || b != c.bottleneck {
			t.Errorf("%v: %q, %s; expected %q, %s", c.causes, got, b, c.text, c.bottleneck)
		}
	}
}

// The curves are those of runs of their own, at the workload's rate and at twice it.
func TestCurves(t *testing.T) {
	sc := describe(t, "request_rate=12", "num_prompts=300", "policy=least-loaded", "num_adapters=4")
	o := Options{SLO: result.SLO{TTFT: 300, E2E: 9000}, Attain: 0.9, MaxWorkers: 8}
	a := Answer{Options: o, Found: Tried{Candidate: Candidate{Workers: 2}}}
	lines, xys, err := a.curves(t.Context(), sc)
	if err != nil || len(lines) != 4 || lines[0].Workers != 1 || lines[3].Workers != 4 {
		t.Fatalf("%v: %v", err, lines)
	}
	for i, c := range lines {
		for point, factor := range map[int]float64{5: 1, ratePoints - 1: 2} {
			cell := *sc
			cell.Cluster.NumWorkers, cell.Workload.RequestRate = c.Workers, factor*sc.Workload.RequestRate
			res, err := cell.Simulate(t.Context(), scenario.RunOptions{SLO: o.SLO})
			if err != nil {
				t.Fatal(err)
			}
			at := xys[i][point]
			if math.Abs(at.X-factor) > 1e-9 || math.Abs(at.Y-100*res.Extra.Goodput.Share) > 0.34 { // a request: rates are scaled, not drawn
				t.Errorf("%s at %v times the rate: %v, expected %v %%", c, factor, at, 100*res.Extra.Goodput.Share)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := a.Plot(t.Context(), sc, path); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	for _, word := range []string{"1 worker", "4 workers", "asked for", "requests within the SLO, %", "ttft:300 e2e:9000, asked for 90.00 %"} {
		if err != nil || !bytes.Contains(svg, []byte(word)) {
			t.Errorf("%v: expected %q in the picture", err, word)
		}
	}
	if err := a.Plot(t.Context(), sc, filepath.Join(t.TempDir(), "no", "a.svg")); err == nil {
		t.Error("a folder that does not exist: no error")
	}
}
