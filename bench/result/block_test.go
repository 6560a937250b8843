package result

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace"
)

// everything is a result with a different value for every metric.
func everything() *Result {
	r := &Result{Meta: Meta{Source: Sim, Backend: "sglang", DatasetName: "random", RequestRate: 2}}
	for m := range NumMetrics {
		r.Metrics.Set(m, float64(100+m))
	}
	return r
}

// The rows of each layout, written down from the table in the design and from
// what the reference prints, independently of the code.
func TestLayoutRows(t *testing.T) {
	const head = `
============ Serving Benchmark Result ============
Backend:                                 sglang    
Traffic request rate:                    2.0       
`
	const e2e = "----------------End-to-End Latency----------------\n"
	want := map[Layout]string{
		SGLang054: head + `Max request concurrency:                 not set   
Successful requests:                     101       
Benchmark duration (s):                  100.00    
Total input tokens:                      102       
Total generated tokens:                  105       
Total generated tokens (retokenized):    106       
Request throughput (req/s):              107.00    
Input token throughput (tok/s):          108.00    
Output token throughput (tok/s):         109.00    
Total token throughput (tok/s):          110.00    
Concurrency:                             136.00    
` + e2e + `Mean E2E Latency (ms):                   111.00    
Median E2E Latency (ms):                 112.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          117.00    
Median TTFT (ms):                        118.00    
P99 TTFT (ms):                           122.00    
---------------Inter-Token Latency----------------
Mean ITL (ms):                           129.00    
Median ITL (ms):                         130.00    
P95 ITL (ms):                            133.00    
P99 ITL (ms):                            134.00    
Max ITL (ms):                            135.00    
==================================================
`,
		SGLang056: head + `Max request concurrency:                 not set   
Successful requests:                     101       
Benchmark duration (s):                  100.00    
Total input tokens:                      102       
Total input text tokens:                 103       
Total generated tokens:                  105       
Total generated tokens (retokenized):    106       
Request throughput (req/s):              107.00    
Input token throughput (tok/s):          108.00    
Output token throughput (tok/s):         109.00    
Peak output token throughput (tok/s):    138.00    
Peak concurrent requests:                139       
Total token throughput (tok/s):          110.00    
Concurrency:                             136.00    
` + e2e + `Mean E2E Latency (ms):                   111.00    
Median E2E Latency (ms):                 112.00    
P90 E2E Latency (ms):                    114.00    
P99 E2E Latency (ms):                    116.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          117.00    
Median TTFT (ms):                        118.00    
P99 TTFT (ms):                           122.00    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          123.00    
Median TPOT (ms):                        124.00    
P99 TPOT (ms):                           128.00    
---------------Inter-Token Latency----------------
Mean ITL (ms):                           129.00    
Median ITL (ms):                         130.00    
P95 ITL (ms):                            133.00    
P99 ITL (ms):                            134.00    
Max ITL (ms):                            135.00    
==================================================
`,
		LoRA: head + `Successful requests:                     101       
Benchmark duration (s):                  100.00    
Total input tokens:                      102       
Total generated tokens:                  105       
Total generated tokens (retokenized):    106       
Request throughput (req/s):              107.00    
Input token throughput (tok/s):          108.00    
Output token throughput (tok/s):         109.00    
Total throughput (tok/s):                110.00    
` + e2e + `Mean E2E Latency (ms):                   111.00    
Median E2E Latency (ms):                 112.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          117.00    
Median TTFT (ms):                        118.00    
P99 TTFT (ms):                           122.00    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          123.00    
Median TPOT (ms):                        124.00    
P99 TPOT (ms):                           128.00    
---------------Inter-token Latency----------------
Mean ITL (ms):                           129.00    
Median ITL (ms):                         130.00    
P99 ITL (ms):                            134.00    
==================================================
`,
		SGLang: head + `Max request concurrency:                 not set   
Successful requests:                     101       
Benchmark duration (s):                  100.00    
Total input tokens:                      102       
Total input text tokens:                 103       
Total generated tokens:                  105       
Total generated tokens (retokenized):    106       
Request throughput (req/s):              107.00    
Input token throughput (tok/s):          108.00    
Output token throughput (tok/s):         109.00    
Peak output token throughput (tok/s):    138.00    
Peak concurrent requests:                139       
Total token throughput (tok/s):          110.00    
Concurrency:                             136.00    
` + e2e + `Mean E2E Latency (ms):                   111.00    
Median E2E Latency (ms):                 112.00    
P90 E2E Latency (ms):                    114.00    
P95 E2E Latency (ms):                    115.00    
P99 E2E Latency (ms):                    116.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          117.00    
Median TTFT (ms):                        118.00    
P90 TTFT (ms):                           120.00    
P95 TTFT (ms):                           121.00    
P99 TTFT (ms):                           122.00    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          123.00    
Median TPOT (ms):                        124.00    
P90 TPOT (ms):                           126.00    
P95 TPOT (ms):                           127.00    
P99 TPOT (ms):                           128.00    
---------------Inter-Token Latency----------------
Mean ITL (ms):                           129.00    
Median ITL (ms):                         130.00    
P90 ITL (ms):                            132.00    
P95 ITL (ms):                            133.00    
P99 ITL (ms):                            134.00    
Max ITL (ms):                            135.00    
==================================================
`,
	}
	full := everything()
	r := &Result{Meta: full.Meta}
	for m := range NumMetrics {
		if m != TotalInputVisionTokens && m != AcceptLength {
			v, _ := full.Metrics.Get(m)
			r.Metrics.Set(m, v)
		}
	}
	for _, l := range Layouts() {
		var b bytes.Buffer
		if err := r.WriteBlock(&b, l); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[l], b.String()); d != "" {
			t.Errorf("layout %s (-want +got):\n%s", l, d)
		}
	}
}

