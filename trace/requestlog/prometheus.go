package requestlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"lorasim/trace"
)

// query is the answer of Prometheus to a range query (/api/v1/query_range).
type query struct {
	series []series
}

type series struct {
	labels map[string]string
	points []point // by time
}

type point struct{ at, value float64 } // s since 1970

// parseQuery reads one answer.
func parseQuery(text []byte) ([]query, error) {
	var answer struct {
		Status string `json:"status"`
		Data   struct {
			Type   string `json:"resultType"`
			Result []struct {
				Metric map[string]string `json:"metric"`
				Values [][2]json.RawMessage
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if answer.Data.Type != "matrix" {
		return nil, fmt.Errorf("the result is a %s, expected a matrix: the answer to query_range", answer.Data.Type)
	}
	var q query
	for _, r := range answer.Data.Result {
		s := series{labels: r.Metric}
		for _, v := range r.Values {
			at, err := strconv.ParseFloat(scalar(v[0]), 64)
			if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
				return nil, fmt.Errorf("%s is not a time", v[0])
			}
			x, err := strconv.ParseFloat(scalar(v[1]), 64)
			if err != nil {
				return nil, fmt.Errorf("%s is not a value", v[1])
			}
			if !math.IsNaN(x) && !math.IsInf(x, 0) { // as 0/0 gives
				s.points = append(s.points, point{at, x})
			}
		}
		slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
		q.series = append(q.series, s)
	}
	return []query{q}, nil
}

// adapterLabels are labels with the adapter of a series, the more specific ones first.
var adapterLabels = []string{"adapter", "lora", "lora_name", "adapter_name", "lora_adapter", "model_name", "model",
	"deployment", "tenant"}

func (s *series) adapter() string {
	for _, l := range adapterLabels {
		if v := s.labels[l]; v != "" {
			return v
		}
	}
	return ""
}

func (s *series) name() string { return s.labels["__name__"] }

// increases returns the number of requests (or observations) from each point to the next. A counter only grows,
// except when its server restarts; any other value is a rate per second.
func (s *series) increases() []float64 {
	counter := s.isCounter()
	out := make([]float64, max(len(s.points)-1, 0))
	for i := range out {
		a, b := s.points[i], s.points[i+1]
		switch {
		case !counter:
			out[i] = max(b.value, 0) * (b.at - a.at)
		case b.value >= a.value:
			out[i] = b.value - a.value
		default: // the counter began at 0 again
			out[i] = b.value
		}
	}
	return out
}

// isCounter reports whether the series is a counter, by its name where the query kept it; rate() removes the name.
func (s *series) isCounter() bool {
	n := s.name()
	return strings.HasSuffix(n, "_total") || strings.HasSuffix(n, "_bucket") || strings.HasSuffix(n, "_count")
}

// bucket is one bucket of a histogram of lengths: tokens above low, at most high.
type bucket struct{ low, high, weight float64 }

// lengths are histograms of token counts, by adapter; "" holds all together.
type lengths map[string][]bucket

// draw makes a workload that has the rates and length histograms of range queries. Within an interval between two
// points arrivals are a Poisson process; within a bucket of a histogram lengths are log-uniform.
func draw(queries []query, o *Options) (*trace.Workload, *Report, error) {
	report := &Report{Format: "range queries of Prometheus"}
	var rates []series
	prompts, outputs := lengths{}, lengths{}
	for _, q := range queries {
		plain := slices.DeleteFunc(slices.Clone(q.series), func(s series) bool { return s.labels["le"] != "" })
		rates = append(rates, plain...)
		if len(plain) == len(q.series) {
			continue
		}
		what, err := lengthsOf(q)
		switch {
		case err != nil:
			return nil, nil, err
		case what == Prompt:
			prompts.add(q)
		default:
			outputs.add(q)
		}
	}
	switch {
	case len(rates) == 0:
		return nil, nil, errors.New("no range query holds rates of requests: expected one without the label le, " +
			"such as rate(vllm:request_success_total[1m])")
	case len(prompts) == 0:
		return nil, nil, missingHistogram("prompt", "vllm:request_prompt_tokens_bucket")
	case len(outputs) == 0:
		return nil, nil, missingHistogram("output", "vllm:request_generation_tokens_bucket")
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x70726f6d)) // "prom"
	b := &builder{options: *o, report: report, index: map[string]int32{}}
	for i := range rates {
		if err := b.drawSeries(&rates[i], prompts, outputs, rng); err != nil {
			return nil, nil, err
		}
	}
	report.note("drawn with seed %d: Poisson arrivals within each interval, lengths log-uniform within each bucket",
		o.Seed)
	report.Rows = int64(len(b.requests))
	return b.workload()
}

func missingHistogram(what, example string) error {
	return fmt.Errorf("no range query holds a histogram of %s tokens: expected one by (le), such as "+
		"sum by (le, model_name) (increase(%s[1h]))", what, example)
}

// lengthsOf returns the field that a histogram counts, by the names of its series.
func lengthsOf(q query) (Field, error) {
	for _, s := range q.series {
		switch n := s.name() + " " + s.labels["type"] + " " + s.labels["gen_ai_token_type"]; {
		case strings.Contains(n, "prompt") || strings.Contains(n, "input"):
			return Prompt, nil
		case strings.Contains(n, "generation") || strings.Contains(n, "output") || strings.Contains(n, "completion"):
			return Output, nil
		}
	}
	return "", errors.New("a histogram does not say whether it counts prompt or output tokens: " +
		"keep its name in the query (as in vllm:request_prompt_tokens_bucket)")
}

// add enters the histogram of a query: observations in all, at the last point less those at the first.
func (l lengths) add(q query) {
	cumulative := map[string]map[float64]float64{}
	for i := range q.series {
		s := &q.series[i]
		le, err := strconv.ParseFloat(s.labels["le"], 64)
		if err != nil {
			continue
		}
		n := 0.0
		for _, x := range s.increases() {
			n += x
		}
		for _, adapter := range []string{s.adapter(), ""} {
			if cumulative[adapter] == nil {
				cumulative[adapter] = map[float64]float64{}
			}
			cumulative[adapter][le] += n
			if s.adapter() == "" {
				break
			}
		}
	}
	for adapter, counts := range cumulative {
		low, below := 0.0, 0.0
		for _, high := range slices.Sorted(maps.Keys(counts)) {
			if w := counts[high] - below; w > 0 {
				end := high
				if math.IsInf(high, 1) {
					end = max(2*low, 1) // nothing says how long the longest are
				}
				l[adapter] = append(l[adapter], bucket{low, end, w})
			}
			low, below = high, max(below, counts[high])
		}
	}
}

// draw draws a length of an adapter, or of all where the adapter has no histogram of its own.
func (l lengths) draw(adapter string, rng *rand.Rand) int32 {
	buckets := l[adapter]
	if len(buckets) == 0 {
		buckets = l[""]
	}
	total := 0.0
	for _, b := range buckets {
		total += b.weight
	}
	x := rng.Float64() * total
	for _, b := range buckets {
		if x -= b.weight; x < 0 {
			low := math.Log(b.low + 1)
			n := math.Exp(low + rng.Float64()*(math.Log(b.high+1)-low))
			return int32(min(max(math.Floor(n), 1, b.low+1), max(b.high, 1)))
		}
	}
	return 1
}

// drawSeries draws the requests of one series.
func (b *builder) drawSeries(s *series, prompts, outputs lengths, rng *rand.Rand) error {
	most := cmp.Or(b.options.MaxDrawn, 20_000_000)
	name := s.adapter()
	for i, mean := range s.increases() {
		at, to := s.points[i].at, s.points[i+1].at
		if len(b.requests)+int(min(mean, float64(most))) >= most {
			return fmt.Errorf("the rates give more than %d requests", most)
		}
		if mean <= 0 || to <= at {
			continue
		}
		for gap := (to - at) / mean; ; {
			if at += rng.ExpFloat64() * gap; at >= to {
				break
			}
			b.add(request{at: int64(at * 1e9), Request: trace.Request{Adapter: b.adapter(name),
				Prompt: prompts.draw(name, rng), Output: outputs.draw(name, rng)}})
		}
	}
	return nil
}
