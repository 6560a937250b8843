package router

// Outputs estimates how many tokens requests will generate. Their budget,
// max_new_tokens, does not tell: clients ask for a constant and stop earlier. The
// estimate is the mean of the adapter's latest outputs, before that of all
// adapters', before that a guess, and never above the budget. Who drives a router
// keeps one and fills in [Request.Expected].
type Outputs struct {
	all mean
	by  []mean
}

// NewOutputs knows nothing yet of so many adapters.
func NewOutputs(adapters int) *Outputs { return &Outputs{by: make([]mean, adapters)} }

// Grow makes room for so many adapters more.
func (o *Outputs) Grow(adapters int) { o.by = append(o.by, make([]mean, adapters)...) }

// Expect returns the tokens expected of a request, at least 1; a budget of 0 is
// not known.
func (o *Outputs) Expect(adapter, budget int32) int32 {
	expected := o.all.or(guessOutput)
	if isAdapter(adapter) {
		expected = o.by[adapter].or(expected)
	}
	n := max(int32(expected+0.5), 1)
	if budget > 0 {
		n = min(n, budget)
	}
	return n
}

// Ended notes the output of a request that ended well.
func (o *Outputs) Ended(adapter, output int32) {
	o.all.add(float64(output))
	if isAdapter(adapter) {
		o.by[adapter].add(float64(output))
	}
}

// output is the expected output, tokens; where nobody estimated, a guess.
func (r Request) output() float64 { return orGuess(r.Expected, r.MaxNew) }

func orGuess(expected, budget int32) float64 {
	switch {
	case expected > 0:
		return float64(expected)
	case budget > 0:
		return min(guessOutput, float64(budget))
	}
	return guessOutput
}

// left is what a request that has generated some tokens still may: at least a
// quarter of what was expected, at most its budget.
func (a *Active) left() float64 {
	expected := orGuess(a.Expected, a.MaxNew)
	left := max(expected-float64(a.Generated), expected/4)
	return min(left, float64(max(a.MaxNew-a.Generated, 1)))
}
