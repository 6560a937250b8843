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
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/trace/settings"
)

// tried is a candidate with an interval.
func tried(c Candidate, holds bool, mean, half float64, n int) Tried {
	decision := Fails
	if holds {
		decision = Holds
	}
	return Tried{Candidate: c, Decision: decision, Holds: holds, Certain: true, Mean: mean,
		Size:       size{requests: 8000, warm: 4000},
		Attainment: stats.Estimate{N: n, Mean: mean, Low: mean - half, High: mean + half},
		Causes:     waits.Causes{waits.Compute: 3, waits.KVCache: 1},
		Worst:      result.Worst{Name: "lora7", Share: 0.5, Requests: 12}}
}

// Answers by hand, and what is printed of them.
func TestTextByHand(t *testing.T) {
	asked := Options{SLO: result.SLO{TTFT: 500}, Attain: 0.99, MaxWorkers: 16, MaxSeeds: 100, Budget: 24e6}
	three, four := tried(Candidate{Workers: 3}, false, 0.98, 0.001, 4),
		tried(Candidate{Workers: 4}, true, 0.995, 0.006, 3)
	holds := Answer{
		Options: asked, Found: four, NextCheaper: &three, Headroom: Headroom{1.25, 1.2, 1.31, 16},
		Limit: waits.Causes{waits.Slots: 1}, Verdict: Stable, Spent: 2.04e6,
	}
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
			"Answer:      4 workers for 99.00 % of the requests within ttft:500\n             in the mean over runs (--hold mean)\n",
			"Runs:        8000 requests each, of which the first 4000 are warm-up; 2.0 million requests simulated (--budget 24 million)",
			"Headroom:    1.25 (95 % interval 1.20 to 1.31): the SLO holds up to this factor of the load; beyond it, requests wait for slots 100 %",
			"Verdict:     stable (headroom is at least 1.10)", "Bottleneck:  slots"},
			[]string{"an hour", "certain", "rejected", "Cost"},
			`{"workers":4,"attainment":0.995,"interval":{"low":0.989,"high":1},"hold":"mean","certain":true,"decision":"holds",` +
				`"next_cheaper":{"workers":3,"attainment":0.98,"interval":{"low":0.979,"high":0.981},"decision":"fails","bottleneck":"compute"},` +
				`"headroom":1.25,"headroom_interval":{"low":1.2,"high":1.31},"verdict":"stable","bottleneck":"slots"`},
		{"one worker, one seed", func(a *Answer) {
			a.Found, a.NextCheaper = tried(Candidate{Workers: 1}, true, 1, 0, 1), nil
			a.Found.Certain, a.Headroom.Seeds = false, 1
		}, []string{
			"1        100.00 %    -              1      yes", "Answer:      1 worker for",
			"not certain: 1 worker ran with one seed", "Headroom:    1.25: ",
		},
			[]string{" 3   "}, `"next_cheaper":null`},
		{"near", func(a *Answer) { a.Headroom, a.Verdict = Headroom{1.05, 1.03, 1.07, 16}, Near },
			[]string{"Verdict:     near (headroom is below 1.10)"}, nil, `"verdict":"near"`},
		{"perhaps near", func(a *Answer) { a.Headroom, a.Verdict = Headroom{1.12, 1.08, 1.14, 16}, Near },
			[]string{"Verdict:     near (headroom may be below 1.10)"}, nil, `"verdict":"near"`},
		{"any rate", func(a *Answer) { a.Headroom.Factor = 64 },
			[]string{"Headroom:    64 or more: the request rate is not the limit"}, nil, `"headroom":64`},
		{"not certain", func(a *Answer) { a.NextCheaper.Certain = false },
			[]string{"not certain: the interval of 3 workers contains the target"}, []string{"of 4 workers contains"},
			`"workers":4,"attainment":0.995,`},
		{"accepted, but other runs miss the target", func(a *Answer) {
			a.Found.Certain, a.Found.Mean, a.Found.Attainment.Mean = false, 0.9893, 0.9893
		}, []string{"4        98.93 %     98.90 % to 100.00 %  3      unclear",
			"not certain: 4 workers passed the test, but with fresh runs the mean misses the target"},
			[]string{"contains"}, `"certain":false,"decision":"holds"`},
		{"undecided", func(a *Answer) { a.NextCheaper.Certain, a.NextCheaper.Decision = false, Undecided },
			[]string{"3 workers: undecided within the budget; increase --budget",
				"4      undecided  50.00 %"}, []string{"contains"}, `"certain":false,`},
		{"undecided, seeds",
			func(a *Answer) { a.NextCheaper.Certain, a.NextCheaper.Decision, a.MaxSeeds = false, Undecided, 4 },
			[]string{"3 workers: undecided with 4 seeds; increase --max-seeds"}, nil, `"decision":"undecided"`},
		{"all requests", func(a *Answer) { a.Attain, a.Found.Certain = 1, false },
			[]string{"not certain: no number of runs can show that all requests meet the SLO"}, nil,
			`"certain":false,`},
		{"rejected", func(a *Answer) { a.Found.Rejected = 0.004 }, []string{"0.40 % of the requests are rejected\n"},
			nil, `"workers":4`},
		{"next overloaded", func(a *Answer) { a.NextCheaper.Decision = Overloaded }, []string{
			"3        98.00 %     -                    4      overloaded",
		},
			nil, `"next_cheaper":{"workers":3,"attainment":0.98,"interval":null,"decision":"overloaded"`},
		{"overloaded", func(a *Answer) {
			a.Found, a.NextCheaper, a.Headroom.Factor, a.Verdict = tried(Candidate{Workers: 16}, false, 0.8, 0.01, 3),
				nil, 0.7, Saturated
			a.Found.Decision = Overloaded
		},
			[]string{"Verdict:     overloaded (requests arrive faster than the workers serve them: queues grow without end)"},
			nil, `"decision":"overloaded"`},
		{"nothing holds", func(a *Answer) {
			a.Found, a.NextCheaper, a.Headroom, a.Verdict = tried(Candidate{Workers: 16}, false, 0.8, 0.01, 3), nil,
				Headroom{0.7, 0.68, 0.71, 16}, Saturated
		},
			[]string{"Answer:      none up to 16 workers; the best reached 80.00 %, required: 99.00 % of the requests within ttft:500",
				"Headroom:    0.70 (95 % interval 0.68 to 0.71): the SLO holds up to this factor of the load\n",
				"Verdict:     overloaded (the SLO does not hold)"}, nil,
			`{"workers":null,"attainment":0.8,"interval":{"low":0.79,"high":0.81},`},
		{"stopped", func(a *Answer) {
			a.Found, a.NextCheaper, a.Verdict, a.Stopped = tried(Candidate{Workers: 9}, false, 0.98, 0.01, 3), nil,
				Unknown, true
			a.Found.Decision = Undecided
		},
			[]string{"Answer:      none within the budget of 24000000 requests; 9 workers reached 98.00 %, required: 99.00 % of the requests within ttft:500",
				"Verdict:     undecided (it is not certain that the SLO holds)"}, nil, `"workers":null`},
		{"runs", func(a *Answer) { a.Hold = 0.95 },
			[]string{"Workers  Runs that hold  95 % interval", "in 95.00 % of the runs of 4000 requests (--hold 95%)"},
			nil, `"hold":"95%"`},
		{"one workload", func(a *Answer) {
			a.single, a.fixed, a.Found.Size, a.Found.Certain, a.NextCheaper.Certain = true, "a saved workload", size{},
				false, false
		}, []string{
			"in this workload, which covers 0 s; other workloads, and other hours of a day, may differ",
			"Runs:        as long as the workload: a saved workload is not extended; 2.0 million",
			"Headroom:    1.25: ",
		},
			[]string{"certain"}, `"headroom_interval":null`},
		{"several kinds", func(a *Answer) {
			a.Cost = map[string]float64{"h100": 2.5}
			a.Found.Candidate = Candidate{Workers: 4, Profile: "h100", Slots: 8}
			a.Kinds = []Kind{{Candidate: a.Found.Candidate, Cost: 10}, {Candidate: Candidate{Profile: "a10"}},
				{Candidate: Candidate{Profile: "t4"}, Err: "no memory"}}
		}, []string{"4        10    profile h100, slots 8", "over 16        profile a10",
			"-              profile t4: no memory",
			"Answer:      4 workers (profile h100, slots 8), 10 an hour for 99.00 %"}, nil,
			`"choice":{"workers":4,"profile":"h100","slots":8},"cost":10,`},
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

