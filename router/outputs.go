package router

import (
	"lorasim/router/average"
	"lorasim/trace"
)

// Outputs estimates how many tokens requests will generate. The limit max_new_tokens is a poor estimate, because
// clients send a constant and most outputs end earlier. The estimate is the mean of the adapter's latest outputs;
// without any, the mean over all adapters; without any, a constant. It never exceeds the limit. The caller of a
// router keeps one Outputs and sets [Request.Expected].
type Outputs struct {
	all average.Mean
	by  []average.Mean
}

// NewOutputs returns an estimator without observations for n adapters.
func NewOutputs(adapters int) *Outputs { return &Outputs{by: make([]average.Mean, adapters)} }

// Grow adds n adapters.
func (o *Outputs) Grow(adapters int) { o.by = append(o.by, make([]average.Mean, adapters)...) }

// Expect returns the expected output of a request, tokens, at least 1. A limit of 0 is unknown.
func (o *Outputs) Expect(adapter, budget int32) int32 {
	expected := o.all.Or(UnknownOutput)
	if adapter != trace.BaseModel {
		expected = o.by[adapter].Or(expected)
	}
	n := max(int32(expected+0.5), 1)
	if budget > 0 {
		n = min(n, budget)
	}
	return n
}

// Ended notes the output length of a request that ended successfully.
func (o *Outputs) Ended(adapter, output int32) {
	o.all.Add(float64(output))
	if adapter != trace.BaseModel {
		o.by[adapter].Add(float64(output))
	}
}

// UnknownOutput is the expected output of a request of which nothing is known, tokens.
const UnknownOutput = 200

// ExpectedOutput returns the expected output, tokens: Expected, or without an estimate [UnknownOutput], at most MaxNew.
func (r Request) ExpectedOutput() float64 {
	switch {
	case r.Expected > 0:
		return float64(r.Expected)
	case r.MaxNew > 0:
		return min(UnknownOutput, float64(r.MaxNew))
	}
	return UnknownOutput
}
