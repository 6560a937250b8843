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
