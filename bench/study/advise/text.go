package advise

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// String returns the answer in a few lines: the recommendation, how sure it is, and what it gains over the policies
// that every recommendation is compared with.
func (a *Advice) String() string {
	lines := []string{"Recommendation: --policy " + quoted(a.recommended().Spec), paragraph(a.brief())}
	add := func(line string) {
		if line != "" {
			lines = append(lines, paragraph(line))
		}
	}
	add(a.beside())
	add(a.stateLine())
	add(a.shortLine())
	for _, t := range a.Tuned {
		add(a.TunedText(t))
	}
	return strings.Join(lines, "\n")
}

// brief states in one line how sure the recommendation is.
func (a *Advice) brief() string {
	n, worse, gain := len(a.Finalists)-1, 0, math.Inf(-1)
	for _, f := range a.Finalists[1:] {
		if f.Worse {
			worse++
		} else {
			gain = max(gain, -f.Diff.Low)
		}
	}
	text := "How sure: "
	switch {
	case n == 0:
		return text + "it is the only candidate that can run here."
	case a.Sampling == stats.OneWorkload:
		return text + "unknown, since one saved workload has no intervals (--resample draws others from it)."
	case !a.Confirmed:
		return text + fmt.Sprintf("not confirmed; fresh seeds contradicted %d choices (--seeds).", a.Attempts)
	}
	text += fmt.Sprintf("significantly better than %d of %d finalists on %d fresh seeds", worse, n, a.Seeds)
	if worse < n && gain < math.Inf(1) {
		text += fmt.Sprintf("; others gain %.1f %s at most", max(a.Objective.Percent(gain), 0), a.Objective.unit())
	}
	return text + "."
}

// beside states by how much the policies that every recommendation is compared with are worse.
func (a *Advice) beside() string {
	var worse, alike []string
	for _, f := range a.Finalists[1:] {
		if len(f.Roles) == 0 || slices.Contains(f.Roles, tunedRole) {
			continue
		}
		if text := f.Spec + " " + a.diff(f.Diff); f.Worse {
			worse = append(worse, text)
		} else {
			alike = append(alike, text)
		}
	}
	switch {
	case worse == nil && alike == nil:
		return ""
	case worse == nil:
		return "Not significantly worse: " + strings.Join(alike, ", ")
	case alike == nil:
		return "Worse: " + strings.Join(worse, ", ")
	}
	return "Worse: " + strings.Join(worse, ", ") + "; not significantly: " + strings.Join(alike, ", ")
}

// shortLine states that the runs are too short for an interval of the objective's main metric; "": they are not.
func (a *Advice) shortLine() string {
	metric, name, o := result.MeanE2E, "mean E2E", a.Objective
	if o.TTFT > o.E2E {
		metric, name = result.MeanTTFT, "mean TTFT"
	}
	s, short := a.recommended().Short(metric.Metric().Name)
	if !short || o.E2E+o.TTFT == 0 || a.Sampling != stats.Fresh {
		return ""
	}
	return fmt.Sprintf("Too short for intervals of %s: a run has %d requests, about %d are needed.", name, a.Requests,
		s.Needed)
}

// Words returns the answer in full: the recommendation, then its certainty.
func (a *Advice) Words() string {
	lines := []string{"Recommendation: --policy " + quoted(a.recommended().Spec)}
	for _, line := range a.sure() {
		lines = append(lines, paragraph(line))
	}
	return strings.Join(lines, "\n")
}

func paragraph(text string) string { return format.Paragraph(text, format.Width) }