// Rows that only some runs print stand where the reference has them; absent
// metrics leave no row, sections without rows no title.
func TestOptionalRows(t *testing.T) {
	var b bytes.Buffer
	if err := everything().WriteBlock(&b, SGLang056); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Total input text tokens:                 103       \nTotal input vision tokens:               104       \nTotal generated",
		"Concurrency:                             136.00    \nAccept length:                           137.00    \n-----",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	r := &Result{Meta: Meta{MaxConcurrency: 32}}
	r.Metrics.Set(MedianITL, -0.001)
	if err := r.WriteBlock(&b, SGLang); err != nil {
		t.Fatal(err)
	}
	want := "\n============ Serving Benchmark Result ============\n" +
		"Max request concurrency:                 32        \n" +
		"---------------Inter-Token Latency----------------\n" +
		"Median ITL (ms):                         -0.00     \n" +
		"==================================================\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseLayout(t *testing.T) {
	for _, l := range Layouts() {
		if got, err := ParseLayout(string(l)); got != l || err != nil {
			t.Errorf("ParseLayout(%q) = %q, %v", l, got, err)
		}
	}
	if _, err := ParseLayout("vllm"); err == nil ||
		!strings.Contains(err.Error(), "expected sglang-0.5.4, sglang-0.5.6, lora or sglang") {
		t.Errorf("ParseLayout(vllm): %v", err)
	}
}

// Python prints these floats so (checked with python3 3.11).
func TestRate(t *testing.T) {
	for text, v := range map[string]float64{
		"inf": float64(Unlimited()), "2.0": 2, "0.5": 0.5, "0.1": 0.1, "1e-05": 0.00001, "0.0001": 0.0001,
		"1e+16": 1e16, "9999999999999998.0": 9999999999999998, "1234.5678": 1234.5678, "1.5e-07": 1.5e-7,
	} {
		if got := Rate(v).String(); got != text {
			t.Errorf("Rate(%v) = %q, want %q", v, got, text)
		}
		if got, err := ParseRate(text); got != Rate(v) || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v", text, got, err)
		}
	}
	if got, err := ParseRate("trace"); got != TraceRate || err != nil || got.String() != "trace" {
		t.Errorf("ParseRate(trace) = %v, %v", got, err)
	}
	for _, text := range []string{"", "0", "-1", "nan", "fast", "-inf"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", text, got)
		}
	}
}

