package lengths

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
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

// Marginal is the distribution that a histogram stands for: the bins with the
// shares of their counts, even within a bin.
type Marginal struct {
	lo, hi []float64 // of the bins with a count
	below  []float64 // share of all counts up to and including the bin; the last is 1
}

// Quantile returns the value below which a share p of the distribution lies.
func (m *Marginal) Quantile(p float64) float64 {
	k := sort.SearchFloat64s(m.below, p)
	k = min(k, len(m.below)-1)
	start := 0.0
	if k > 0 {
		start = m.below[k-1]
	}
	part := min(max((p-start)/(m.below[k]-start), 0), 1)
	return m.lo[k] + float64(part*(m.hi[k]-m.lo[k]))
}

// largestBin bounds lengths and counts, far beyond any histogram.
const largestBin = 1e12

// add appends a bin, which must lie above those before.
func (m *Marginal) add(lo, hi, count float64) error {
	switch n := len(m.lo); {
	case !(lo >= 0) || !(hi > lo) || hi > largestBin:
		return fmt.Errorf("the bin is %v to %v, expected 0 <= lo < hi <= %g", lo, hi, largestBin)
	case !(count >= 0) || count > largestBin:
		return fmt.Errorf("count is %v, expected 0 to %g", count, largestBin)
	case n > 0 && lo < m.hi[n-1]:
		return fmt.Errorf("the bin begins at %v, within the one before, which ends at %v", lo, m.hi[n-1])
	case count == 0:
		return nil
	}
	sum := count
	if n := len(m.below); n > 0 {
		sum += m.below[n-1]
	}
	m.lo, m.hi, m.below = append(m.lo, lo), append(m.hi, hi), append(m.below, sum)
	return nil
}

// normalize turns the running sums of counts into shares.
func (m *Marginal) normalize() {
	total := m.below[len(m.below)-1]
	for i := range m.below {
		m.below[i] /= total
	}
}

// ReadMarginals reads the histograms of prompt and output lengths from a CSV
// file with the columns what (prompt or output), lo, hi and count, a row for
// each bin in ascending order. Errors name the file, line and column. The name
// [ShareGPTV3] stands for the built-in histograms.
func ReadMarginals(path string) (prompt, output Marginal, err error) {
	f := textfile.New(path, bytes.NewReader(shareGPTV3))
	if path != ShareGPTV3 {
		if f, err = textfile.Open(path, nil); err != nil {
			return prompt, output, err
		}
	}
	var what string
	var lo, hi, count float64
	csv, err := table.OpenText(f, false, []table.Column{
		{Name: "what", Value: &what}, {Name: "lo", Value: &lo}, {Name: "hi", Value: &hi}, {Name: "count", Value: &count},
	}, false)
	if err != nil {
		return prompt, output, err
	}
	defer csv.Close()
	both := map[string]*Marginal{"prompt": &prompt, "output": &output}
	for {
		if err := csv.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return prompt, output, err
		}
		m := both[what]
		if m == nil {
			return prompt, output, csv.Bad("what", fmt.Errorf("is %.40q, expected prompt or output", what))
		}
		if err := m.add(lo, hi, count); err != nil {
			return prompt, output, csv.Bad("lo", err)
		}
	}
	for _, what := range []string{"prompt", "output"} {
		if len(both[what].below) == 0 {
			return prompt, output, fmt.Errorf("%s: the %s histogram has no counts", path, what)
		}
		both[what].normalize()
	}
	return prompt, output, nil
}

// ShareGPTV3 names the built-in histograms: prompt and reply lengths of the
// first two turns of ShareGPT V3 (prompts of 4 to 1024 tokens, replies of at
// least 4, 2048 together), in 30 bins, counted by another tokenizer than that
// of Llama 3.1 or Qwen 2.5. Source: GPULLMAdapterOptimization by Ferran Agullo
// Lopez et al. (arXiv 2508.08343), Apache-2.0.
const ShareGPTV3 = "sharegpt-v3"

//go:embed sharegpt_v3.csv
var shareGPTV3 []byte
