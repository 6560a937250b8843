package requestlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/trace"
	"lorasim/trace/requestlog/evidence"
)

// query is the answer of Prometheus to a range query (/api/v1/query_range).
type query struct {
	path        string
	series      []series
	begin, last float64 // s since 1970: first and last point of all series
	step        float64 // s from one point to the next; 0: unknown, as there is one point
}

type series struct {
	labels map[string]string
	points []point // by time; a value may be NaN
}

type point struct{ at, value float64 } // s since 1970

// isQuery reports whether a JSON document is an answer of Prometheus.
func isQuery(text []byte) bool {
	return bytes.Contains(text, []byte(`"resultType"`)) || bytes.Contains(text, []byte(`"errorType"`)) &&
		bytes.Contains(text, []byte(`"status"`))
}

// parseQuery reads one answer.
func parseQuery(text []byte) (*query, error) {
	var answer struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
		Data      struct {
			Type   string `json:"resultType"`
			Result []struct {
				Metric map[string]string `json:"metric"`
				Values [][2]json.RawMessage
			} `json:"result"`
		} `json:"data"`
	}
	var head struct {
		Data struct {
			Type string `json:"resultType"`
		} `json:"data"`
	}
	json.Unmarshal(text, &head)
	err := json.Unmarshal(text, &answer)
	switch {
	case answer.Status == "error":
		return nil, fmt.Errorf("the answer of Prometheus is an error: %s: %s", answer.ErrorType, answer.Error)
	case head.Data.Type != "" && head.Data.Type != "matrix":
		return nil, fmt.Errorf("the result is a %s, expected a matrix: the answer to query_range", head.Data.Type)
	case err != nil:
		return nil, err
	case len(answer.Data.Result) == 0:
		return nil, errors.New("the query of Prometheus found no series: is the name of its metric right?")
	}
	q := &query{}
	for _, r := range answer.Data.Result {
		s := series{labels: r.Metric}
		for _, v := range r.Values {
			at, err := strconv.ParseFloat(scalar(v[0]), 64)
			if err != nil || math.IsNaN(at) || math.Abs(at) > 1e11 {
				return nil, fmt.Errorf("%s is not a time", v[0])
			}
			x, err := strconv.ParseFloat(scalar(v[1]), 64)
			if err != nil {
				return nil, fmt.Errorf("%s is not a value", v[1])
			}
			if math.IsInf(x, 0) {
				x = math.NaN()
			}
			s.points = append(s.points, point{at, x})
		}
		slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
		q.add(s)
	}
	return q, nil
}

