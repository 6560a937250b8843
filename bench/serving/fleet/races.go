package fleet

import (
	"fmt"

	"lorasim/router"
)

// Races has the counts of the simulated races. In a race, the policy auto simulates several policies and chooses one.
type Races struct {
	Count, Changes int64
	Failed         int64   // races that could not simulate the cluster
	Time           float64 // wall time of all races, s
	Chosen         string  // policy that routes at present; "": no race yet
	// Compared has the prediction for the latest measured choice, and the measurement. nil: none yet.
	Compared *router.Measured
	// Slower has for each worker its step time divided by that of the profile. nil: not measured yet.
	Slower []float64
}

// add counts a race.
func (r *Races) add(race *router.Race) {
	r.Count++
	if len(race.Candidates) == 0 {
		r.Failed++
	}
	r.Time += race.Seconds
	if race.Chosen != race.Incumbent {
		r.Changes++
	}
	r.Chosen, r.Slower = race.Chosen, race.Slower
	if race.Previous != nil {
		r.Compared = race.Previous
	}
}

// logRace writes a line on a race; called with mu held.
func (p *planRunner) logRace(plan *router.Plan) {
	if p.cfg.Plans == nil {
		return
	}
	race := plan.Race
	candidates := []string{}
	for _, c := range race.Candidates {
		text := fmt.Sprintf("%s %+.4f [%+.4f %+.4f]", c.Policy, c.Gain, c.Gain-1.96*c.Error, c.Gain+1.96*c.Error)
		if c.Dropped {
			text += " dropped"
		}
		candidates = append(candidates, text)
	}
	attrs := []any{"chosen", race.Chosen, "incumbent", race.Incumbent, "reason", plan.Reason, "gains", candidates,
		"requests_seen", race.Requests, "future", race.Future, "simulated", race.Simulated, "race_s", race.Seconds,
		"step_time_factors", race.Slower}
	if m := race.Previous; m != nil {
		attrs = append(attrs, "measured_requests", m.Requests, "predicted_e2e_s", m.PredictedE2E, "measured_e2e_s",
			m.E2E, "predicted_ttft_s", m.PredictedTTFT, "measured_ttft_s", m.TTFT)
	}
	p.cfg.Plans.Info("race", attrs...)
}