// sure describes the certainty of the recommendation.
func (a *Advice) sure() (lines []string) {
	if state := a.stateLine(); state != "" {
		lines = append(lines, state)
	}
	lines = append(lines, a.verdict())
	if short := a.shortLine(); short != "" {
		lines = append(lines, short)
	}
	if why := a.simplest(); why != "" {
		lines = append(lines, why)
	}
	var roles []string
	for _, f := range a.Finalists[1:] {
		if len(f.Roles) > 0 && !slices.Contains(f.Roles, tunedRole) {
			roles = append(roles, a.against(f))
		}
	}
	if roles != nil {
		lines = append(lines, strings.Join(roles, " "))
	}
	for _, t := range a.Tuned {
		lines = append(lines, a.TunedText(t))
	}
	if a.Sampling != stats.OneWorkload && !a.Confirmed {
		lines = append(lines, fmt.Sprintf("Not confirmed: fresh seeds contradicted %d choices, so the last "+
			"ones chose. The differences are too small for this number of seeds (--seeds).", a.Attempts))
	}
	return lines
}

// simplest states why a finalist with a better mean is not recommended; "": none has one.
func (a *Advice) simplest() string {
	pick := a.recommended()
	var best *Finalist
	for _, f := range a.Finalists[1:] {
		if f.Diff.Mean < 0 && (best == nil || f.Diff.Mean < best.Diff.Mean) {
			best = f
		}
	}
	if best == nil || a.Sampling == stats.OneWorkload {
		return ""
	}
	better := math.Abs(a.Objective.Percent(best.Diff.Mean))
	text := fmt.Sprintf("Why not %s, better by %.1f %s: ", best.Spec, better, a.Objective.unit())
	switch {
	case simpler(pick.Candidate, best.Candidate) >= 0:
		return text + "the seeds of the choice showed the opposite, so this may be chance."
	case better > a.MinGain:
		return text + fmt.Sprintf("%s is simpler, and on the seeds of the choice the difference was below %g %s.",
			pick.Spec, a.MinGain, a.Objective.unit())
	}
	return text + fmt.Sprintf("%s is the simplest within %g %s (--min-gain 0 for the best).", pick.Spec, a.MinGain,
		a.Objective.unit())
}

// verdict states whether the recommended candidate is certainly the best.
func (a *Advice) verdict() string {
	pick := a.recommended()
	var alike []string
	gain := math.Inf(-1)
	for _, f := range a.Finalists[1:] {
		if !f.Worse {
			alike = append(alike, f.Spec+" "+a.diff(f.Diff))
			gain = max(gain, -f.Diff.Low)
		}
	}
	n := len(a.Finalists) - 1
	switch {
	case n == 0:
		return "How sure: it is the only candidate that can run here."
	case a.Sampling == stats.OneWorkload:
		return "How sure: unknown. One saved workload has no intervals, so the answer is about this workload alone " +
			"(--resample draws others from it)."
	case len(alike) == 0:
		next := a.Finalists[1]
		return fmt.Sprintf("How sure: significantly better than each of the %d other finalists, on %d fresh seeds. "+
			"The second is %s, worse by %s.", n, a.Seeds, next.Spec, a.diff(next.Diff))
	}
	text := fmt.Sprintf("How sure: on %d fresh seeds not significantly different from %s.", a.Seeds,
		firstOf(alike))
	if gain < math.Inf(1) {
		text += fmt.Sprintf(" With 95 %% confidence each gains at most %.1f %s.", max(a.Objective.Percent(gain), 0),
			a.Objective.unit())
	}
	simplest := slices.MinFunc(a.alike(), func(x, y *Finalist) int { return simpler(x.Candidate, y.Candidate) })
	if simplest == pick {
		text += fmt.Sprintf(" It is the simplest of them (class %s).", pick.Class())
	}
	if n > len(alike) {
		text += fmt.Sprintf(" Significantly better than the other %d.", n-len(alike))
	}
	return text
}

// mostNamed is the largest number of finalists that the answer names.
const mostNamed = 3

// firstOf lists the first texts, and how many more there are.
func firstOf(list []string) string {
	if n := len(list); n > mostNamed+1 {
		return strings.Join(list[:mostNamed], ", ") + fmt.Sprintf(" and %d more", n-mostNamed)
	}
	return strings.Join(list, ", ")
}

// alike are the finalists that are not significantly worse than the recommended one,
// which is among them.
func (a *Advice) alike() (out []*Finalist) {
	for _, f := range a.Finalists {
		if !f.Worse {
			out = append(out, f)
		}
	}
	return out
}

