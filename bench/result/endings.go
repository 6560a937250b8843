package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// Endings says how the requests of a run ended.
type Endings struct {
	Requests int64 `json:"requests"` // all, however they ended
	Failed   int64 `json:"failed"`
	Rejected int64 `json:"rejected"`
	Aborted  int64 `json:"aborted"`
	// Unfinished counts requests cut off at the end of the run's window.
	Unfinished int64 `json:"unfinished,omitempty"`
	// Unsent counts requests of the workload that a run that was stopped never
	// sent; they are not among Requests.
	Unsent int64 `json:"unsent,omitempty"`
	// Reasons lists why requests did not succeed, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	// CompletedSet is a fingerprint of the set of requests that succeeded: two
	// runs of one workload with the same fingerprint completed the same
	// requests. 0: not known, or none did.
	CompletedSet int64 `json:"completed_set,omitempty"`
}

// Reason is one reason why requests did not succeed.
type Reason struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Of is the number of requests that ended in a way other than record.OK.
func (e *Endings) Of(s record.Status) *int64 {
	switch s {
	case record.Failed:
		return &e.Failed
	case record.Rejected:
		return &e.Rejected
	case record.Aborted:
		return &e.Aborted
	case record.Unfinished:
		return &e.Unfinished
	}
	return new(int64)
}

// Endings returns how the requests of the run ended; nil where that is not
// known.
func (r *Result) Endings() *Endings {
	if r.Extra != nil {
		return &r.Extra.Endings
	}
	return r.Ended
}

// Unsuccessful is the number of requests that did not succeed.
func (e *Endings) Unsuccessful() int64 { return e.Failed + e.Rejected + e.Aborted + e.Unfinished }

// shownReasons is how many reasons the lines below a block give.
const shownReasons = 5

// Shortfall says in lines such as "1241 of 8819 rejected: prompt over the
// context length 4096" which requests did not succeed, and why; none where all
// did, or where that is not known.
func (r *Result) Shortfall() []string {
	e := r.Endings()
	if e == nil || e.Unsuccessful()+e.Unsent == 0 {
		return nil
	}
	var lines []string
	rest := e.Unsuccessful()
	line := func(n int64, status, reason string) {
		lines = append(lines, fmt.Sprintf("%d of %d %s: %s", n, e.Requests, status, reason))
		rest -= n
	}
	for _, q := range e.Reasons[:min(len(e.Reasons), shownReasons)] {
		line(q.Count, q.Status, format.Clip(q.Reason, maxReasonLen))
	}
	if len(lines) == 0 {
		for status := record.Failed; status < record.NumStatus; status++ {
			if n := *e.Of(status); n > 0 {
				line(n, status.String(), "no reason known")
			}
		}
	} else if rest > 0 {
		line(rest, "not completed", "other reasons")
	}
	if e.Unsent > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d not sent: the run was stopped", e.Unsent, e.Requests+e.Unsent))
	}
	return lines
}

// NoSuccess is an error where requests were sent and not one succeeded.
func (r *Result) NoSuccess() error {
	e := r.Endings()
	if n, _ := r.Metrics.Get(Completed); e == nil || n > 0 || e.Requests == 0 {
		return nil
	}
	why := ""
	if lines := r.Shortfall(); len(lines) > 0 {
		why = ": " + lines[0]
	}
	return fmt.Errorf("no request succeeded%s", why)
}

// setBits is the width of a fingerprint: a float64 holds it exactly, as tables
// of numbers have it.
const setBits = 52

// completedSet adds a request to a fingerprint, in any order: the sum of the
// ids, each mixed as in SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
func completedSet(sum int64, r *record.Request) int64 {
	z := uint64(r.ID) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((uint64(sum) + (z ^ z>>31)) & (1<<setBits - 1))
}

// InferStreaming tells from a run's numbers whether its client streamed, where
// nothing says so: gaps between tokens are seen by those alone that do. A run
// that generated more tokens than replies and saw no gap did not stream.
func (r *Result) InferStreaming() {
	if disabled, ok := r.Config["disable_stream"].(bool); ok && r.Streamed == record.StreamingUnknown {
		r.Streamed = record.StreamingIf(!disabled)
	}
	mean, ok := r.Metrics.Get(MeanITL)
	if !ok || r.Streamed != record.StreamingUnknown {
		return
	}
	p99, ok := r.Metrics.Get(P99ITL)
	tokens, _ := r.Metrics.Get(TotalOutputTokens)
	completed, _ := r.Metrics.Get(Completed)
	switch {
	case mean > 0:
		r.Streamed = record.Streamed
	case ok && p99 == 0 && tokens > completed && completed > 0:
		r.Streamed = record.NotStreamed
	}
}

