package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	fwkfc "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/flowcontrol"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	fwk "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	attrconc "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/attribute/concurrency"
	attrprefix "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/attribute/prefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/picker"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/tokenload"
)

// A recorder keeps the plugins' answers for the current request of one engine.
type recorder struct {
	mu       sync.Mutex
	rng      *rand.Rand // nil: the real picker decides
	filters  []FilterOut
	scores   map[string]map[string]float64
	totals   map[string]float64
	best     []string
	picked   []string
	picker   string
	prefixes map[string][3]int // match, total, block size
	inflight map[string][2]int64
}

func (r *recorder) reset() {
	r.filters, r.scores, r.totals, r.best, r.picked, r.picker = nil, nil, nil, nil, nil, ""
	r.prefixes, r.inflight = nil, nil
}

type recKey struct{}

func recFrom(ctx context.Context) *recorder { r, _ := ctx.Value(recKey{}).(*recorder); return r }

func epName(e fwk.Endpoint) string { return e.GetMetadata().NamespacedName.Name }

type recScorer struct {
	fwk.Scorer
	rec *recorder
}

func (s recScorer) Consumes() map[string]any {
	// v1.5.0 refuses token-load-scorer beside the producer that it needs ("data type mismatch ...
	// InFlightLoadKey": both declare a pointer, and pointers are compared). The scorer declares
	// nothing here, so that its scores can be recorded.
	if s.TypedName().Type == tokenload.TokenLoadScorerType {
		return nil
	}
	if c, ok := s.Scorer.(fwkplugin.ConsumerPlugin); ok {
		return c.Consumes()
	}
	return nil
}

func (s recScorer) Score(
	ctx context.Context, cs *fwk.CycleState, q *fwk.LLMRequest, eps []fwk.Endpoint,
) map[fwk.Endpoint]float64 {
	out := s.Scorer.Score(ctx, cs, q, eps)
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	m := map[string]float64{}
	for e, v := range out {
		m[epName(e)] = v
	}
	if s.rec.scores == nil {
		s.rec.scores = map[string]map[string]float64{}
	}
	s.rec.scores[s.TypedName().Name] = m
	// Output of the data producers, for debugging.
	for _, e := range eps {
		if v, ok := e.Get(attrprefix.PrefixCacheMatchInfoKey); ok {
			if s.rec.prefixes == nil {
				s.rec.prefixes = map[string][3]int{}
			}
			i := v.(*attrprefix.PrefixCacheMatchInfo)
			s.rec.prefixes[epName(e)] = [3]int{i.MatchBlocks(), i.TotalBlocks(), i.BlockSizeTokens()}
		}
		if v, ok := e.Get(attrconc.InFlightLoadKey); ok {
			if s.rec.inflight == nil {
				s.rec.inflight = map[string][2]int64{}
			}
			i := v.(*attrconc.InFlightLoad)
			s.rec.inflight[epName(e)] = [2]int64{i.Requests, i.Tokens}
		}
	}
	return out
}

type recFilter struct {
	fwk.Filter
	rec *recorder
}

func (f recFilter) Consumes() map[string]any {
	if c, ok := f.Filter.(fwkplugin.ConsumerPlugin); ok {
		return c.Consumes()
	}
	return nil
}

func (f recFilter) Filter_(
	ctx context.Context, cs *fwk.CycleState, q *fwk.LLMRequest, eps []fwk.Endpoint,
) []fwk.Endpoint {
	out := f.Filter.Filter(ctx, cs, q, eps)
	f.rec.mu.Lock()
	defer f.rec.mu.Unlock()
	o := FilterOut{Plugin: f.TypedName().Name, Kept: []string{}}
	for _, e := range out {
		o.Kept = append(o.Kept, epName(e))
	}
	slices.Sort(o.Kept)
	f.rec.filters = append(f.rec.filters, o)
	return out
}

// plainFilter and detector give recFilter the method's right name, as embedding hides it.
type plainFilter struct{ r recFilter }

func (f plainFilter) TypedName() fwkplugin.TypedName { return f.r.TypedName() }
func (f plainFilter) Consumes() map[string]any       { return f.r.Consumes() }
func (f plainFilter) Filter(
	ctx context.Context, cs *fwk.CycleState, q *fwk.LLMRequest, eps []fwk.Endpoint,
) []fwk.Endpoint {
	return f.r.Filter_(ctx, cs, q, eps)
}

type detector struct {
	plainFilter
	fwkfc.SaturationDetector
}

func (d detector) TypedName() fwkplugin.TypedName { return d.plainFilter.TypedName() }

type recPicker struct {
	fwk.Picker
	rec *recorder
}

func (p recPicker) Pick(ctx context.Context, cs *fwk.CycleState, in []*fwk.ScoredEndpoint) *fwk.ProfileRunResult {
	p.rec.mu.Lock()
	defer p.rec.mu.Unlock()
	slices.SortFunc(in, func(a, b *fwk.ScoredEndpoint) int { return cmp.Compare(epName(a), epName(b)) })
	p.rec.totals = map[string]float64{}
	top := in[0].Score
	for _, e := range in {
		p.rec.totals[epName(e)] = e.Score
		top = max(top, e.Score)
	}
	p.rec.best = nil
	for _, e := range in {
		if e.Score == top {
			p.rec.best = append(p.rec.best, epName(e))
		}
	}
	p.rec.picker = p.TypedName().Type
	byName := map[string]fwk.Endpoint{}
	for _, e := range in {
		byName[epName(e)] = e
	}
	real := p.Picker.Pick(ctx, cs, slices.Clone(in))
	p.rec.picked = nil
	for _, e := range real.TargetEndpoints {
		p.rec.picked = append(p.rec.picked, epName(e))
	}
	if p.Picker.TypedName().Type == picker.MaxScorePickerType && !slices.Contains(p.rec.best, p.rec.picked[0]) {
		panic("the picker did not pick the best")
	}
	if p.rec.rng == nil {
		return real
	}
	// The picker's own generator is seeded by the clock. A recording must be reproducible: the
	// case's generator draws one of the allowed picks.
	n := len(real.TargetEndpoints)
	from := slices.Clone(in)
	switch p.Picker.TypedName().Type {
	case picker.MaxScorePickerType:
		p.rec.rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		slices.SortStableFunc(from, func(a, b *fwk.ScoredEndpoint) int { return cmp.Compare(b.Score, a.Score) })
	case picker.WeightedRandomPickerType:
		from = slices.DeleteFunc(from, func(e *fwk.ScoredEndpoint) bool { return top > 0 && e.Score <= 0 })
		fallthrough
	default:
		p.rec.rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	}
	n = min(n, len(from))
	p.rec.picked = nil
	res := &fwk.ProfileRunResult{}
	for _, e := range from[:n] {
		p.rec.picked = append(p.rec.picked, epName(e))
		res.TargetEndpoints = append(res.TargetEndpoints, byName[epName(e)])
	}
	return res
}
