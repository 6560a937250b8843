package hour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// FromMetrics draws the requests of an hour from the metrics of lorasim gateway. Between two scrapes, each worker has
// the counted requests of each adapter, with the counted tokens, at random times. A request has the mean latencies of
// its adapter. Lengths are distributed as the engines state. from and until, unless zero, cut the hour by arrival.
func FromMetrics(m *Metrics, from, until time.Time, seed uint64) (*Hour, error) {
	d := drawer{Metrics: m, prefix: "lorasim_gateway_", rng: rand.New(rand.NewPCG(seed, 0x686f7572))} // "hour"
	if len(m.targets(d.prefix+"requests_total")) == 0 {
		d.prefix = "lorasim_epp_"
	}
	if len(m.targets(d.prefix+"requests_total")) == 0 {
		return nil, errors.New("neither an access log nor metrics of lorasim gateway " +
			"(lorasim_gateway_requests_total), which count requests by adapter and worker")
	}
	d.prompt = m.shape("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram")
	d.output = m.shape("vllm:request_generation_tokens", "sglang:generation_tokens_histogram")
	d.grown = d.growths()
	return d.hour(from, until)
}

// drawer draws requests from counters.
type drawer struct {
	*Metrics
	prefix         string
	prompt, output []bucket
	grown          map[counterKey]float64
	rng            *rand.Rand
}

// drawn is a drawn request before its adapters and workers have numbers. Times are in s since 1970.
type drawn struct {
	worker, adapter string
	at, ttft, e2e   float64
	prompt, output  int32
}

func (d *drawer) hour(from, until time.Time) (*Hour, error) {
	h := &Hour{Drawn: true}
	var list []drawn
	adapters, workers := map[string]bool{}, map[string]bool{}
	within := func(at float64) bool {
		t := time.Unix(0, int64(at*1e9))
		return (from.IsZero() || !t.Before(from)) && (until.IsZero() || t.Before(until))
	}
	for _, s := range d.series {
		if s.name != d.prefix+"requests_total" {
			continue
		}
		if s.points[0].at == 0 {
			return nil, fmt.Errorf("the time of scrape %s is unknown: expected a name as in TARGET-EPOCH.txt", s.target)
		}
		whole := s.labels["result"] == "complete" && s.labels["code"] == "200"
		if whole {
			workers[s.labels["worker"]], adapters[s.labels["adapter"]] = true, true
		}
		for _, x := range d.increments(s) {
			if whole {
				more, err := d.draw(s, x, within)
				if err != nil {
					return nil, err
				}
				list = append(list, more...)
				continue
			}
			if n := int(math.Round(min(x.n, maxDrawn))); within(x.to) && n > 0 {
				code, _ := strconv.Atoi(s.labels["code"])
				h.Asked += n
				h.leave(fmt.Sprintf("code %d, %s", code, s.labels["result"]), clientError(code), n)
			}
		}
		if len(list) > maxDrawn {
			return nil, fmt.Errorf("the metrics count more than %d requests: cut the hour with --from and --until",
				maxDrawn)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the metrics count no request with a whole reply in this time: " +
			"expected several scrapes of the gateway")
	}
	delete(adapters, baseModel)
	number := func(names map[string]bool) (sorted []string, index map[string]int32) {
		sorted, index = slices.SortedFunc(maps.Keys(names), natural), map[string]int32{baseModel: trace.BaseModel}
		for i, name := range sorted {
			index[name] = int32(i)
		}
		return sorted, index
	}
	names, adapter := number(adapters)
	for _, name := range names {
		h.Adapters = append(h.Adapters, trace.Adapter{Name: name})
	}
	var worker map[string]int32
	h.Workers, worker = number(workers)
	slices.SortStableFunc(list, func(a, b drawn) int { return cmp.Compare(a.at, b.at) })
	begin := list[0].at
	h.Begin = time.Unix(0, int64(begin*1e9)).UTC()
	h.Asked += len(list)
	for _, r := range list {
		at, w := r.at-begin, worker[r.worker]
		h.add(record.Request{Adapter: adapter[r.adapter], Arrival: at, Sent: at, FirstToken: at + min(r.ttft, r.e2e),
			Finish: at + r.e2e, Prompt: r.prompt, Output: r.output, WorkerFirst: w, WorkerLast: w,
			Streamed: record.Streamed})
	}
	middle := begin + h.Requests[0].Arrival + h.length()/2
	h.shares = [2][]share{d.shares(func(at float64) bool { return at <= middle }),
		d.shares(func(at float64) bool { return at > middle })}
	return h, nil
}

// share is the share of requests with at most a TTFT, s.
type share struct{ ttft, of float64 }

