package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/parallel"
	"lorasim/trace/settings"
)

// arrivalCases are workloads by their arrival process. The log is Azure's of conversations, whose blocks of a minute
// are drawn with replacement.
var arrivalCases = [][2]string{
	{"Poisson", ""},
	{"gamma, CV 2", "arrivals=total-gamma:2"},
	{"gamma, CV 4", "arrivals=total-gamma:4"},
	{"gamma, CV 8", "arrivals=total-gamma:8"},
	{"on-off, 110 s", "pattern=on-off:60,50,0.5"},
	{"diurnal, 100 s", "pattern=diurnal:100,0.5"},
	{"sessions", "sessions=zipf:m=8"},
	{"conversations", "conversations=chat"},
	{"flash", "pattern=flash:60,10,3"},
	{"drift", "drift=60"},
	{"log", "use_trace=true trace_name=azure_llm trace_path=" + azureLog + " resample=block:60 num_adapters=32"},
}

// azureLog is a log of Azure's (see shared/data).
const azureLog = "../../../shared/data/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"

// textOf returns an environment variable, or a default.
func textOf(env, otherwise string) string {
	if s := os.Getenv(env); s != "" {
		return s
	}
	return otherwise
}

// coverageCase is a scenario whose intervals are judged, without its length.
type coverageCase struct {
	settings []string
	log      bool
	load     float64 // rate as a share of the sustainable rate
	capacity float64 // requests/s
	native   float64 // rate of the log, requests/s
}

// scenario returns the case with a number of requests, at a rate.
func (c *coverageCase) scenario(requests int, rate float64, seed uint64) (*Scenario, error) {
	sc := builtIn(rate, int64(requests), seed)
	for _, set := range c.settings {
		key, value, _ := strings.Cut(set, "=")
		if err := sc.Set(key, value); err != nil {
			return nil, err
		}
	}
	if c.log {
		sc.Workload.RateScale = rate / c.native
	} else {
		sc.Workload.RequestRate = rate / sc.Workload.Pattern.Value().Mean()
	}
	return &sc, nil
}

// run simulates a number of requests at the load of the case. A pattern ends with a whole period.
func (c *coverageCase) run(b *testing.B, requests int, seed uint64, warmup float64) (*result.Result, error) {
	rate := c.load * c.capacity
	sc, err := c.scenario(requests, rate, seed)
	if err != nil {
		return nil, err
	}
	if period := sc.Workload.Pattern.Value().Period(); period > 0 {
		sc.Workload.Window = math.Round(float64(requests)/rate/period) * period
		sc.Workload.NumPrompts = settings.Optional[int64]{}
	}
	sc.Client.Warmup = as[warmupText](fmt.Sprint(warmup))
	return sc.Simulate(b.Context(), RunOptions{})
}

// measure finds the sustainable rate, by a run with far more requests/s.
func (c *coverageCase) measure(b *testing.B) error {
	const fast = 60
	c.native = 19366. / 3600 // requests/s of the log
	sc, err := c.scenario(20000, fast, 1)
	if err != nil {
		return err
	}
	sc.Workload.Pattern = patternText{}
	res, err := sc.Simulate(b.Context(), RunOptions{})
	if err != nil {
		return err
	}
	if c.capacity = res.Steady.SustainableRate; c.capacity == 0 {
		return fmt.Errorf("the sustainable rate is unknown")
	}
	return nil
}

// firstSeed returns the seed of the first run.
func firstSeed() (uint64, error) { return strconv.ParseUint(textOf("SEED", "5000"), 10, 64) }

// tally counts the intervals of a metric, and those that hold the truth.
type tally struct{ printed, held int }

func (t tally) cells(runs int) string {
	if t.printed == 0 {
		return " 0 % | - |"
	}
	return fmt.Sprintf(" %.0f %% | %.0f %% |", 100*float64(t.printed)/float64(runs),
		100*float64(t.held)/float64(t.printed))
}