// The extra section's numbers are worked out in TestSmallRunByHand; this is its
// form.
func TestExtraGolden(t *testing.T) {
	adapters := trace.Names(2, nil)
	c := smallRun(Options{Workers: 3, Adapters: adapters, SLO: SLO{TTFT: 400, E2E: 2200}})
	small := c.Result(Meta{}, &RunCounters{
		Workers:    workerCounters(2),
		Migrations: []MigrationCount{{"adapter", 1}, {"request", 2}}, MigrationTime: 1.125,
		SolverRuns: 4, SolverTime: 0.01,
		Plans: &record.PlanCounters{Applied: 3, Dropped: 1, Loads: 5, Unloads: 2, Gap: 0.0125, Recomputed: 1806,
			Copied: 2.5e6, Changes: 7, Undone: 4}, FailedLoads: 1,
	})
	many := smallRun(Options{}).Result(Meta{}, nil)
	many.Extra.Adapters = nil
	for i := range 30 {
		many.Extra.Adapters = append(many.Extra.Adapters, AdapterStats{
			Index: int32(i), Name: strings.Repeat("adapter-", 4) + string(rune('a'+i)), Requests: int64(30 - i),
			Completed: 1,
			Share:     float64(30-i) / 465, MeanE2E: 123456.789, P99E2E: 9876543.21, MeanTTFT: float64(i),
		})
	}
	for name, r := range map[string]*Result{"small": small, "many": many} {
		var b bytes.Buffer
		if err := r.WriteExtra(&b); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if len([]rune(line)) > 80 || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: line wider than 80 columns or with trailing spaces: %q", name, line)
			}
		}
		path := filepath.Join("testdata", "extra_"+name+".txt")
		testutil.Golden(t, path, b.Bytes())
	}
	var b bytes.Buffer
	if err := (&Result{}).WriteExtra(&b); err != nil || b.Len() > 0 {
		t.Errorf("without an Extra: %v, %q", err, b.String())
	}
}

func TestSLO(t *testing.T) {
	for spec, want := range map[string]SLO{
		"":                          {},
		"ttft:500 tpot:50 e2e:5000": {TTFT: 500, TPOT: 50, E2E: 5000},
		"e2e:5e3,ttft:0.5":          {TTFT: 0.5, E2E: 5000},
		"tpot:50 attain:90%":        {TPOT: 50, Attain: 0.9},
	} {
		got, err := ParseSLO(spec)
		if got != want || err != nil || got.Empty() != (spec == "") {
			t.Errorf("ParseSLO(%q) = %+v, %v; want %+v", spec, got, err, want)
		}
		if again, err := ParseSLO(got.String()); again != want || err != nil {
			t.Errorf("ParseSLO(%q) = %+v, %v; want %+v", got.String(), again, err, want)
		}
	}
	for spec, want := range map[string]string{
		"ttft":                       `SLO "ttft": "ttft": expected NAME:MILLISECONDS, as in ttft:500`,
		"itl:5":                      `SLO "itl:5": "itl:5": unknown latency: expected ttft, tpot or e2e`,
		"ttft:5 ttft:6":              `SLO "ttft:5 ttft:6": "ttft:6": given twice`,
		"ttft:0":                     `SLO "ttft:0": "ttft:0": expected a number of milliseconds above 0`,
		"ttft:inf":                   `SLO "ttft:inf": "ttft:inf": expected a number of milliseconds above 0`,
		"ttft:NaN":                   `SLO "ttft:NaN": "ttft:NaN": expected a number of milliseconds above 0`,
		"attain:0.9":                 `SLO "attain:0.9": expected a latency beside attain, as in ttft:500`,
		"e2e:1 attain:99":            `SLO "e2e:1 attain:99": "attain:99": "99", expected a share above 0 and up to 100%, as in 99% or 0.99`,
		"e2e:1 attain:1 attain:0.99": `SLO "e2e:1 attain:1 attain:0.99": "attain:0.99": given twice`,
	} {
		if _, err := ParseSLO(spec); err == nil || err.Error() != want {
			t.Errorf("ParseSLO(%q): %v, want %s", spec, err, want)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]float64{"99%": 0.99, "0.99": 0.99, " 99.9 % ": 0.999, "1": 1, "100%": 1} {
		if got, err := ParseShare(text); err != nil || math.Abs(got-want) > 1e-12 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "99", "0", "0%", "101%", "NaN", "x"} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzSLO(f *testing.F) {
	for _, s := range []string{
		"", "tpot:5 attain:95%", "ttft:500 tpot:50 e2e:5000", "e2e:1e3,,ttft:.5", "ttft:1:2", "x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := ParseSLO(spec)
		if err != nil {
			return
		}
		if again, err := ParseSLO(s.String()); err != nil || again != s {
			t.Fatalf("%q gives %+v, whose text %q gives %+v, %v", spec, s, s.String(), again, err)
		}
	})
}