// Goodput is how well a run met an SLO.
type Goodput struct {
	SLO   string  `json:"slo"`
	Good  int64   `json:"good_requests"` // successful and within every limit
	PerS  float64 `json:"good_per_s"`    // over the run's duration
	Share float64 `json:"share"`         // of all requests, failed ones included
	TTFT  float64 `json:"ttft_share"`    // of the successful requests, within this limit
	TPOT  float64 `json:"tpot_share"`    // 1 where the limit is not set
	E2E   float64 `json:"e2e_share"`

	// An adapter meets the SLO where a share Attain of its requests does, failed
	// ones included; requests to the base model count as one adapter more.
	Attain float64 `json:"attain"`
	AdapterGoodput
	// Others are those without a flash crowd of their own, where one has it.
	Others *Others `json:"others,omitempty"`
}

// AdapterGoodput is how well adapters met an SLO.
type AdapterGoodput struct {
	Adapters float64 `json:"adapter_share"` // of the adapters with requests: those that meet it
	// Fairness is Jain's index of the adapters' shares of good requests; see Fairness.
	Fairness float64 `json:"fairness"`
	Worst    *Worst  `json:"worst_adapter"` // nil: no requests
}

// Others are the neighbours of noisy adapters.
type Others struct {
	Share float64 `json:"share"` // of their requests
	TTFT  float64 `json:"p99_ttft_ms"`
	AdapterGoodput
}

// Worst is the adapter with the smallest share of good requests; of several the
// one with the most requests, then the first.
type Worst struct {
	Index    int32   `json:"adapter"` // -1: base model
	Name     string  `json:"name"`
	Requests int64   `json:"requests"`
	Share    float64 `json:"share"` // of them, within every limit
}

// SLO is a service-level objective: upper limits in milliseconds on the
// latencies of a request. A limit of 0 is not set.
type SLO struct {
	TTFT, TPOT, E2E float64
	// Attain is the share of an adapter's requests that must be within the
	// limits; 0: DefaultAttain.
	Attain float64
}

// DefaultAttain is the share of requests that must be within an SLO.
const DefaultAttain = 0.99

// Enough says whether an SLO is met that so many of the requests of an adapter met.
func (s SLO) Enough(good, requests int64) bool {
	return float64(good) >= (cmp.Or(s.Attain, DefaultAttain)-1e-9)*float64(requests)
}

var latencyNames = [...]string{"ttft", "tpot", "e2e"}

func (s *SLO) limits() [3]*float64 { return [...]*float64{&s.TTFT, &s.TPOT, &s.E2E} }

// ParseSLO reads an SLO such as "ttft:500 tpot:50 e2e:5000" (ms), which may have
// "attain:99%" beside it; spaces or commas separate the limits, and "" is the empty SLO.
func ParseSLO(spec string) (SLO, error) {
	var s SLO
	for _, part := range strings.FieldsFunc(spec, func(r rune) bool { return r == ' ' || r == ',' }) {
		if why := s.parse(part); why != "" {
			return SLO{}, fmt.Errorf("SLO %q: %q: %s", spec, part, why)
		}
	}
	if s.Empty() && s.Attain > 0 {
		return SLO{}, fmt.Errorf("SLO %q: expected a latency beside attain, as in ttft:500", spec)
	}
	return s, nil
}

// parse enters a limit, or says what is wrong with it.
func (s *SLO) parse(part string) (why string) {
	name, value, ok := strings.Cut(part, ":")
	if !ok {
		return "expected NAME:MILLISECONDS, as in ttft:500"
	}
	if name == "attain" {
		if s.Attain != 0 {
			return "given twice"
		}
		var err error
		if s.Attain, err = ParseShare(value); err != nil {
			return err.Error()
		}
		return ""
	}
	i := slices.Index(latencyNames[:], name)
	if i < 0 {
		return "unknown latency: expected ttft, tpot or e2e"
	}
	limit := s.limits()[i]
	if *limit != 0 {
		return "given twice"
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return "expected a number of milliseconds above 0"
	}
	*limit = v
	return ""
}

// String is the inverse of ParseSLO.
func (s SLO) String() string {
	var parts []string
	for i, limit := range s.limits() {
		if *limit > 0 {
			parts = append(parts, latencyNames[i]+":"+strconv.FormatFloat(*limit, 'f', -1, 64))
		}
	}
	if s.Attain > 0 {
		parts = append(parts, "attain:"+strconv.FormatFloat(s.Attain, 'f', -1, 64))
	}
	return strings.Join(parts, " ")
}

// Empty says whether no limit is set.
func (s SLO) Empty() bool { return s.TTFT == 0 && s.TPOT == 0 && s.E2E == 0 }