// add adds a series. The step is the shortest time between two points of any series: some may lack points.
func (q *query) add(s series) {
	for i, p := range s.points {
		if len(q.series) == 0 && i == 0 {
			q.begin, q.last = p.at, p.at
		}
		q.begin, q.last = min(q.begin, p.at), max(q.last, p.at)
		if i > 0 && p.at > s.points[i-1].at && (q.step == 0 || p.at-s.points[i-1].at < q.step) {
			q.step = p.at - s.points[i-1].at
		}
	}
	q.series = append(q.series, s)
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

// interval is a time in which a number of requests (or observations) arrived.
type interval struct{ from, to, n float64 }

// intervals returns what a series counts. The rate at a point holds for the step that ends there, as rate() looks
// back; where no point is, nothing arrived. A counter only grows, except when its server restarts: what it grew by
// arrived between its points.
func (s *series) intervals(q *query) (list []interval) {
	counter := s.isCounter()
	var before *point
	for i := range s.points {
		p := &s.points[i]
		switch {
		case math.IsNaN(p.value):
			continue
		case !counter && p.at > q.begin: // what the first point looks back to is before the query
			list = append(list, interval{p.at - q.step, p.at, max(p.value, 0) * q.step})
		case counter && before != nil && p.value >= before.value:
			list = append(list, interval{before.at, p.at, p.value - before.value})
		case counter && before != nil: // the counter began at 0 again
			list = append(list, interval{before.at, p.at, max(p.value, 0)})
		}
		before = p
	}
	return list
}

// missing returns how many points of the query's range a series of rates lacks.
func (s *series) missing(q *query) int {
	if q.step == 0 || s.isCounter() {
		return 0
	}
	there := 0
	for _, p := range s.points {
		if !math.IsNaN(p.value) {
			there++
		}
	}
	return max(int(math.Round((q.last-q.begin)/q.step))+1-there, 0)
}

// isCounter reports whether the series is a counter: by its name where the query kept it, else if it holds whole
// numbers that only grow. rate() removes the name, and so does sum().
func (s *series) isCounter() bool {
	n := s.name()
	if strings.HasSuffix(n, "_total") || strings.HasSuffix(n, "_bucket") || strings.HasSuffix(n, "_count") {
		return true
	}
	const least = 4 // points
	var last float64
	known := 0
	for _, p := range s.points {
		if math.IsNaN(p.value) {
			continue
		}
		if p.value != math.Trunc(p.value) || known > 0 && p.value < last {
			return false
		}
		known, last = known+1, p.value
	}
	return known >= least && last > s.points[0].value
}

// bucket is one bucket of a histogram of lengths: tokens above low, at most high.
type bucket struct{ low, high, weight float64 }

// lengths are histograms of token counts, by adapter; "" holds all together.
type lengths map[string][]bucket

// draw makes a workload that has the rates and length histograms of range queries. Within an interval between two
// points arrivals are a Poisson process; within a bucket of a histogram lengths are log-uniform.
func draw(queries []query, o *Options) (*trace.Workload, *Report, error) {
	report := &Report{Format: "range queries of Prometheus"}
	var rates []query
	prompts, outputs := lengths{}, lengths{}
	for _, q := range queries {
		plain := q
		plain.series = slices.DeleteFunc(slices.Clone(q.series), func(s series) bool { return s.labels["le"] != "" })
		if len(plain.series) > 0 {
			rates = append(rates, plain)
		}
		if len(plain.series) == len(q.series) {
			continue
		}
		what, err := lengthsOf(q)
		switch {
		case err != nil:
			return nil, nil, err
		case what == evidence.Prompt:
			prompts.add(q)
		default:
			outputs.add(q)
		}
	}
	switch {
	case len(rates) == 0:
		return nil, nil, errors.New("no range query holds rates of requests: expected one without the label le, " +
			"such as sum by (model_name) (rate(vllm:request_success_total[1m]))")
	case len(prompts) == 0:
		return nil, nil, missingHistogram("prompt", "vllm:request_prompt_tokens_bucket")
	case len(outputs) == 0:
		return nil, nil, missingHistogram("output", "vllm:request_generation_tokens_bucket")
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x70726f6d)) // "prom"
	b := &builder{options: *o, report: report, index: map[string]int32{}, dated: true}
	for i := range rates {
		if err := b.drawQuery(&rates[i], prompts, outputs, rng); err != nil {
			return nil, nil, err
		}
	}
	report.note("drawn with seed %d: Poisson arrivals within each interval, lengths log-uniform within each bucket",
		o.Seed)
	report.Rows = int64(len(b.requests))
	return b.workload()
}

// drawQuery draws the requests of a query.
func (b *builder) drawQuery(q *query, prompts, outputs lengths, rng *rand.Rand) error {
	if q.step == 0 {
		return fmt.Errorf("%s: each series has one point: the step of the query is unknown", q.path)
	}
	gaps := 0
	for i := range q.series {
		s := &q.series[i]
		gaps += s.missing(q)
		if s.isCounter() && s.name() == "" {
			b.report.Assume("%s: series %q only grows, in whole numbers: a counter, not a rate", q.path, s.adapter())
		}
		if err := b.drawSeries(s, q, prompts, outputs, rng); err != nil {
			return err
		}
	}
	b.report.note("%s: step %v s; the rate at a point holds for the step that ends there", q.path, q.step)
	if gaps > 0 {
		b.report.Assume("%s: %d points are missing or NaN: no requests arrived then", q.path, gaps)
	}
	return nil
}

func missingHistogram(what, example string) error {
	return fmt.Errorf("no range query holds a histogram of %s tokens: expected one by (le), such as "+
		"sum by (le, model_name) (increase(%s[1h]))", what, example)
}

// lengthsOf returns the field that a histogram counts, by the names of its series, else by the name of its file.
func lengthsOf(q query) (evidence.Field, error) {
	of := func(n string) evidence.Field {
		switch {
		case strings.Contains(n, "prompt") || strings.Contains(n, "input"):
			return evidence.Prompt
		case strings.Contains(n, "generation") || strings.Contains(n, "output") || strings.Contains(n, "completion"):
			return evidence.Output
		}
		return ""
	}
	for _, s := range q.series {
		if f := of(s.name() + " " + s.labels["type"] + " " + s.labels["gen_ai_token_type"]); f != "" {
			return f, nil
		}
	}
	if f := of(strings.ToLower(filepath.Base(q.path))); f != "" { // sum by (le) removes the name of the metric
		return f, nil
	}
	return "", fmt.Errorf("%s: the histogram does not say whether it counts prompt or output tokens: "+
		"keep its name in the query (as in vllm:request_prompt_tokens_bucket)", q.path)
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
		for _, x := range s.intervals(&q) {
			n += x.n
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
func (b *builder) drawSeries(s *series, q *query, prompts, outputs lengths, rng *rand.Rand) error {
	most := cmp.Or(b.options.MaxDrawn, 20_000_000)
	name := s.adapter()
	for _, x := range s.intervals(q) {
		at, to, mean := x.from, x.to, x.n
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
