// Package measured reads measured runs and predicts them with the simulator. Each format has a file with its reader,
// and one with its prediction if that is long:
//
//   - records.go: runs of which every request was recorded ([Recording])
//   - logs.go: closed-loop blocks of serving-benchmark logs ([Block])
//   - points.go: a table of closed-loop points ([Point]), predicted with computed profiles
//   - runs.go: a table of runs of a cluster ([Run]); lengths of requests are drawn from what is known of them
//   - hours.go: a table of hours of vLLM with many adapters ([Hour])
//
// A prediction has the measured and the predicted [Values] side by side: a [Comparison]. Package check summarizes
// comparisons, package fit moves a profile until they agree.
package measured

import "lorasim/sim/profile"

// Uses of a run.
const (
	Calibration = "calibration" // may be fitted
	Validation  = "validation"  // only compared
	Held        = "held"        // of a table that was kept aside
)

// Comparison is the measured and the predicted values of a run. Spread is the relative standard
// deviation of the prediction over the seeds. Error is predicted / measured - 1.
type Comparison struct {
	Measured  Values `json:"measured"`
	Predicted Values `json:"predicted,omitempty"`
	Spread    Values `json:"spread,omitempty"`
	Error     Values `json:"error,omitempty"`
	Ran       Ran    `json:"-"`
}

// Predict sets the prediction and its errors.
func (c *Comparison) Predict(predicted Values) {
	c.Predicted, c.Error = predicted, Values{}
	for m, b := range predicted {
		if a := c.Measured[m]; a != 0 {
			c.Error[m] = (b - a) / a
		}
	}
}

// Compared returns the comparison of a row that embeds one.
func (c *Comparison) Compared() *Comparison { return c }

// Ran is the inputs of a simulated run that intervals depend on.
type Ran struct {
	profile.ValidatedRun
	Base    *profile.Profile // profile without the settings of the run
	Alike   string           // kind of the run; errors within a kind are correlated
	Repeat  string           // name shared by repeats of a run; "": not repeated
	Waiting float64          // share of their time that requests wait (record.Waiting)
	// Draws are the simulations behind a mean prediction, each with its own WaitingShare; nil: the
	// prediction is one simulation.
	Draws []Values
}