// BenchmarkArrivals prints how many runs have an interval, and how many of the intervals hold the true mean, by arrival
// process, load and length. The truth comes from 12 long runs (of the log: 120), without their first quarter.
// REPETITIONS is the number of runs, SEED their first seed, REQUESTS lists their lengths, LOADS lists shares of the
// sustainable rate, ARRIVALS selects cases, and SET has further settings.
//
//	go test ./bench/scenario -run '^$' -bench Arrivals -benchtime 1x -timeout 0
func BenchmarkArrivals(b *testing.B) {
	repetitions, err := strconv.Atoi(textOf("REPETITIONS", "200"))
	if err != nil {
		b.Fatal(err)
	}
	metrics := []result.ID{result.MeanE2E, result.MeanTTFT, result.MeanTPOT}
	fmt.Printf("\n| arrivals | load | requests | E2E printed | covered | TTFT printed | covered | TPOT printed | covered |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range arrivalCases {
		if !strings.Contains(c[0], os.Getenv("ARRIVALS")) {
			continue
		}
		cc := &coverageCase{settings: strings.Fields(c[1] + " " + os.Getenv("SET")), log: c[0] == "log"}
		if _, err := os.Stat(filepath.FromSlash(azureLog)); cc.log && err != nil {
			fmt.Println("| log | (no data) |")
			continue
		}
		if err := cc.measure(b); err != nil {
			b.Fatal(c[0], err)
		}
		lengths := strings.Split(textOf("REQUESTS", "3000,10000"), ",")
		for _, text := range strings.Split(textOf("LOADS", "0.4,0.7,0.9"), ",") {
			if cc.load, err = strconv.ParseFloat(text, 64); err != nil {
				b.Fatal(err)
			}
			if err := cc.print(b, c[0], metrics, lengths, repetitions); err != nil {
				b.Fatal(c[0], err)
			}
		}
	}
}

// print judges the intervals of runs of several lengths at one load.
func (c *coverageCase) print(b *testing.B, name string, metrics []result.ID, lengths []string, repetitions int) error {
	const long, longRunsFrom = 80000, 50000 // seeds after the first one
	first, err := firstSeed()
	if err != nil {
		return err
	}
	longRuns, requests := 12, long
	if c.log {
		longRuns, requests = 120, 19000 // the length of the log
	}
	truths := make([]*result.Result, longRuns)
	if err := parallel.Do(b.Context(), len(truths), func(i int) (err error) {
		truths[i], err = c.run(b, requests, first+longRunsFrom+uint64(i), float64(requests)/4/(c.load*c.capacity))
		return err
	}, nil); err != nil {
		return err
	}
	for _, text := range lengths {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		runs := make([]*result.Result, repetitions)
		if err := parallel.Do(b.Context(), len(runs), func(i int) (err error) {
			runs[i], err = c.run(b, n, first+uint64(i), 0)
			return err
		}, nil); err != nil {
			return err
		}
		row := fmt.Sprintf("| %s | %.2g | %d |", name, c.load, n)
		for _, id := range metrics {
			truth := 0.0
			for _, r := range truths {
				x, _ := r.Metrics.Get(id)
				truth += x / float64(longRuns)
			}
			t := tally{}
			for _, r := range runs {
				for _, in := range withinRun(r, id) {
					if t.printed++; in.Low <= truth && truth <= in.High {
						t.held++
					}
				}
			}
			row += t.cells(repetitions)
		}
		fmt.Println(row)
	}
	return nil
}

// BenchmarkNext prints how often the number of requests that a run names decides what the run leaves open. Transient
// runs run again with that number: are they steady or overloaded? Steady runs without an interval of mean E2E, too: do
// they have it? REPETITIONS, REQUESTS, LOADS, ARRIVALS, SEED and SET are those of BenchmarkArrivals.
//
//	go test ./bench/scenario -run '^$' -bench Next -benchtime 1x -timeout 0
func BenchmarkNext(b *testing.B) {
	repetitions, err := strconv.Atoi(textOf("REPETITIONS", "30"))
	if err != nil {
		b.Fatal(err)
	}
	first, err := firstSeed()
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("\n| arrivals | load | requests | transient | decided | named | no interval | decided | named |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range arrivalCases {
		if !strings.Contains(c[0], os.Getenv("ARRIVALS")) || c[0] == "log" || c[0] == "flash" {
			continue
		}
		cc := &coverageCase{settings: strings.Fields(c[1] + " " + os.Getenv("SET"))}
		if err := cc.measure(b); err != nil {
			b.Fatal(c[0], err)
		}
		for _, text := range strings.Split(textOf("LOADS", "0.4,0.7,0.9"), ",") {
			if cc.load, err = strconv.ParseFloat(text, 64); err != nil {
				b.Fatal(err)
			}
			for _, length := range strings.Split(textOf("REQUESTS", "2000,10000"), ",") {
				n, err := strconv.Atoi(length)
				if err != nil {
					b.Fatal(err)
				}
				named, states := make([]float64, repetitions), make([]steady.State, repetitions)
				decided := make([]bool, repetitions)
				if err := parallel.Do(b.Context(), repetitions, func(i int) error {
					res, err := cc.run(b, n, first+uint64(i), 0)
					if err != nil {
						return err
					}
					a := res.Steady
					if sc, err := cc.scenario(n, 1, 1); err != nil {
						return err
					} else if a.State == steady.Transient && sc.prolongs() { // sim measures it by a second run
						a.SustainableRate = cc.capacity
						a.NeedsAt(cc.load * cc.capacity)
					}
					states[i], named[i] = a.State, float64(a.Longer())
					if named[i] == 0 {
						return nil
					}
					if res, err = cc.run(b, int(a.Longer()), first+uint64(i), 0); err != nil {
						return err
					}
					decided[i] = res.Steady.State == steady.Overloaded || len(withinRun(res, result.MeanE2E)) > 0 ||
						a.State == steady.Transient && res.Steady.State == steady.Steady
					return nil
				}, nil); err != nil {
					b.Fatal(c[0], err)
				}
				row := fmt.Sprintf("| %s | %.2g | %d |", c[0], cc.load, n)
				for _, state := range []steady.State{steady.Transient, steady.Steady} {
					var list []float64
					good := 0
					for i, x := range named {
						if x > 0 && states[i] == state {
							list = append(list, x)
							if decided[i] {
								good++
							}
						}
					}
					if len(list) == 0 {
						row += " 0 | | |"
					} else {
						row += fmt.Sprintf(" %d | %d | %.0f |", len(list), good, stats.QuantileOf(list, 0.5))
					}
				}
				fmt.Println(row)
			}
		}
	}
}

