package sweep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/bench/stats"
	"lorasim/trace"
	"lorasim/trace/resample"
)

// processes draw recorded workloads of a length in s and about 2 requests/s.
var processes = map[string]func(rng *rand.Rand, length float64) *trace.Workload{
	"Poisson": func(rng *rand.Rand, length float64) *trace.Workload {
		return drawn(rng, length, func(add func(at float64, adapter int32, text *trace.Text, output float64)) {
			for at := rng.ExpFloat64() / 2; at < length; at += rng.ExpFloat64() / 2 {
				add(at, rng.Int32N(recordedAdapters), nil, 1)
			}
		})
	},
	// clusters of a mean of 5 requests within about 2 s
	"bursts": func(rng *rand.Rand, length float64) *trace.Workload {
		return drawn(rng, length, func(add func(at float64, adapter int32, text *trace.Text, output float64)) {
			for at := -10.0; at < length; at += rng.ExpFloat64() / 0.4 {
				for t := at; ; t += rng.ExpFloat64() * 0.5 {
					if add(t, rng.Int32N(recordedAdapters), nil, 1); rng.Float64() < 0.2 {
						break
					}
				}
			}
		})
	},
	// conversations of a mean of 5 turns, 15 s apart, with outputs that differ by
	// conversation, and as many in progress at the start as there are on average
	"sessions": func(rng *rand.Rand, length float64) *trace.Workload {
		id := int64(0)
		return drawn(rng, length, func(add func(at float64, adapter int32, text *trace.Text, output float64)) {
			for at := -1000.0; at < length; at += rng.ExpFloat64() / 0.4 {
				id++
				text, adapter, output := &trace.Text{ID: id}, rng.Int32N(recordedAdapters),
					math.Exp(0.7*rng.NormFloat64()-0.245)
				for t := at; ; t += rng.ExpFloat64() * 15 {
					if add(t, adapter, text, output); rng.Float64() < 0.2 {
						break
					}
				}
			}
		})
	},
	// adapters whose rates and outputs are lognormal
	"adapters": func(rng *rand.Rand, length float64) *trace.Workload {
		return drawn(rng, length, func(add func(at float64, adapter int32, text *trace.Text, output float64)) {
			for a := range int32(recordedAdapters) {
				rate, output := 2./recordedAdapters*math.Exp(0.8*rng.NormFloat64()-0.32),
					math.Exp(0.5*rng.NormFloat64()-0.125)
				for at := rng.ExpFloat64() / rate; at < length; at += rng.ExpFloat64() / rate {
					add(at, a, nil, output)
				}
			}
		})
	},
}

const recordedAdapters = 40

// drawn is a workload of the requests that draw adds, in any order; output is the
// mean of exponential outputs, in hundreds of tokens.
func drawn(
	rng *rand.Rand, length float64, draw func(add func(at float64, adapter int32, text *trace.Text, output float64)),
) *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(recordedAdapters, nil)}
	draw(func(at float64, adapter int32, text *trace.Text, output float64) {
		if at >= 0 && at < length {
			w.Requests = append(w.Requests, trace.Request{
				Arrival: at, Adapter: adapter, Prompt: 100, Output: 1 + int32(100*output*rng.ExpFloat64()), Text: text,
			})
		}
	})
	slices.SortStableFunc(w.Requests, func(a, b trace.Request) int {
		return int(math.Copysign(1, a.Arrival-b.Arrival))
	})
	return w
}

// figures are results of a workload: the mean latency at a server that takes 2.5 ms
// for a token, one request after the other (about half of its capacity), and the
// arrival rate.
func figures(w *trace.Workload, length float64) map[string]float64 {
	free, sum := 0.0, 0.0
	for i := range w.Requests {
		r := &w.Requests[i]
		free = max(free, r.Arrival) + 0.0025*float64(r.Output)
		sum += free - r.Arrival
	}
	n := float64(len(w.Requests))
	return map[string]float64{"mean latency": sum / n, "rate": n / length}
}

// coverage is the share of some recorded workloads of a length whose intervals from n resamples
// hold the truth, which is the mean of 2000 other recorded workloads, and the same
// for intervals that take resamples as fresh draws.
func coverage(t testing.TB, process, spec string, length float64, workloads, n int) (hold, naive map[string]float64) {
	s, err := resample.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	truth, rng := map[string]float64{}, rand.New(rand.NewPCG(11, 12))
	const fresh = 2000
	for range fresh {
		for name, x := range figures(processes[process](rng, length), length) {
			truth[name] += x / fresh
		}
	}
	hold, naive = map[string]float64{}, map[string]float64{}
	for i := range workloads {
		recorded := processes[process](rand.New(rand.NewPCG(uint64(i), 13)), length)
		values := map[string][]float64{}
		for seed := range n {
			w, err := resample.Draw(recorded, s, uint64(seed))
			if err != nil {
				t.Fatal(err)
			}
			for name, x := range figures(w, length) {
				values[name] = append(values[name], x)
			}
		}
		for name, xs := range values {
			if e := stats.MeanOf(stats.Resampled, xs); e.Low <= truth[name] && truth[name] <= e.High {
				hold[name] += 1 / float64(workloads)
			}
			if e := stats.Mean(xs); e.Low <= truth[name] && truth[name] <= e.High {
				naive[name] += 1 / float64(workloads)
			}
		}
	}
	return hold, naive
}

// coverageCases are those of the table in lab/docs/studies.md.
var coverageCases = []struct{ process, spec string }{
	{"Poisson", "block:60"},
	{"bursts", "block:60"},
	{"sessions", "sessions"}, {"sessions", "block:60"}, {"sessions", "block:240"},
	{"adapters", "adapters"}, {"adapters", "block:60"},
}

// BenchmarkResampleCoverage prints the table of lab/docs/studies.md: of 200 recorded
// workloads each, the share whose 95 % intervals hold the truth.
func BenchmarkResampleCoverage(b *testing.B) {
	for b.Loop() {
		fmt.Println(
			"\n| recorded process | `--resample` | mean latency, 10 min | 1 h | rate, 1 h | mean latency as of fresh draws, 1 h |\n|---|---|---:|---:|---:|---:|")
		for _, c := range coverageCases {
			short, _ := coverage(b, c.process, c.spec, 600, 200, 20)
			hour, naive := coverage(b, c.process, c.spec, 3600, 200, 20)
			fmt.Printf("| %s | `%s` | %.1f %% | %.1f %% | %.1f %% | %.1f %% |\n",
				c.process, c.spec, 100*short["mean latency"],
				100*hour["mean latency"], 100*hour["rate"], 100*naive["mean latency"])
		}
	}
}

// Of 100 recorded half hours of Poisson requests, 85 to 100 % of the intervals hold the
// truth (3 standard errors below the 92 to 95 % of the benchmark), where intervals
// that take resamples as fresh draws hold it in less than half.
func TestResampleCovers(t *testing.T) {
	hold, naive := coverage(t, "Poisson", "block:60", 1800, 100, 10)
	for name, share := range hold {
		if share < 0.85 || naive[name] > 0.6 {
			t.Errorf("%s: %.2f of the intervals hold the truth; as of fresh draws %.2f", name, share, naive[name])
		}
	}
}
