package lengths

import (
	"math"
	"math/rand/v2"
)

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

// measured returns one of the presets.
func measured(name string) (Measured, bool) {
	m := Measured{prompt: preset{343.8, 1.8, 4090}}
	switch name {
	case "measured-rate4":
		m.output = preset{100.1, 2.12, 638}
	case "measured-stride":
		m.output = preset{157.9, 1.41, 1236}
	default:
		return Measured{}, false
	}
	m.lengths = LogNormal{m.prompt.tokens(), m.output.tokens()}
	return m, true
}

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
	list := &list{}
	list.prompts, list.outputs = m.Rescaled(n, seed)
	return list
}

// list gives lengths in order.
type list struct {
	prompts, outputs []int32
	next             int
}

func (l *list) Draw(*rand.Rand) (prompt, output int32) {
	if l.next == len(l.prompts) {
		l.next = 0
	}
	l.next++
	return l.prompts[l.next-1], l.outputs[l.next-1]
}