// shares returns the distribution of the TTFT over the scrapes at some times. Bounds that nearly all or hardly any
// requests keep are left out.
func (d *drawer) shares(within func(at float64) bool) (list []share) {
	const least = 0.03
	counts, most := map[float64]float64{}, 0.0
	for _, s := range d.series {
		le, err := strconv.ParseFloat(strings.TrimPrefix(s.labels["le"], "+"), 64)
		if s.name != d.prefix+"first_byte_seconds_bucket" || err != nil {
			continue
		}
		for _, x := range d.increments(s) {
			if within(x.to) {
				counts[le] += x.n
				most = max(most, counts[le])
			}
		}
	}
	for _, le := range slices.Sorted(maps.Keys(counts)) {
		if of := counts[le] / most; of > least && of < 1-least {
			list = append(list, share{le, of})
		}
	}
	return list
}

// shareErrors returns predicted minus measured shares.
func shareErrors(seen []share, predicted []record.Request) []float64 {
	errs := make([]float64, len(seen))
	for i, x := range seen {
		n := 0
		for k := range predicted {
			if predicted[k].TTFT() <= x.ttft {
				n++
			}
		}
		errs[i] = float64(n)/float64(max(len(predicted), 1)) - x.of
	}
	return errs
}

// maxDrawn limits the number of requests that are drawn.
const maxDrawn = 4 << 20

// increment is what a counter grew by between two scrapes.
type increment struct{ from, to, n float64 }

// increments returns the growth of a counter. A counter that begins after the first scrape of its target was 0 before.
// One that falls began at 0 again.
func (m *Metrics) increments(s *series) (list []increment) {
	times := m.times(s.target)
	if i, _ := slices.BinarySearch(times, s.points[0].at); i > 0 && s.points[0].value > 0 {
		list = append(list, increment{times[i-1], s.points[0].at, s.points[0].value})
	}
	for i := 1; i < len(s.points); i++ {
		a, b := s.points[i-1], s.points[i]
		grown := b.value - a.value
		if grown < 0 {
			grown = b.value
		}
		if b.at > a.at && grown > 0 {
			list = append(list, increment{a.at, b.at, grown})
		}
	}
	return list
}

// times lists the times of the scrapes of a target.
func (m *Metrics) times(target string) []float64 {
	if m.scrape == nil {
		m.scrape = map[string][]float64{}
		for _, s := range m.series {
			for _, p := range s.points {
				m.scrape[s.target] = append(m.scrape[s.target], p.at)
			}
		}
		for target, all := range m.scrape {
			slices.Sort(all)
			m.scrape[target] = slices.Compact(all)
		}
	}
	return m.scrape[target]
}

// counterKey names what a counter of the gateway grew by until a time. The worker is "" in histograms.
type counterKey struct {
	name, target, worker, adapter string
	to                            float64
}

// growths returns what the gateway's counters grew by between scrapes.
func (d *drawer) growths() map[counterKey]float64 {
	grown := map[counterKey]float64{}
	for _, name := range []string{"prompt_tokens_total", "generation_tokens_total", "first_byte_seconds_sum",
		"first_byte_seconds_count", "request_duration_seconds_sum", "request_duration_seconds_count"} {
		for _, s := range d.series {
			if s.name != d.prefix+name {
				continue
			}
			for _, x := range d.increments(s) {
				grown[counterKey{name, s.target, s.labels["worker"], s.labels["adapter"], x.to}] += x.n
			}
		}
	}
	return grown
}

// draw draws the requests of an interval, which end in it.
func (d *drawer) draw(s *series, x increment, within func(float64) bool) (list []drawn, err error) {
	if x.n > maxDrawn {
		return nil, fmt.Errorf("counter %s grows by %g in %.0f s", s.name, x.n, x.to-x.from)
	}
	n := int(math.Round(x.n))
	worker, adapter := s.labels["worker"], s.labels["adapter"]
	prompt := d.grown[counterKey{"prompt_tokens_total", s.target, worker, adapter, x.to}]
	output := d.grown[counterKey{"generation_tokens_total", s.target, worker, adapter, x.to}]
	if n == 0 || prompt == 0 || output == 0 {
		return nil, nil // not for a model, such as GET /version
	}
	mean := func(name string) float64 {
		sum := d.grown[counterKey{name + "_sum", s.target, "", adapter, x.to}]
		return sum / max(d.grown[counterKey{name + "_count", s.target, "", adapter, x.to}], 1)
	}
	ttft, e2e := mean("first_byte_seconds"), mean("request_duration_seconds")
	prompts, outputs := lengthsOf(d.prompt, n, prompt, d.rng), lengthsOf(d.output, n, output, d.rng)
	for i := range n {
		at := x.from + d.rng.Float64()*(x.to-x.from) - e2e
		if within(at) {
			list = append(list, drawn{worker, adapter, at, ttft, e2e, prompts[i], outputs[i]})
		}
	}
	return list, nil
}

