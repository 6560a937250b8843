package policies

import (
	"math/rand/v2"

	"lorasim/router"
)

// tieOption says how to choose among equals.
type tieOption struct {
	Ties string `default:"random" check:"oneof random first" help:"among equals: random (seeded) or first"`
}

// rand returns the generator that picks among equals, or nil for the first.
func (o *tieOption) rand(env router.Env) *rand.Rand {
	if o.Ties == "first" {
		return nil
	}
	return env.Rand()
}

// intervalOption is the time between plans.
type intervalOption struct {
	Interval float64 `default:"10" check:">=0.001" env:"interval" help:"time between plans, s"`
}