// The curves are those of runs of their own, at the workload's rate and at twice it.
func TestCurves(t *testing.T) {
	sc := describe(t, "request_rate=12", "num_prompts=300", "policy=least-loaded", "num_adapters=4")
	o := Options{SLO: result.SLO{TTFT: 300, E2E: 9000}, Attain: 0.9, MaxWorkers: 8}
	a := Answer{Options: o, Found: Tried{Candidate: Candidate{Workers: 2}, Size: size{}}}
	lines, xys, err := a.curves(t.Context(), sc)
	if err != nil || len(lines) != 4 || lines[0].Workers != 1 || lines[3].Workers != 4 {
		t.Fatalf("%v: %v", err, lines)
	}
	for i, c := range lines {
		for point, factor := range map[int]float64{5: 1, ratePoints - 1: 2} {
			cell := *sc
			cell.Cluster.NumWorkers = settings.Some(c.Workers)
			cell.Workload.RequestRate = factor * sc.Workload.RequestRate
			res, err := cell.Simulate(t.Context(), scenario.RunOptions{SLO: o.SLO})
			if err != nil {
				t.Fatal(err)
			}
			at := xys[i][point]
			// a request: rates are scaled, not drawn
			if math.Abs(at.X-factor) > 1e-9 || math.Abs(at.Y-100*res.Extra.Goodput.Share) > 0.34 {
				t.Errorf("%s at %v times the rate: %v, expected %v %%", c, factor, at, 100*res.Extra.Goodput.Share)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "a.svg")
	if err := a.Plot(t.Context(), sc, path); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	for _, word := range []string{
		"1 worker", "4 workers", "required", "requests within the SLO, %", "ttft:300 e2e:9000, required 90.00 %",
	} {
		if err != nil || !bytes.Contains(svg, []byte(word)) {
			t.Errorf("%v: expected %q in the picture", err, word)
		}
	}
	if err := a.Plot(t.Context(), sc, filepath.Join(t.TempDir(), "no", "a.svg")); err == nil {
		t.Error("a folder that does not exist: no error")
	}
}
