package sim

import (
	"math"

	"lorasim/sim/profile"
)

// correction is a profile whose step times are longer by a number of steps of correctionStep.
type correction struct {
	of    *profile.Profile
	steps int
}

// correctionStep is the resolution of corrections: few profiles are compiled.
const correctionStep = 0.02

// corrected returns the workers with step times that are longer by factors, one for each worker; nil: as they are.
func (t *Twin) corrected(workers []*profile.Costs, factors []float64) []*profile.Costs {
	if factors == nil {
		return workers
	}
	list := make([]*profile.Costs, len(workers))
	for i, c := range workers {
		list[i] = c
		k := correction{c.Profile(), int(math.Round(math.Log(factors[i]) / correctionStep))}
		if k.steps == 0 {
			continue
		}
		if t.slower[k] == nil {
			t.slower[k] = k.of.Slower(math.Exp(float64(k.steps) * correctionStep)).Compile()
		}
		list[i] = t.slower[k]
	}
	return list
}