// against compares a policy that every recommendation is compared with.
func (a *Advice) against(f *Finalist) string {
	name := f.Spec
	if slices.Contains(f.Roles, "default") {
		name += " (default)"
	}
	switch {
	case f.Worse:
		return name + " is worse by " + a.diff(f.Diff) + "."
	case f.Diff.Mean == 0 && !(f.Diff.Std > 0):
		return name + " gives the same results."
	case f.Diff.HasInterval():
		return name + " is not significantly different: " + a.diff(f.Diff) + "."
	}
	return name + " differs by " + a.diff(f.Diff) + "."
}

// diff is a difference of the objective with its interval.
func (a *Advice) diff(d stats.Estimate) string {
	text := a.Objective.signed(d.Mean)
	d.Mean, d.Low, d.High = a.Objective.Percent(d.Mean), a.Objective.Percent(d.Low), a.Objective.Percent(d.High)
	return text + d.Interval(func(x float64) string { return fmt.Sprintf("%.1f", x) })
}

// stateLine states whether the answer holds only for runs of this length.
func (a *Advice) stateLine() string {
	switch pick := a.recommended(); pick.State {
	case steady.Overloaded:
		return fmt.Sprintf("Overloaded: %s. Latencies grow with the run: this holds for %d requests only.",
			pick.Stationarity, a.Requests)
	case steady.Transient:
		return fmt.Sprintf("Transient: runs of %d requests are too short; longer ones may give another answer.",
			a.Requests)
	}
	return ""
}

