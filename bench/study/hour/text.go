package hour

import (
	"fmt"
	"io"
	"strings"
	"time"

	"lorasim/bench/result"
	"lorasim/internal/format"
)

const lineWidth = 110 // columns

// at is the time at s seconds of the hour.
func (h *Hour) at(s float64) time.Time { return h.Begin.Add(time.Duration(s * float64(time.Second))) }

// rows are the lines of the answer with their labels.
func (a *Answer) rows() [][2]string {
	rows := [][2]string{{"Hour", a.hourText()}, {"Profile", a.profileText()}, {"Policy", a.policyText()},
		{"Proof", a.proofText()}}
	for _, reason := range a.Refused {
		rows = append(rows, [2]string{"Refused", reason})
	}
	if len(a.Refused) == 0 {
		rows = append(rows, [2]string{"Answer", a.answerText()})
	}
	return rows
}

// WriteText writes the answer.
func (a *Answer) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, r := range a.rows() {
		label := r[0]
		for _, line := range format.Wrap(r[1], lineWidth-9) {
			fmt.Fprintf(&b, "%-9s%s\n", label, line)
			label = ""
		}
	}
	if _, err := io.WriteString(w, b.String()+"\n"); err != nil {
		return err
	}
	if err := format.Table(w, a.proofTable()); err != nil || len(a.Refused) > 0 {
		return err
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	if err := format.Table(w, a.changesTable()); err != nil {
		return err
	}
	b.Reset()
	for i := range a.Changes {
		if c := &a.Changes[i]; c.Why != "" {
			fmt.Fprintf(&b, "not simulated: %s: %s\n", c.Text, c.Why)
		}
	}
	_, err := fmt.Fprintf(w, "%s%s\n", b.String(), strings.Join(format.Wrap(a.intervalText(), lineWidth), "\n"))
	return err
}

// intervalText says what the intervals are.
func (a *Answer) intervalText() string {
	block := time.Duration(a.length() / parts * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("Each fleet serves the same requests. The intervals (95 %%) come from %d hours resampled in blocks "+
		"of %s, and from the error of the proof.", a.options.Draws, block)
}

func (a *Answer) hourText() string {
	text := fmt.Sprintf("%s to %s: %s with whole replies, of %s, on %s", a.Begin.Format("2006-01-02 15:04:05"),
		a.at(a.Requests[len(a.Requests)-1].Arrival).Format("15:04:05 MST"), format.Count(len(a.Requests), "request"),
		format.Count(len(a.Adapters), "adapter"), format.Count(len(a.Workers), "worker"))
	if a.Drawn {
		text += "; drawn from the counters of the gateway"
	}
	return text + a.leftText()
}

func (a *Answer) profileText() string {
	from := a.Start
	if a.Tried > 1 {
		from += fmt.Sprintf(", the nearest of %d embedded ones", a.Tried)
	}
	return fmt.Sprintf("%s; fitted to the first half (%s); %s and a KV cache of %d tokens per worker", from,
		format.Count(len(a.Requests)-a.Proof.Requests, "request"), format.Count(a.Slots, "adapter slot"), a.KV)
}

func (a *Answer) policyText() string {
	if a.Guessed > 0 {
		return fmt.Sprintf("%s: %s of the requests went where it sends them", a.Policy, format.Percent(a.Guessed, 1))
	}
	return a.Policy
}

func (a *Answer) proofText() string {
	parts := []string{}
	for i := range a.Proof.Rows {
		r := &a.Proof.Rows[i]
		if recorded, _ := r.Errors(); isProven(r.Metric) {
			parts = append(parts, fmt.Sprintf("%s %s measured, %s predicted (%+.1f %%)", r.Metric,
				result.Latency(r.Measured), result.Latency(r.Recorded), 100*recorded))
		}
	}
	flight := fmt.Sprintf("in flight %.1f measured, %.1f predicted", a.Proof.Flight.Measured, a.Proof.Flight.Recorded)
	if a.Proof.Engines != nil {
		flight += fmt.Sprintf(", %.1f as the engines state", *a.Proof.Engines)
	}
	parts = append(parts, flight+" (whole time)")
	verdict := "reproduced"
	if len(a.Refused) > 0 {
		verdict = "not reproduced"
	}
	return fmt.Sprintf("%s: second half, %s, not seen by the fit: %s", verdict,
		format.Count(a.Proof.Requests, "request"), strings.Join(parts, "; "))
}

func (a *Answer) answerText() string {
	best := ""
	for i := range a.Changes {
		c := &a.Changes[i]
		if c.Why == "" && c.TTFT.High < 0 {
			best = fmt.Sprintf("most helps: %s: mean TTFT %s instead of %s (%s)", c.Text, result.Latency(c.Hour.TTFT),
				result.Latency(a.Base.TTFT), c.TTFT.String())
			break
		}
	}
	if best == "" {
		return "no change that was simulated clearly lowers the mean TTFT"
	}
	return best
}

// String is the difference with its interval.
func (d *Difference) String() string {
	return fmt.Sprintf("%+.0f %%, 95 %%: %+.0f to %+.0f", 100*d.Mean, 100*d.Low, 100*d.High)
}

func (a *Answer) proofTable() [][]string {
	rows := [][]string{{"Second half", "Measured", "Predicted", "Error", "By " + a.Policy, "Error"}}
	for i := range a.Proof.Rows {
		r := &a.Proof.Rows[i]
		recorded, routed := r.Errors()
		rows = append(rows, []string{r.Metric, result.Latency(r.Measured), result.Latency(r.Recorded),
			fmt.Sprintf("%+.1f %%", 100*recorded), result.Latency(r.Routed), fmt.Sprintf("%+.1f %%", 100*routed)})
	}
	return rows
}

func (a *Answer) loadsTable() [][]string {
	rows := [][]string{{"Worker", "Requests", "By " + a.Policy, "Mean in flight", "By " + a.Policy}}
	for _, l := range a.Proof.Loads {
		rows = append(rows, []string{l.Worker, fmt.Sprint(l.Requests), fmt.Sprint(l.Routed),
			fmt.Sprintf("%.1f", l.Busy), fmt.Sprintf("%.1f", l.BusyAs)})
	}
	return rows
}

func (a *Answer) changesTable() [][]string {
	rows := [][]string{{"Change", "Mean TTFT", "Difference", "Interval", "Mean E2E", "Difference", "Interval"},
		{"none", result.Latency(a.Base.TTFT), "", "", result.Latency(a.Base.E2E), "", ""}}
	for i := range a.Changes {
		c := &a.Changes[i]
		if c.Why != "" {
			continue
		}
		row := []string{c.Text}
		for _, x := range []struct {
			ms float64
			d  Difference
		}{{c.Hour.TTFT, c.TTFT}, {c.Hour.E2E, c.E2E}} {
			row = append(row, result.Latency(x.ms), fmt.Sprintf("%+.0f %%", 100*x.d.Mean),
				fmt.Sprintf("%+.0f to %+.0f", 100*x.d.Low, 100*x.d.High))
		}
		rows = append(rows, row)
	}
	return rows
}
