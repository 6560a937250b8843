package result

import (
	"fmt"

	"lorasim/bench/steady"
)

// SteadyNotes says in lines whether latencies of the run can be trusted; none where it
// is steady, or where that is unknown.
func (r *Result) SteadyNotes() []string {
	a := r.Steady
	if a == nil || a.State == steady.Steady {
		return nil
	}
	line := fmt.Sprintf("%s: %s", a.State, a.Reason)
	if a.State == steady.Transient {
		if a.SustainableRate > 0 {
			line += fmt.Sprintf("; %s requests/s are sustainable", rateText(a.SustainableRate))
		}
		return []string{line, "note: a longer run, or another seed, may give other latencies"}
	}
	if a.SustainableRate > 0 {
		line = fmt.Sprintf("%s: %s requests/s are sustainable; %s", a.State, rateText(a.SustainableRate), a.Reason)
		if a.OfferedRate > 0 {
			line = fmt.Sprintf("%s: %s requests/s offered, %s sustainable; %s", a.State, rateText(a.OfferedRate), rateText(a.SustainableRate), a.Reason)
		}
	}
	return []string{line, "note: latencies grow with the length of the run; only throughput describes the workers"}
}

// rateText prints a rate in requests/s.
func rateText(rate float64) string { return fmt.Sprintf("%.3g", rate) }

// steady prints whether the run reached a steady state.
func (p *printer) steady(a *steady.Assessment) {
	if a == nil {
		return
	}
	p.title("Steady State")
	p.row("State", string(a.State))
	if a.OfferedRate > 0 {
		p.rowf("Offered rate (req/s)", "%.2f", a.OfferedRate)
	}
	if a.SustainableRate > 0 {
		p.rowf("Sustainable rate (req/s)", "%.2f", a.SustainableRate)
	}
	if a.Excluded > 0 {
		p.rowf("Warm-up left out (s)", "%.2f", a.Excluded)
	}
	if a.State != steady.Steady {
		return
	}
	if a.Excluded == 0 {
		p.rowf("Warm-up, not left out (s)", "%.2f", a.Warmup)
	}
	p.rowf("Effective samples of TTFT", "%.0f", a.EffectiveSamples)
	for _, in := range a.Intervals {
		m, ok := MetricByKey(in.Metric)
		if ok {
			p.rowf(m.Descriptor().Label+", 95 % interval", "%.2f..%.2f", in.Low, in.High)
		}
	}
}
