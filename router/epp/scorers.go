package epp

import (
	"math"
	"slices"
)

// leastScorer scores a number that is better when it is lower: (max - x)/(max - min), all equal 1.
type leastScorer struct{ of func(*Endpoint) int }

func (s leastScorer) score(c *cycle, in []int32, out []float64) {
	least, most := math.MaxInt, math.MinInt
	for _, i := range in {
		n := s.of(&c.eps[i])
		least, most = min(least, n), max(most, n)
	}
	for k, i := range in {
		out[k] = 1
		if most > least {
			out[k] = float64(most-s.of(&c.eps[i])) / float64(most-least)
		}
	}
}

func waiting(e *Endpoint) int { return e.Waiting }
func running(e *Endpoint) int { return e.Running }

// kvScorer is 1 - the used share of the KV cache.
type kvScorer struct{}

func (kvScorer) score(c *cycle, in []int32, out []float64) {
	for k, i := range in {
		out[k] = 1 - c.eps[i].KV
	}
}

// loraAffinity returns the score of lora-affinity-scorer: 1 if the adapter has running requests; else 0.8 if the server
// lists fewer adapters than max_lora; else 0.6 if the adapter has waiting requests; else 0. Before llm-d-router #2625,
// an adapter with running and waiting requests counts twice; with distinct, it counts once.
func loraAffinity(e *Endpoint, model string, distinct bool) float64 {
	listed := len(e.RunningAdapters) + len(e.WaitingAdapters)
	if distinct {
		listed = union(e.RunningAdapters, e.WaitingAdapters)
	}
	switch {
	case slices.Contains(e.RunningAdapters, model):
		return 1
	case listed < e.MaxLora:
		return 0.8
	case slices.Contains(e.WaitingAdapters, model):
		return 0.6
	}
	return 0
}

type loraScorer struct{}

func (loraScorer) score(c *cycle, in []int32, out []float64) {
	for k, i := range in {
		out[k] = loraAffinity(&c.eps[i], c.r.Model, false)
	}
}

// prefixScorer is the matched share of the prompt, with a part for the length of the match (llm-d).
type prefixScorer struct {
	Producer string  `json:"prefixMatchInfoProducerName"`
	Weight   float64 `json:"matchLengthWeight"`
	Scale    float64 `json:"matchLengthScaleTokens"`
}

func (s *prefixScorer) score(c *cycle, in []int32, out []float64) {
	for k, i := range in {
		m := c.match(i)
		out[k] = m.share()
		if s.Weight > 0 && m.Total > 0 {
			long := min(1, float64(m.Blocks*m.Size)/s.Scale)
			out[k] = s.Weight*long*long + (1-s.Weight)*m.share()
		}
	}
}

// tokenLoadScorer is 1 - the share of a threshold that tokens in flight are.
type tokenLoadScorer struct {
	Threshold float64 `json:"queueThresholdTokens"`
	dialect   Dialect
}

func (s *tokenLoadScorer) score(c *cycle, in []int32, out []float64) {
	for k, i := range in {
		n := c.flight.Tokens(c.eps[i].ID)
		if s.dialect == LLMD {
			n += c.uncached(i)
		}
		out[k] = 1
		if n > 0 {
			out[k] = 1 - min(float64(n), s.Threshold)/s.Threshold
		}
	}
}

// activeScorer scores the requests in flight: 1 up to a number, else from busy down to 0 for the most.
type activeScorer struct {
	Idle    int64   `json:"idleThreshold"`
	Busy    float64 `json:"maxBusyScore"`
	Timeout string  `json:"requestTimeout"`
}

func (s *activeScorer) score(c *cycle, in []int32, out []float64) {
	most := int64(0)
	for _, i := range in {
		most = max(most, c.flight.Requests(c.eps[i].ID))
	}
	for k, i := range in {
		n := c.flight.Requests(c.eps[i].ID)
		out[k] = 1
		if n > s.Idle {
			out[k] = float64(most-n) / float64(most) * s.Busy
		}
	}
}

// loadAwareScorer is 0.5 for no queue, down to 0 at a threshold.
type loadAwareScorer struct {
	Threshold int `json:"threshold"`
}

func (s *loadAwareScorer) score(c *cycle, in []int32, out []float64) {
	t := float64(s.Threshold)
	for k, i := range in {
		out[k] = 0.5 * (1 - min(float64(c.eps[i].Waiting), t)/t)
	}
}

// noHitScorer spreads requests whose prompt no endpoint has cached. The endpoint that got such a request longest ago is
// best.
type noHitScorer struct {
	Producer string `json:"prefixMatchInfoProducerName"`
	Size     int    `json:"lruSize"`

	used *lru // endpoint IDs
	cold bool // the request under way matches nothing
}

