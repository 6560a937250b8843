package lengths

import (
	"bytes"
	"context"
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

// NoCap is the cap of an uncapped distribution of tokens.
const NoCap int32 = math.MaxInt32

// Tokens is a capped log-normal distribution of a number of tokens:
//
//	X = round(min(max(exp(Mu + Sigma*Z), 1), Cap)),  Z standard normal
//
// All mass beyond the cap lies on the cap, as on a server that truncates prompts.
type Tokens struct {
	Mu, Sigma float64
	Cap       int32
}

// FromMedian returns the distribution with the given median (tokens, before capping), sigma and cap (tokens).
func FromMedian(median, sigma float64, limit int32) (Tokens, error) {
	if err := checkTokens("median", median, sigma, limit); err != nil {
		return Tokens{}, err
	}
	return Tokens{Mu: math.Log(median), Sigma: sigma, Cap: limit}, nil
}

// FromMean returns the distribution with the given mean after capping (tokens), sigma and cap (tokens). It solves
// for Mu by bisection.
func FromMean(mean, sigma float64, limit int32) (Tokens, error) {
	if err := checkTokens("mean", mean, sigma, limit); err != nil {
		return Tokens{}, err
	}
	t := Tokens{Sigma: sigma, Cap: limit}
	// The mean rises with Mu. At the ends it is all but 1 and the cap.
	low, high := -10*sigma-1, math.Log(float64(limit))+10*sigma+1
	for range 200 {
		t.Mu = (low + high) / 2
		if t.Mean() < mean {
			low = t.Mu
		} else {
			high = t.Mu
		}
	}
	return t, nil
}

func checkTokens(what string, center, sigma float64, limit int32) error {
	const widest = 10 // far beyond any trace: a factor of e^10 per standard deviation
	switch {
	case limit < 1:
		return fmt.Errorf("cap is %d tokens, expected >= 1", limit)
	case !(sigma >= 0 && sigma <= widest):
		return fmt.Errorf("sigma is %v, expected 0 to %d", sigma, widest)
	case !(center >= 1 && center <= float64(limit)):
		return fmt.Errorf("%s is %v tokens, expected 1 to the cap (%d)", what, center, limit)
	}
	return nil
}

// Mean returns the mean after capping and before rounding, tokens. With a = (ln 1 - Mu)/Sigma and b = (ln Cap -
// Mu)/Sigma it is
//
//	Phi(a) + exp(Mu + Sigma^2/2) (Phi(b-Sigma) - Phi(a-Sigma)) + Cap (1 - Phi(b))
func (t Tokens) Mean() float64 {
	if t.Sigma == 0 {
		return min(max(math.Exp(t.Mu), 1), float64(t.Cap))
	}
	limit := float64(t.Cap)
	a, b := -t.Mu/t.Sigma, (math.Log(limit)-t.Mu)/t.Sigma
	phi := distuv.UnitNormal.CDF
	between := math.Exp(t.Mu+t.Sigma*t.Sigma/2) * (phi(b-t.Sigma) - phi(a-t.Sigma))
	return phi(a) + between + limit*phi(-b)
}

// Quantile returns the p-quantile of the lengths, tokens; 0 <= p <= 1.
func (t Tokens) Quantile(p float64) float64 {
	return t.clip(math.Exp(t.Mu + t.Sigma*distuv.UnitNormal.Quantile(p)))
}

// Draw draws one length.
func (t Tokens) Draw(r *rand.Rand) int32 {
	return int32(math.Round(t.clip(math.Exp(t.Mu + float64(t.Sigma*r.NormFloat64())))))
}

func (t Tokens) clip(x float64) float64 { return min(max(x, 1), float64(t.Cap)) }

// LogNormal draws prompt and output lengths independently.
type LogNormal struct{ Prompt, Output Tokens }

// Draw returns two independent lengths.
func (l LogNormal) Draw(r *rand.Rand) (prompt, output int32) {
	return l.Prompt.Draw(r), l.Output.Draw(r)
}

// preset is a fitted log-normal: mean after capping and cap in tokens.
type preset struct {
	mean, sigma float64
	cap         int32
}

func (p preset) tokens() Tokens {
	t, err := FromMean(p.mean, p.sigma, p.cap)
	if err != nil {
		panic("lengths: bad preset: " + err.Error()) // the presets are constants
	}
	return t
}

// fitted returns a preset fitted to a trace. The mean is the trace's. Sigma, in
// steps of 0.01, minimises the sum of the squared log errors of median and 95th
// percentile at that mean. The cap is the largest length of the trace, but for
// the prompts of the conversation trace its 99th percentile: only 1 % lie
// above, up to 14050, while many lie just below.
//
// Lengths of the conversation trace are far from log-normal (they pile up near
// 4100 and 450 tokens), so that its quantiles are missed by a fifth to a third;
// use the trace itself where that matters. Target and outcome, tokens:
//
//	                       mean            p50          p95
//	azure-conv  prompts    1155  1155.0    1020   820   4083  3632
//	            outputs     211   211.0     129   166    451   526
//	azure-code  prompts    2048  2048.0    1469  1382   7303  7042
//	            outputs      28    28.0      13    13     90    99
//	sharegpt    prompts    2340  2340.0    1730  1769   6563  6597
//	            outputs   438.7   438.7     415   392    920   907
//
// Sources: Azure LLM inference traces 2023 (Splitwise, ISCA'24); ShareGPT
// conversations with their history, tokenised for Llama 2, at most 8k tokens.
func fitted(prompt, output preset) LogNormal { return LogNormal{prompt.tokens(), output.tokens()} }

// Measured draws lengths as in measured runs of first turns of ShareGPT on servers with a context limit of 4096
// tokens. The runs did not record single lengths.
//
//   - Prompts are log-normal with sigma 1.8 and mean 343.8 after capping at 4090. But 4 in 1000 lie above the context
//     limit, uniform between 4097 and 4840 (mean 4468), and are rejected by the server.
//   - Outputs, as generated, are log-normal: for preset measured-rate4 with sigma 2.12 and mean 100.1 after capping at
//     638; for measured-stride with 1.41, 157.9 and 1236.
//
// Draw draws from these distributions. Rescaled draws a whole workload with exactly these means and this number of
// long prompts.
type Measured struct {
	prompt, output preset
	lengths        LogNormal
}

// The share of prompts above the context limit and their range, tokens.
const (
	overLimit                = 0.004
	overLow, overHigh        = 4097, 4840
	rescaleStream     uint64 = 0x72657363616c65 // "rescale"
)

func measured(prompt, output preset) Measured {
	return Measured{prompt, output, fitted(prompt, output)}
}

// Those of the preset measured-stride.
var (
	measuredPrompts = preset{343.8, 1.8, 4090}
	measuredOutputs = preset{157.9, 1.41, 1236}
)

// Draw returns two independent lengths.
func (m Measured) Draw(r *rand.Rand) (prompt, output int32) {
	over := r.Float64() < overLimit
	prompt, output = m.lengths.Draw(r)
	if over {
		prompt = span{overLow, overHigh}.draw(r)
	}
	return prompt, output
}

// Rescaled draws the lengths of a workload of n requests and rescales them to the stated means. The mean of the
// prompts within the context limit and the mean of the outputs are exact to half a token in the sum. Of the prompts,
// 4 in 1000 (rounded) exceed the limit, at random places.
func (m Measured) Rescaled(n int, seed uint64) (prompts, outputs []int32) {
	r := rand.New(rand.NewPCG(seed, rescaleStream))
	over := int(math.Round(overLimit * float64(n)))
	within := m.prompt.rescaled(n-over, r)
	outputs = m.output.rescaled(n, r)
	// Which of the requests are long: the first ones, shuffled.
	prompts = make([]int32, 0, n)
	for range over {
		prompts = append(prompts, span{overLow, overHigh}.draw(r))
	}
	prompts = append(prompts, within...)
	r.Shuffle(n, func(i, j int) { prompts[i], prompts[j] = prompts[j], prompts[i] })
	return prompts, outputs
}

// rescaled draws n lengths and multiplies them by a common factor, so that after capping and rounding they have the
// mean of the preset.
func (p preset) rescaled(n int, r *rand.Rand) []int32 {
	x := make([]float64, n)
	for i := range x {
		x[i] = math.Exp(p.sigma * r.NormFloat64())
	}
	lengths := make([]int32, n)
	apply := func(factor float64) (sum int64) {
		for i := range x {
			lengths[i] = int32(min(max(math.Round(factor*x[i]), 1), float64(p.cap)))
			sum += int64(lengths[i])
		}
		return sum
	}
	// The sum rises with the factor in steps of 1, from n to n*cap.
	want := int64(math.Round(p.mean * float64(n)))
	low, high := -10*p.sigma, math.Log(float64(p.cap))+10*p.sigma
	for range 100 {
		middle := (low + high) / 2
		switch sum := apply(math.Exp(middle)); {
		case sum == want:
			return lengths
		case sum < want:
			low = middle
		default:
			high = middle
		}
	}
	return lengths
}

// Rescale returns a sampler for a workload of n requests. For a [Measured] sampler it yields the Rescaled lengths in
// order, and repeats them after n requests. It returns any other sampler unchanged.
func Rescale(s Sampler, n int, seed uint64) Sampler {
	m, ok := s.(Measured)
	if !ok || n < 1 {
		return s
	}
	prompts, outputs := m.Rescaled(n, seed)
	next := -1
	return sampler(func(*rand.Rand) (prompt, output int32) {
		next = (next + 1) % n
		return prompts[next], outputs[next]
	})
}

// Copula draws correlated lengths. The marginals of prompt and output are two histograms, joined by a Gaussian
// copula. With standard normal x and y = Rho x + sqrt(1-Rho^2) z, the lengths are
//
//	prompt = round(PromptScale * Q_prompt(Phi(x)))
//	output = round(OutputScale * Q_output(Phi(y)))
//
// where Q is the quantile function of a histogram, uniform within each bin. The scales convert tokens of another
// tokenizer into those of the model. A pair outside the limits is drawn again, as benchmarks drop such
// conversations. So the resulting means and correlation depend on the limits, too.
//
// (R. B. Nelsen, An Introduction to Copulas, 2006, section 3.1.)
type Copula struct {
	Prompt, Output           Marginal
	PromptScale, OutputScale float64
	Rho                      float64 // correlation of the normals x and y, -1 to 1
	Limits                   Limits
	// EOS is the probability that a token ends the reply before its drawn length.
	EOS float64
}

// Limits bounds the lengths of a request, tokens. All bounds are >= 1 and inclusive.
type Limits struct {
	PromptMin, PromptMax int32
	OutputMin, OutputMax int32
	SumMax               int32
}

func (l Limits) hold(prompt, output float64) bool {
	return prompt >= float64(l.PromptMin) && prompt <= float64(l.PromptMax) &&
		output >= float64(l.OutputMin) && output <= float64(l.OutputMax) &&
		prompt+output <= float64(l.SumMax)
}

// mostTries is the number of draws after which Draw assumes that no pair lies within the limits.
const mostTries = 10_000

// Check returns an error if a setting is out of range, or if almost no pair is within the limits.
func (c *Copula) Check() error {
	for _, s := range []struct {
		what string
		v    float64
	}{{"prompt_scale", c.PromptScale}, {"output_scale", c.OutputScale}} {
		if !(s.v > 0) || s.v > 1e6 {
			return fmt.Errorf("%s is %v, expected a number > 0, at most 10^6", s.what, s.v)
		}
	}
	switch {
	case !(c.Rho >= -1 && c.Rho <= 1):
		return fmt.Errorf("rho is %v, expected -1 to 1", c.Rho)
	case !(c.EOS >= 0 && c.EOS < 1):
		return fmt.Errorf("eos is %v, expected a probability below 1", c.EOS)
	}
	r := rand.New(rand.NewPCG(1, stream))
	for range 1000 {
		if _, _, ok := c.pair(r); ok {
			return nil
		}
	}
	return errors.New("not one of 1000 drawn pairs of lengths lies within the limits")
}

// Draw draws the lengths of a request. The copula must have passed Check.
func (c *Copula) Draw(r *rand.Rand) (prompt, output int32) {
	for range mostTries {
		if p, o, ok := c.pair(r); ok {
			return int32(p), c.cut(int32(o), r)
		}
	}
	return c.Limits.PromptMin, c.Limits.OutputMin // never, to all intents: see Check
}

// pair draws one pair and reports whether it lies within the limits.
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

// Scaled returns a copy of the copula with both scales multiplied by the given factors.
func (c *Copula) Scaled(prompt, output float64) *Copula {
	s := *c
	s.PromptScale *= prompt
	s.OutputScale *= output
	return &s
}

// A Marginal is the distribution of a histogram: the probability of a bin is proportional to its count, and the
// distribution is uniform within a bin.
type Marginal struct {
	lo, hi []float64 // of the bins with a count
	below  []float64 // share of all counts up to and including the bin; the last is 1
}

// Quantile returns the p-quantile of the distribution; 0 <= p <= 1.
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

// ReadMarginals reads the histograms of prompt and output lengths from a CSV file. Its columns are what (prompt or
// output), lo, hi and count, with one row per bin in ascending order. Errors name the file, line and column. The
// path [ShareGPTV3] selects the built-in histograms.
func ReadMarginals(ctx context.Context, path string) (prompt, output Marginal, err error) {
	f := textfile.New(path, bytes.NewReader(shareGPTV3))
	if path != ShareGPTV3 {
		if f, err = textfile.Open(ctx, path, nil); err != nil {
			return prompt, output, err
		}
	}
	var what string
	var lo, hi, count float64
	csv, err := table.OpenText(f, false, []table.Column{
		{Name: "what", Value: &what}, {Name: "lo", Value: &lo}, {Name: "hi", Value: &hi},
		{Name: "count", Value: &count},
	}, false)
	if err != nil {
		return prompt, output, err
	}
	defer csv.Close()
	both := map[string]*Marginal{"prompt": &prompt, "output": &output}
	for err = csv.Read(); err == nil; err = csv.Read() {
		m := both[what]
		if m == nil {
			return prompt, output, csv.Bad("what", fmt.Errorf("is %.40q, expected prompt or output", what))
		}
		if err := m.add(lo, hi, count); err != nil {
			return prompt, output, csv.Bad("lo", err)
		}
	}
	if !errors.Is(err, io.EOF) {
		return prompt, output, err
	}
	for _, what := range []string{"prompt", "output"} {
		if len(both[what].below) == 0 {
			return prompt, output, fmt.Errorf("%s: the %s histogram has no counts", path, what)
		}
		both[what].normalize()
	}
	return prompt, output, nil
}

// ShareGPTV3 is the name of the built-in histograms: prompt and reply lengths of the first two turns of ShareGPT V3,
// in 30 bins. Prompts have 4 to 1024 tokens, replies at least 4, both together at most 2048. The tokens were counted
// by another tokenizer than that of Llama 3.1 or Qwen 2.5. Source: GPULLMAdapterOptimization by Ferran Agullo Lopez
// et al. (arXiv 2508.08343), Apache-2.0.
const ShareGPTV3 = "sharegpt-v3"

//go:embed sharegpt_v3.csv
var shareGPTV3 []byte
