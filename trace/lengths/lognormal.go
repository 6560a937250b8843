package lengths

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// NoCap is the cap of a distribution of tokens that has none.
const NoCap int32 = math.MaxInt32

// Tokens is a capped log-normal distribution of a number of tokens:
//
//	X = round(min(max(exp(Mu + Sigma*Z), 1), Cap)),  Z standard normal
//
// All mass beyond the cap lies on it, as where a server cuts prompts off.
type Tokens struct {
	Mu, Sigma float64
	Cap       int32
}

// FromMedian returns the distribution of a given median (tokens, before
// capping) and sigma.
func FromMedian(median, sigma float64, limit int32) (Tokens, error) {
	if err := checkTokens("median", median, sigma, limit); err != nil {
		return Tokens{}, err
	}
	return Tokens{Mu: math.Log(median), Sigma: sigma, Cap: limit}, nil
}

// FromMean returns the distribution whose mean AFTER capping is the given one
// (tokens), solving for Mu by bisection.
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

// Mean is the mean after capping and before rounding, tokens. With
// a = (ln 1 - Mu)/Sigma and b = (ln Cap - Mu)/Sigma it is
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

// Quantile returns the value below which a share p of the lengths lies, tokens.
func (t Tokens) Quantile(p float64) float64 {
	return t.clip(math.Exp(t.Mu + t.Sigma*distuv.UnitNormal.Quantile(p)))
}

// Draw returns one length.
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

func azureConv() Sampler { return fitted(preset{1155, 0.91, 4142}, preset{211, 0.70, 1000}) }
func azureCode() Sampler { return fitted(preset{2048, 0.99, 7437}, preset{28, 1.21, 1899}) }
func shareGPT() Sampler  { return fitted(preset{2340, 0.80, 8141}, preset{438.7, 0.51, 1024}) }

// Measured draws lengths as in measured runs of first turns of ShareGPT on
// servers with a context limit of 4096 tokens, whose single lengths were not
// recorded:
//
//   - prompts are log-normal with sigma 1.8, mean 343.8 after capping at 4090;
//     but 4 in 1000 lie above the context limit, even between 4097 and 4840
//     (mean 4468), and are rejected by the server,
//   - outputs, as generated: preset measured-rate4 log-normal with sigma 2.12 and
//     mean 100.1 after capping at 638, measured-stride 1.41, 157.9 and 1236.
//
// Draw draws from these distributions. Rescaled draws a whole workload that
// has these means and this number of long prompts exactly.
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

var measuredPrompts = preset{343.8, 1.8, 4090}

func measuredRate4() Measured  { return measured(measuredPrompts, preset{100.1, 2.12, 638}) }
func measuredStride() Measured { return measured(measuredPrompts, preset{157.9, 1.41, 1236}) }

// Draw returns two independent lengths.
func (m Measured) Draw(r *rand.Rand) (prompt, output int32) {
	over := r.Float64() < overLimit
	prompt, output = m.lengths.Draw(r)
	if over {
		prompt = span{overLow, overHigh}.draw(r)
	}
	return prompt, output
}

// Rescaled draws the lengths of a workload of n requests and rescales them so
// that the mean of the prompts within the context limit and that of the outputs
// are the stated ones, to within half a token in the sum, and that 4 in 1000
// prompts (to the nearest whole number) lie above the limit, at random places.
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

// rescaled draws n lengths and multiplies them by the one factor that gives
// them, capped and rounded, the preset's mean.
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

// Rescale returns a sampler for a workload of n requests: of a [Measured] one
// that gives its Rescaled lengths in order, and after n of them the same again;
// any other sampler is returned as it is.
func Rescale(s Sampler, n int, seed uint64) Sampler {
	m, ok := s.(Measured)
	if !ok || n < 1 {
		return s
	}
	list := &list{next: -1}
	list.prompts, list.outputs = m.Rescaled(n, seed)
	return list
}

// list gives lengths in order.
type list struct {
	prompts, outputs []int32
	next             int
}

func (l *list) Draw(*rand.Rand) (prompt, output int32) {
	l.next = (l.next + 1) % len(l.prompts)
	return l.prompts[l.next], l.outputs[l.next]
}