// BenchmarkSeeds prints how many intervals over 5 and over 10 seeds hold the true mean, by arrival process, load and
// length, and in parentheses how many of Student's do; and how many runs are too short for an interval of their own.
// The truth is the mean of all runs, from which the seeds are drawn 2000 times. REPETITIONS, REQUESTS, LOADS, ARRIVALS
// and SET are those of BenchmarkArrivals.
//
//	SET=policy=affinity go test ./bench/scenario -run '^$' -bench Seeds -benchtime 1x -timeout 0
func BenchmarkSeeds(b *testing.B) {
	repetitions, err := strconv.Atoi(textOf("REPETITIONS", "100"))
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("\n| arrivals | load | requests | E2E, 5 seeds | 10 seeds | too short | TTFT, 5 seeds | 10 seeds | too short |" +
		" P99 TTFT, 5 seeds |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range arrivalCases {
		if !strings.Contains(c[0], os.Getenv("ARRIVALS")) || c[0] == "log" {
			continue
		}
		cc := &coverageCase{settings: strings.Fields(c[1] + " " + os.Getenv("SET"))}
		if err := cc.measure(b); err != nil {
			b.Fatal(c[0], err)
		}
		for _, load := range strings.Split(textOf("LOADS", "0.5,0.8,0.95"), ",") {
			for _, length := range strings.Split(textOf("REQUESTS", "2000,10000"), ",") {
				n, err := strconv.Atoi(length)
				if err != nil {
					b.Fatal(err)
				}
				if cc.load, err = strconv.ParseFloat(load, 64); err != nil {
					b.Fatal(err)
				}
				runs := make([]*result.Result, repetitions)
				if err := parallel.Do(b.Context(), len(runs), func(i int) (err error) {
					runs[i], err = cc.run(b, n, uint64(5000+i), 0)
					return err
				}, nil); err != nil {
					b.Fatal(c[0], err)
				}
				row := fmt.Sprintf("| %s | %s | %d |", c[0], load, n)
				for _, id := range []result.ID{result.MeanE2E, result.MeanTTFT} {
					for _, seeds := range []int{5, 10} {
						student, own := coveredOverSeeds(runs, id, seeds)
						row += fmt.Sprintf(" %.0f %% (%.0f) |", 100*own, 100*student)
					}
					row += fmt.Sprintf(" %.0f %% |", 100*shortShare(runs, id))
				}
				_, own := coveredOverSeeds(runs, result.P99TTFT, 5)
				fmt.Println(row + fmt.Sprintf(" %.0f %% |", 100*own))
			}
		}
	}
}

