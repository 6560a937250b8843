package result

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// A LookLine is a line of a first look, beside those that a result has by itself.
type LookLine struct {
	Label, Text string
	Whole       bool // print the text on one line, however long: a command
}

// WriteLook writes the answer of a run in a few lines: its state, latencies and throughput, what the policy planned,
// and the given lines. It omits what is unknown, and writes nothing without an Extra.
func (r *Result) WriteLook(w io.Writer, more ...LookLine) error {
	if r.Extra == nil {
		return nil
	}
	lines := slices.Concat([]LookLine{
		{Label: "State", Text: r.stateText()},
		{Label: "TTFT", Text: r.latencyText(MeanTTFT, P99TTFT)},
		{Label: "E2E", Text: r.latencyText(MeanE2E, P99E2E)},
		{Label: "Rates", Text: r.ratesText()},
		{Label: "SLO", Text: r.sloText()},
		{Label: "Plans", Text: r.plansText()},
		{Label: "Versions", Text: r.Extra.Pushes.text()},
	}, more)
	var b strings.Builder
	for _, l := range lines {
		if l.Whole && l.Text != "" {
			fmt.Fprintf(&b, "%-10s%s\n", l.Label, l.Text)
			continue
		}
		writeHead(&b, l.Label, l.Text)
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+b.String())
	return err
}

// stateText describes whether the workers keep up.
func (r *Result) stateText() string {
	a := r.Steady
	if a == nil {
		return ""
	}
	text := string(a.State)
	if a.OfferedRate > 0 {
		text += fmt.Sprintf(", %s requests/s offered", format.Digits(a.OfferedRate))
	}
	if a.SustainableRate > 0 {
		text += fmt.Sprintf(", %s sustainable", format.Digits(a.SustainableRate))
	}
	if a.State != steady.Steady && a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// latencyText is a mean with its interval, and a percentile.
func (r *Result) latencyText(mean, p99 ID) string {
	m, ok := r.Metrics.Get(mean)
	if !ok {
		return ""
	}
	text := "mean " + Latency(m)
	if r.Steady != nil {
		for _, in := range r.Steady.Intervals {
			if id, ok := IDOf(in.Metric); ok && id == mean {
				text += fmt.Sprintf(" (95 %% interval %s to %s)", Latency(in.Low), Latency(in.High))
			}
		}
		for _, s := range r.Steady.TooShort {
			if id, ok := IDOf(s.Metric); ok && id == mean {
				text += fmt.Sprintf(" (no interval, %v)", s)
			}
		}
	}
	if p, ok := r.Metrics.Get(p99); ok {
		text += ", P99 " + Latency(p)
	}
	return text
}

// Latency writes ms with three digits: 70.1 ms, 223 ms, 3.13 s.
func Latency(ms float64) string {
	if ms >= 999.5 {
		return format.Digits(ms/1000) + " s"
	}
	return format.Digits(ms) + " ms"
}

func (r *Result) ratesText() string {
	text := ""
	for _, c := range []struct {
		of   ID
		form string
	}{{RequestThroughput, "%.2f requests/s"}, {OutputThroughput, "%.0f output tokens/s"}} {
		if v, ok := r.Metrics.Get(c.of); ok && v > 0 {
			text += ", " + fmt.Sprintf(c.form, v)
		}
	}
	return strings.TrimPrefix(text, ", ")
}

func (r *Result) sloText() string {
	g := r.Extra.Goodput
	if g == nil {
		return ""
	}
	return fmt.Sprintf("%s of the requests within %s", percent(g.Share), g.SLO)
}

// plansText says what a planning policy did, and why it did nothing.
func (r *Result) plansText() string {
	p := r.Extra.Plans
	if p == nil {
		return ""
	}
	moved, idle := int64(0), int64(0)
	for _, n := range p.Moves {
		moved += n
	}
	for _, why := range p.Idle {
		idle += why.Count
	}
	if r.Extra.SolverRuns == 0 && p.Applied == 0 && idle == 0 {
		return "" // a policy without plans
	}
	text := fmt.Sprintf("%d made, %d applied", r.Extra.SolverRuns, p.Applied)
	if p.Applied > 0 {
		text += fmt.Sprintf("; %s loaded and %d unloaded by them, %s moved", format.Count(int(p.Loads), "adapter"),
			p.Unloads, format.Count(int(moved), "request"))
	}
	if p.Dropped > 0 {
		text += fmt.Sprintf("; %d came too late to be carried out", p.Dropped)
	}
	if idle > 0 && p.Applied == 0 {
		text += fmt.Sprintf("; %d times nothing to change (most often: %s)", idle, p.Idle[0].Reason)
	}
	return text
}