func (s *noHitScorer) score(c *cycle, in []int32, out []float64) {
	s.cold = !slices.ContainsFunc(in, func(i int32) bool { return c.match(i).Blocks > 0 })
	if !s.cold || len(in) == 1 {
		for k := range out {
			out[k] = 0.5
			if s.cold {
				out[k] = 1
			}
		}
		return
	}
	never, last := 0, float64(len(in)-1)
	for k, i := range in {
		if !s.used.has(uint64(c.eps[i].ID)) {
			out[k] = 1 - float64(never)/last
			never++
		}
	}
	for k, i := range in {
		if at := s.used.rank(uint64(c.eps[i].ID)); at >= 0 {
			out[k] = max(0, 1-float64(never+at)/last)
		}
	}
}

func (s *noHitScorer) commit(c *cycle, d *Decision) {
	if !s.cold {
		return
	}
	for i := range d.profiles {
		if p := &d.profiles[i]; len(p.Picked) > 0 {
			s.used.add(uint64(c.eps[p.Picked[0]].ID))
		}
	}
}

// latencyScorer scores predicted headroom, or without predictions a mix of load and prefix.
type latencyScorer struct {
	TTFT     float64 `json:"ttftWeight"`
	TPOT     float64 `json:"tpotWeight"`
	Strategy string  `json:"headroomSelectionStrategy"`
	KV       float64 `json:"compositeKVWeight"`
	Queue    float64 `json:"compositeQueueWeight"`
	Prefix   float64 `json:"compositePrefixWeight"`

	group []int // scratch: positions in in
}

func (s *latencyScorer) score(c *cycle, in []int32, out []float64) {
	for k := range out {
		out[k] = 0
	}
	if !slices.ContainsFunc(in, func(i int32) bool { return c.eps[i].Latency != nil }) {
		s.composite(c, in, out)
		return
	}
	for stage := range 5 {
		s.group = s.group[:0]
		for k, i := range in {
			if stageOf(c.eps[i].Latency) == stage {
				s.group = append(s.group, k)
			}
		}
		if len(s.group) > 0 {
			s.headroom(c, in, out, stage == 0 && s.Strategy == "most")
			return
		}
	}
}

// stageOf orders endpoints: both objectives met or unknown, idle, only TPOT missed, only TTFT missed, both missed.
func stageOf(l *Latency) int {
	switch {
	case l == nil || l.meets():
		return 0
	case l.Dispatched == 0:
		return 1
	case l.TTFTHeadroom >= 0:
		return 2
	case l.TPOTHeadroom >= 0:
		return 3
	}
	return 4
}

// headroom scores the group by normalised headroom: the least (or the most) is best.
func (s *latencyScorer) headroom(c *cycle, in []int32, out []float64, most bool) {
	of := func(k int) (ttft, tpot float64) {
		if l := c.eps[in[k]].Latency; l != nil {
			return math.Abs(l.TTFTHeadroom), math.Abs(l.TPOTHeadroom)
		}
		return 0, 0
	}
	lo1, hi1, lo2, hi2 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, k := range s.group {
		a, b := of(k)
		lo1, hi1, lo2, hi2 = min(lo1, a), max(hi1, a), min(lo2, b), max(hi2, b)
	}
	w1, w2 := s.weights(hi1-lo1, hi2-lo2)
	for _, k := range s.group {
		a, b := of(k)
		v := w1*normal(a, lo1, hi1) + w2*normal(b, lo2, hi2)
		if !most {
			v = 1 - v
		}
		out[k] = float64(int(100*v)+1) / 100
	}
}

// weights are those of the two dimensions; one without a range counts only where both have none.
func (s *latencyScorer) weights(range1, range2 float64) (w1, w2 float64) {
	const none = 1e-9
	w1, w2 = s.TTFT, s.TPOT
	switch {
	case range1 <= none && range2 > none:
		w1, w2 = 0, 1
	case range2 <= none && range1 > none:
		w1, w2 = 1, 0
	}
	if sum := w1 + w2; sum > 0 {
		return w1 / sum, w2 / sum
	}
	return 0.5, 0.5
}

func normal(x, lo, hi float64) float64 {
	if hi == lo {
		return 0.5
	}
	return (x - lo) / (hi - lo)
}

// composite is the score without predictions.
func (s *latencyScorer) composite(c *cycle, in []int32, out []float64) {
	longest := 0
	for _, i := range in {
		longest = max(longest, c.eps[i].Waiting)
	}
	kv, queue, prefix := s.KV, s.Queue, s.Prefix
	if sum := kv + queue + prefix; sum > 0 {
		kv, queue, prefix = kv/sum, queue/sum, prefix/sum
	} else {
		kv, queue, prefix = 1.0/3, 1.0/3, 1.0/3
	}
	for k, i := range in {
		free := 1.0
		if longest > 0 {
			free = float64(longest-c.eps[i].Waiting) / float64(longest)
		}
		v := kv*(1-c.eps[i].KV) + queue*free + prefix*c.match(i).share()
		out[k] = math.Round(100*v) / 100
	}
}