// ParseShare reads a share such as "99%" or "0.99".
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) {
		return 0, fmt.Errorf("%q, expected a share above 0 and up to 100%%, as in 99%% or 0.99", text)
	}
	return x, nil
}

// Met says whether a request succeeded within all limits.
func (s SLO) Met(r *record.Request) bool {
	if r.Status != record.OK {
		return false
	}
	var g Goodput
	e2e, ttft, tpot, textless := latencies(r, r.Streamed == record.NotStreamed)
	return g.count(s, ttft, tpot, e2e, textless)
}

// count adds a successful request, and says whether it met the SLO. One without
// text never had a first token and so misses a limit on TTFT.
func (g *Goodput) count(s SLO, ttft, tpot, e2e tick.Ticks, textless bool) (good bool) {
	good = true
	within := func(v tick.Ticks, limit float64, share *float64) {
		if limit == 0 || v.Milliseconds() <= limit {
			*share++
		} else {
			good = false
		}
	}
	if textless {
		ttft = tick.Max
	}
	within(ttft, s.TTFT, &g.TTFT)
	within(tpot, s.TPOT, &g.TPOT)
	within(e2e, s.E2E, &g.E2E)
	if good {
		g.Good++
	}
	return good
}

// attained is how adapters fared, the busiest first.
func (s SLO) attained(all []AdapterStats) (g AdapterGoodput) {
	shares, met := make([]float64, len(all)), 0
	for i := range all {
		a := &all[i]
		shares[i] = ratio(float64(a.Good), float64(a.Requests))
		if s.Enough(a.Good, a.Requests) {
			met++
		}
		if g.Worst == nil || shares[i] < g.Worst.Share { // the busiest are first
			g.Worst = &Worst{a.Index, a.Name, a.Requests, shares[i]}
		}
	}
	g.Adapters, g.Fairness = ratio(float64(met), float64(len(all))), stats.Jain(shares)
	return g
}

// addAdapters enters how the adapters fared, and those that are not noisy.
func (g *Goodput) addAdapters(s SLO, all []AdapterStats, noisy []int32) {
	g.Attain, g.AdapterGoodput = cmp.Or(s.Attain, DefaultAttain), s.attained(all)
	others := slices.DeleteFunc(slices.Clone(all), func(a AdapterStats) bool { return slices.Contains(noisy, a.Index) })
	if len(others) == len(all) {
		return
	}
	good, n := 0.0, 0.0
	for i := range others {
		good += float64(others[i].Good)
		n += float64(others[i].Requests)
	}
	g.Others = &Others{Share: ratio(good, n), AdapterGoodput: s.attained(others)}
}

func (p *printer) goodput(g *Goodput, many bool) {
	if g == nil {
		return
	}
	p.title("Goodput")
	p.row("SLO (ms)", g.SLO)
	p.row("Good requests", fmt.Sprint(g.Good))
	p.rowf("Goodput (req/s)", "%.2f", g.PerS)
	p.row("Good share of all requests", percent(g.Share))
	for i, share := range []float64{g.TTFT, g.TPOT, g.E2E} {
		if name := latencyNames[i]; strings.Contains(g.SLO, name) {
			p.row("Successful within "+name, percent(share))
		}
	}
	if g.Worst == nil || !many {
		return
	}
	p.row("Adapters with "+percent(g.Attain)+" good", percent(g.Adapters))
	p.worst("Worst adapter", g.Worst)
	p.rowf("Jain fairness of good shares", "%.4f", g.Fairness)
	if o := g.Others; o != nil {
		p.row("Good share beside the noisy adapter", percent(o.Share))
		p.rowf("P99 TTFT beside the noisy adapter (ms)", "%.2f", o.TTFT)
		p.row("Others with "+percent(g.Attain)+" good", percent(o.Adapters))
		p.worst("Worst of the others", o.Worst)
	}
}

func (p *printer) worst(label string, w *Worst) {
	if w != nil {
		p.rowf(label, "%s of %d, %s", percent(w.Share), w.Requests, format.Clip(w.Name, 18))
	}
}

func (p *printer) elastic(e *Elastic) {
	if e == nil {
		return
	}
	p.title("Elastic Workers")
	p.rowf("GPU-hours", "%.3f", e.GPUHours)
	if e.WorkerHours != e.GPUHours {
		p.rowf("Worker-hours", "%.3f", e.WorkerHours)
	}
	p.rowf("Workers, mean", "%.2f", e.Mean)
	p.rowf("Workers, min / max", "%d / %d", e.Min, e.Max)
	p.rowf("Scale-ups (cancelled)", "%d (%d)", e.Ups, e.CalledOff)
	p.rowf("Scale-downs (cancelled)", "%d (%d)", e.Downs, e.TakenBack)
}