// bucket is a bucket of a histogram of lengths.
type bucket struct{ low, high, weight float64 }

// shape returns the histogram of lengths over all workers.
func (m *Metrics) shape(names ...string) (list []bucket) {
	counts := map[float64]float64{}
	for _, name := range names {
		for _, s := range m.series {
			if s.name != name+"_bucket" {
				continue
			}
			le, err := strconv.ParseFloat(strings.TrimPrefix(s.labels["le"], "+"), 64)
			if err != nil || !(le > 0) {
				continue
			}
			for _, x := range m.increments(s) {
				counts[le] += x.n
			}
		}
	}
	low, below := 0.0, 0.0
	for _, high := range slices.Sorted(maps.Keys(counts)) {
		if w := counts[high] - below; w > 0 {
			end := high
			if math.IsInf(high, 1) {
				end = max(2*low, 1)
			}
			list = append(list, bucket{low, end, w})
		}
		low, below = high, max(below, counts[high])
	}
	return list
}

// lengthsOf draws n lengths of a distribution with a given sum. Without a histogram they are exponential.
func lengthsOf(shape []bucket, n int, sum float64, rng *rand.Rand) []int32 {
	xs, total := make([]float64, n), 0.0
	weights := 0.0
	for _, b := range shape {
		weights += b.weight
	}
	for i := range xs {
		xs[i] = rng.ExpFloat64()
		u := rng.Float64() * weights
		for _, b := range shape {
			if u -= b.weight; u < 0 {
				low := math.Log(b.low + 1)
				xs[i] = math.Exp(low + rng.Float64()*(math.Log(b.high+1)-low))
				break
			}
		}
		total += xs[i]
	}
	most := float64(math.MaxInt32)
	if len(shape) > 0 {
		most = max(shape[len(shape)-1].high, sum/float64(n))
	}
	list := make([]int32, n)
	slices.SortFunc(xs, func(a, b float64) int { return cmp.Compare(b, a) })
	for i, x := range xs { // what is cut off the longest is divided among the others
		length := min(max(math.Round(x*sum/total), 1), most)
		list[i], sum, total = int32(length), max(sum-length, 0), total-x
	}
	rng.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// clientError reports whether a status of HTTP says that the request was wrong.
func clientError(status int) bool {
	return status >= 400 && status < 500 && status != 408 && status != 429
}

// fitMeans fits a profile to the mean latencies of parts of the first half, for drawn requests. Coefficients that act
// on single steps alone keep their values.
func (s *hourStudy) fitMeans(ctx context.Context, from *profile.Profile, report func(done, total int64)) (*fit.Result,
	error) {
	names := []string{"decode.base_ms", "decode.per_kv_token_us", "prefill.per_token_us", "request_overhead_ms"}
	if from.Latency.Law == profile.LawAdapters {
		names = []string{"adapters.base_ms", "adapters.per_kv_token_us", "adapters.per_token_us", "request_overhead_ms"}
	}
	own := fit.Own{Coefficients: names, Data: "mean latencies of a gateway's metrics",
		Deviations: func(ctx context.Context, p *profile.Profile) ([]float64, error) {
			return s.partErrors(ctx, p, meansNoise)
		},
		Errors: func(ctx context.Context, p *profile.Profile) (stats.ErrorSummary, error) {
			errs, err := s.partErrors(ctx, p, 1)
			return stats.SummarizeErrors(errs), err
		}}
	return own.Fit(ctx, fit.Options{Start: from, Evaluations: mostFits,
		Progress: func(done, total int, _ float64) { report(int64(min(done, total)), int64(total)) }})
}

// meansNoise is the relative error of a mean latency of a part.
const meansNoise = 0.05

// partErrors returns the errors of mean TTFT and mean E2E latency of the parts of the first half, in logarithms, and
// those of the distribution of the TTFT, over noise.
func (s *hourStudy) partErrors(ctx context.Context, p *profile.Profile, noise float64) ([]float64, error) {
	got, err := s.first(ctx, p)
	if err != nil {
		return nil, err
	}
	const of = parts / 2
	errs := make([]float64, 0, 2*of)
	for k := range of {
		from, to := k*len(got)/of, (k+1)*len(got)/of
		seen := measured.Figures(s.Requests[from:to], s.Requests[from:to])
		as := measured.Figures(got[from:to], s.Requests[from:to])
		for _, m := range []measured.Metric{measured.TTFTMean, measured.E2EMean} {
			e := 0.0
			if seen[m] > 0 && as[m] > 0 {
				e = math.Log(as[m]/seen[m]) / noise
			}
			errs = append(errs, e)
		}
	}
	for _, e := range shareErrors(s.shares[0], got) {
		errs = append(errs, e/noise)
	}
	return errs, nil
}