// BenchmarkPairs prints how many intervals of differences between two policies over 5 seeds hold the true difference,
// paired by seed, and in parentheses how many of Student's do. All policies have the rate that the weakest one
// sustains, times the load. The truth is the mean of all runs, from which the seeds are drawn 2000 times. POLICIES
// lists the policies; REPETITIONS, REQUESTS, LOADS, ARRIVALS and SET are those of BenchmarkArrivals.
//
//	go test ./bench/scenario -run '^$' -bench Pairs -benchtime 1x -timeout 0
func BenchmarkPairs(b *testing.B) {
	repetitions, err := strconv.Atoi(textOf("REPETITIONS", "200"))
	if err != nil {
		b.Fatal(err)
	}
	n, err := strconv.Atoi(textOf("REQUESTS", "2000"))
	if err != nil {
		b.Fatal(err)
	}
	policies := strings.Split(textOf("POLICIES", "plan-and-route,affinity,least-loaded"), ",")
	metrics := []result.ID{result.MeanE2E, result.MeanTTFT, result.P99TTFT}
	fmt.Printf("\n| arrivals | load | policies | E2E | TTFT | P99 TTFT |\n|---|---:|---|---:|---:|---:|\n")
	for _, c := range arrivalCases {
		if !strings.Contains(c[0], os.Getenv("ARRIVALS")) || c[0] == "log" {
			continue
		}
		cases, least := make([]*coverageCase, len(policies)), math.Inf(1)
		for i, policy := range policies {
			set := strings.Fields(c[1] + " policy=" + policy + " " + os.Getenv("SET"))
			cases[i] = &coverageCase{settings: set}
			if err := cases[i].measure(b); err != nil {
				b.Fatal(c[0], err)
			}
			least = min(least, cases[i].capacity)
		}
		for _, load := range strings.Split(textOf("LOADS", "0.5,0.8,0.95"), ",") {
			by := make([][]*result.Result, len(policies))
			for i, cc := range cases {
				cc.capacity = least
				if cc.load, err = strconv.ParseFloat(load, 64); err != nil {
					b.Fatal(err)
				}
				by[i] = make([]*result.Result, repetitions)
				if err := parallel.Do(b.Context(), repetitions, func(k int) (err error) {
					by[i][k], err = cc.run(b, n, uint64(5000+k), 0)
					return err
				}, nil); err != nil {
					b.Fatal(c[0], err)
				}
			}
			for i := range policies {
				for j := i + 1; j < len(policies); j++ {
					row := fmt.Sprintf("| %s | %s | %s, %s |", c[0], load, policies[i], policies[j])
					for _, id := range metrics {
						student, own := coveredPairs(by[i], by[j], id)
						row += fmt.Sprintf(" %.0f %% (%.0f) |", 100*own, 100*student)
					}
					fmt.Println(row)
				}
			}
		}
	}
}

// coveredPairs is the share of the intervals over 5 seeds that hold the mean difference of all runs, with Student's t
// and as sweeps have them.
func coveredPairs(a, b []*result.Result, id result.ID) (student, own float64) {
	all := make([]float64, len(a))
	zero := make([]float64, len(a))
	for i := range a {
		x, _ := a[i].Metrics.Get(id)
		y, _ := b[i].Metrics.Get(id)
		all[i] = x - y
	}
	truth, rng := stats.Mean(all).Mean, rand.New(rand.NewPCG(43, 2))
	const draws, seeds = 2000, 5
	for range draws {
		drawn := make([]float64, seeds)
		for i := range drawn {
			drawn[i] = all[rng.IntN(len(all))]
		}
		if e := stats.Mean(drawn); e.Low <= truth && truth <= e.High {
			student += 1. / draws
		}
		if e := stats.Paired(drawn, zero[:seeds]); e.Low <= truth && truth <= e.High {
			own += 1. / draws
		}
	}
	return student, own
}

// coveredOverSeeds is the share of the intervals over a number of seeds that hold the mean of all runs, with Student's
// t and as sweeps have them.
func coveredOverSeeds(runs []*result.Result, id result.ID, seeds int) (student, own float64) {
	metric := id.Metric().Name
	all, least := make([]float64, len(runs)), make([]float64, len(runs))
	for i, r := range runs {
		all[i], _ = r.Metrics.Get(id)
		least[i] = math.NaN()
		for _, f := range r.Steady.Floors {
			if f.Metric == metric {
				least[i] = f.Least
			}
		}
	}
	truth, rng := stats.Mean(all).Mean, rand.New(rand.NewPCG(43, 1))
	const draws = 2000
	for range draws {
		drawn, floors := make([]float64, seeds), make([]float64, seeds)
		for i := range drawn {
			k := rng.IntN(len(all))
			drawn[i], floors[i] = all[k], least[k]
		}
		if e := stats.Mean(drawn); e.Low <= truth && truth <= e.High {
			student += 1. / draws
		}
		if e := steady.OverRuns(stats.Fresh, metric, drawn, floors); e.Low <= truth && truth <= e.High {
			own += 1. / draws
		}
	}
	return student, own
}

// shortShare is the share of the runs that are too short for the interval of a metric, or not steady.
func shortShare(runs []*result.Result, id result.ID) float64 {
	n := 0
	for _, r := range runs {
		if len(withinRun(r, id)) == 0 {
			n++
		}
	}
	return float64(n) / float64(len(runs))
}

// withinRun returns the interval of a metric, if the run has one.
func withinRun(r *result.Result, id result.ID) (list []steady.Interval) {
	for _, in := range r.Steady.Intervals {
		if of, ok := result.IDOf(in.Metric); ok && of == id {
			list = append(list, in)
		}
	}
	return list
}
