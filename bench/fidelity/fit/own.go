package fit

import (
	"context"

	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// Own is measurements whose runs the caller simulates.
type Own struct {
	Coefficients []string // those that the data identify, as in [Coefficients]
	Data         string   // what a profile says that it was fitted to: "20 runs on A10G"
	// Deviations simulates the runs with a profile and returns each deviation in units of the spread between repeated
	// measurements. Large deviations count less than their square.
	Deviations func(ctx context.Context, p *profile.Profile) ([]float64, error)
	// Errors returns the errors of a profile, for the result.
	Errors func(ctx context.Context, p *profile.Profile) (stats.ErrorSummary, error)
}

// ownPrior is the weight of the coefficients' values at the start.
const ownPrior = 3

// Fit fits a profile by whole simulations.
func (d *Own) Fit(ctx context.Context, o Options) (*Result, error) {
	knobs, err := o.knobs(d.Coefficients, false)
	if err != nil {
		return nil, err
	}
	o.coarse = true
	best, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, ownPrior,
		func(ctx context.Context, m *model) ([]float64, error) {
			rs, err := d.Deviations(ctx, m.profile)
			for i := range rs {
				rs[i] = robust(rs[i])
			}
			return rs, err
		})
	if err != nil {
		return nil, err
	}
	if fit.Errors, err = d.Errors(ctx, best.profile); err != nil {
		return nil, err
	}
	return fit.describe(o.Start, "%s", d.Data)
}