// WriteDetails writes the certainty in full, the finalists, the gap to the lower bound and the worst scenario.
func (a *Advice) WriteDetails(w io.Writer) error {
	text := "\n" + paragraph(a.verdict()) + "\n"
	if why := a.simplest(); why != "" {
		text += paragraph(why) + "\n"
	}
	if _, err := fmt.Fprintf(w, "%s\n%s\n", text, paragraph(a.raced())); err != nil {
		return err
	}
	if err := format.Fit(w, a.rows(), 1, format.Width); err != nil {
		return err
	}
	var b strings.Builder
	line := func(text string) { b.WriteString(paragraph(text) + "\n") }
	line(a.note())
	line(a.states())
	b.WriteByte('\n')
	line(a.bound())
	if text := a.worstText(); text != "" {
		b.WriteByte('\n')
		line(text)
		if a.Worst != nil {
			b.WriteString(strings.Join(a.Worst.lines(a.recommended().Candidate), "\n") + "\n")
		}
	}
	if text := a.skippedText(); text != "" {
		b.WriteByte('\n')
		line(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// raced describes the candidates that were compared.
func (a *Advice) raced() string {
	requests := fmt.Sprintf("%d requests each", a.Requests)
	if a.Chosen {
		requests += " (chosen; --num-prompts sets another length)"
	}
	return fmt.Sprintf("Objective %s. %d candidates raced with %s, %d requests in all. Finalists on %s:",
		a.Objective, a.Raced, requests, a.Spent, a.seedsText())
}

func (a *Advice) seedsText() string {
	switch {
	case a.Sampling == stats.OneWorkload:
		return "this workload"
	case a.Confirmed:
		return fmt.Sprintf("%d fresh seeds", a.Seeds)
	}
	return fmt.Sprintf("%d seeds", a.Seeds)
}

// rows is the table of finalists.
func (a *Advice) rows() [][]string {
	head := []string{"policy", "objective", "mean TTFT (ms)", "P99 TTFT (ms)", "mean E2E (ms)"}
	if a.Objective.Goodput {
		head = append(head, "within SLO (%)")
	}
	rows := [][]string{head}
	for i, f := range a.Finalists {
		worse := "recommended"
		if i > 0 {
			if worse = a.diff(f.Diff); f.Worse {
				worse += " *"
			}
		}
		row := []string{f.Spec, worse, f.TTFT.String(), f.P99TTFT.String(), f.E2E.String()}
		if a.Objective.Goodput {
			row = append(row, fmt.Sprintf("%.2f", 100*f.Good.Mean))
		}
		rows = append(rows, row)
	}
	return rows
}

// note explains the table.
func (a *Advice) note() string {
	if a.Sampling == stats.OneWorkload {
		return stats.IntervalNote(stats.OneWorkload, 1, "")
	}
	return fmt.Sprintf("objective: by how much it is worse than the recommended one; * significant: paired t-tests, "+
		"Holm's correction (tests: %d), 5 %% level; ± half of the 95 %% interval or (low to high)", len(a.Finalists)-1)
}

// states describes whether the runs of the finalists reached a steady state.
func (a *Advice) states() string {
	var other []string
	for _, f := range a.Finalists {
		if f.State != steady.Steady {
			other = append(other, f.Spec+" "+f.Mark())
		}
	}
	switch len(other) {
	case 0:
		return "State of the runs: steady"
	case len(a.Finalists):
		return "State of the runs: " + strings.Join(other, ", ")
	}
	return "State of the runs: steady, except " + strings.Join(other, ", ")
}

// bound is the gap to what perfect knowledge could reach.
func (a *Advice) bound() string {
	r := a.recommended().Regret
	if r.N == 0 {
		return "Gap to the bound: unknown, no request completed."
	}
	text := fmt.Sprintf("Gap to the bound: mean E2E is %.1f %%", 100*r.Mean)
	if r.HasInterval() {
		text += fmt.Sprintf(" ±%.1f", 100*r.Half())
	}
	return text + " above a lower bound that no policy can beat, even with perfect knowledge. " +
		"Of TTFT there is no bound."
}

// worstText describes the scenario in which the recommendation loses most.
func (a *Advice) worstText() string {
	w := a.Worst
	if w == nil {
		return ""
	}
	var whats []string
	for _, c := range w.Changes {
		whats = append(whats, c.What)
	}
	state := ""
	if w.State.State != "" {
		state = ", " + w.State.String()
	}
	head := fmt.Sprintf("Worst of %d changed scenarios: %s%s. ", w.Tried, strings.Join(whats, " and "), state)
	with := "with"
	if n := w.Loss.N; n > 1 {
		with = fmt.Sprintf("with %d fresh seeds", n)
	}
	switch {
	case w.Lost():
		head += fmt.Sprintf("There %s the recommendation is worse than %s by %s", with, w.Rival.Spec, a.diff(w.Loss))
	case w.Loss.Mean > 0:
		head += fmt.Sprintf("There %s the recommendation is not significantly worse than %s: %s", with, w.Rival.Spec,
			a.diff(w.Loss))
	default:
		head += fmt.Sprintf("Even there %s the recommendation is not worse than %s: %s", with, w.Rival.Spec,
			a.diff(w.Loss))
	}
	return head + fmt.Sprintf(" (mean TTFT %s against %s ms, P99 TTFT %s against %s ms, mean E2E %s against %s ms):",
		stats.Number(w.Pick.TTFT), stats.Number(w.Other.TTFT), stats.Number(w.Pick.P99TTFT),
		stats.Number(w.Other.P99TTFT), stats.Number(w.Pick.E2E), stats.Number(w.Other.E2E))
}

// skippedText names the policies that cannot run here.
func (a *Advice) skippedText() string {
	var names []string
	for _, s := range a.Skipped {
		names = append(names, s.Spec)
	}
	if len(names) == 0 {
		return ""
	}
	return "Cannot run here (--json has the reasons): " + strings.Join(names, ", ") + "."
}

// MoreSeeds returns the number of fresh seeds with which differences of MinGain would be significant; 0: unknown, or
// all that are open are smaller.
func (a *Advice) MoreSeeds() int {
	need, gain := 0.0, a.Objective.fromPercent(a.MinGain)
	if a.Sampling != stats.Fresh || gain <= 0 {
		return 0
	}
	for _, f := range a.Finalists[1:] {
		if half := f.Diff.HalfAt(0.05); !f.Worse && half > gain {
			need = max(need, float64(f.Diff.N)*(half/gain)*(half/gain))
		}
	}
	return int(math.Ceil(need))
}
