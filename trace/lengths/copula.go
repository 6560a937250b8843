package lengths

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// Copula draws correlated lengths: the two histograms are the marginals of
// prompt and output, joined by a Gaussian copula. With standard normal x and
// y = Rho x + sqrt(1-Rho^2) z, the lengths are
//
//	prompt = round(PromptScale * Q_prompt(Phi(x)))
//	output = round(OutputScale * Q_output(Phi(y)))
//
// where Q is the quantile function of a histogram, even within each bin. The
// scales turn tokens of another tokenizer into those of the model. A pair
// outside the limits is drawn again, as a benchmark drops such conversations;
// so the means and the correlation that result depend on the limits too.
//
// (R. B. Nelsen, An Introduction to Copulas, 2006, section 3.1.)
type Copula struct {
	Prompt, Output           Marginal
	PromptScale, OutputScale float64
	Rho                      float64 // of the normals, -1 to 1
	Limits                   Limits
	// EOS is the probability with which any token ends the reply before its
	// length is reached.
	EOS float64
}

// Limits bound the lengths of a request, tokens, both ends included.
type Limits struct {
	PromptMin, PromptMax int32
	OutputMin, OutputMax int32
	SumMax               int32
}

// NoLimits let any length >= 1 pass.
func NoLimits() Limits { return Limits{1, NoCap, 1, NoCap, NoCap} }

func (l Limits) hold(prompt, output float64) bool {
	return prompt >= float64(l.PromptMin) && prompt <= float64(l.PromptMax) &&
		output >= float64(l.OutputMin) && output <= float64(l.OutputMax) &&
		prompt+output <= float64(l.SumMax)
}

// mostTries is how often a pair may be drawn before it is taken for the rule
// that none lies within the limits.
const mostTries = 10_000

// Check says what is wrong with the law, or nil: settings out of their range,
// or limits that all but never hold.
func (c *Copula) Check() error {
	for _, s := range []struct {
		what string
		v    float64
	}{{"prompt_scale", c.PromptScale}, {"output_scale", c.OutputScale}} {
		if !(s.v > 0) || s.v > 1e6 {
			return fmt.Errorf("%s is %v, expected a number > 0, at most 10^6", s.what, s.v)
		}
	}
	switch l := c.Limits; {
	case !(c.Rho >= -1 && c.Rho <= 1):
		return fmt.Errorf("rho is %v, expected -1 to 1", c.Rho)
	case !(c.EOS >= 0 && c.EOS < 1):
		return fmt.Errorf("eos is %v, expected a probability below 1", c.EOS)
	case l.PromptMin < 1 || l.OutputMin < 1:
		return errors.New("prompt_min and output_min must be >= 1 token")
	}
	r := rand.New(rand.NewPCG(1, stream))
	for range 1000 {
		if _, _, ok := c.pair(r); ok {
			return nil
		}
	}
	return errors.New("not one of 1000 drawn pairs of lengths lies within the limits")
}

// Draw returns two lengths. The law must have passed Check.
func (c *Copula) Draw(r *rand.Rand) (prompt, output int32) {
	for range mostTries {
		if p, o, ok := c.pair(r); ok {
			return int32(p), c.cut(int32(o), r)
		}
	}
	return c.Limits.PromptMin, c.Limits.OutputMin // never, to all intents: see Check
}

// pair draws one pair and tells whether it lies within the limits.
func (c *Copula) pair(r *rand.Rand) (prompt, output float64, ok bool) {
	x, z := r.NormFloat64(), r.NormFloat64()
	y := float64(c.Rho*x) + float64(math.Sqrt(1-c.Rho*c.Rho)*z)
	prompt = math.Round(c.PromptScale * c.Prompt.Quantile(distuv.UnitNormal.CDF(x)))
	output = math.Round(c.OutputScale * c.Output.Quantile(distuv.UnitNormal.CDF(y)))
	return prompt, output, c.Limits.hold(prompt, output)
}

// cut ends a reply at its first token that happens to be an end-of-sequence
// token: the number of tokens up to there is geometric.
func (c *Copula) cut(output int32, r *rand.Rand) int32 {
	if c.EOS == 0 {
		return output
	}
	n := 1 + math.Floor(-r.ExpFloat64()/math.Log1p(-c.EOS))
	return int32(min(float64(output), n))
}

// Scaled returns the law with both scales multiplied.
func (c *Copula) Scaled(prompt, output float64) *Copula {
	s := *c
	s.PromptScale *= prompt
	s.OutputScale *= output
	return &s
}
