package compare

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// Formats of a gate, by the names that users give.
var gateFormats = []string{"text", "markdown", "junit"}

// GateFormats lists the formats of WriteAs.
func GateFormats() []string { return gateFormats }

// WriteAs writes the gate in a format of GateFormats. next is the command that decides it; "": none.
func (g *Gate) WriteAs(w io.Writer, as, next string) error {
	switch as {
	case "markdown":
		return g.writeMarkdown(w, next)
	case "junit":
		return g.writeJUnit(w, next)
	}
	return g.writeText(w, next)
}

// String is the answer in one line.
func (g *Gate) String() string {
	var parts []string
	for _, c := range g.Checks {
		if c.Outcome == g.Outcome() && c.Outcome != Passed {
			parts = append(parts, c.String())
		}
	}
	if len(parts) == 0 {
		return "NEW is not worse than BASE by more than the limits"
	}
	if g.Outcome() == Failed {
		return "NEW is worse than BASE: " + strings.Join(parts, "; ")
	}
	return "Not sure whether NEW is worse than BASE: " + strings.Join(parts, "; ")
}

// String is the answer in a few words.
func (c Check) String() string {
	text := c.Metric + " " + c.change()
	if c.Reason != "" {
		text = c.Metric + ": " + c.Reason
	}
	text += ", limit " + c.Limit.text()
	switch {
	case c.Outcome != Unsure || c.Reason != "" && c.Needed == 0:
	case c.Needed > 0:
		text += fmt.Sprintf("; %d runs of each side would probably decide", c.Needed)
	case c.resampled:
		text += "; more draws from this workload do not decide: a longer log would, or another limit"
	default:
		text += fmt.Sprintf("; the change is too near to the limit for %d runs", mostNeeded)
	}
	return text
}

// change is by how much the metric changed, with the interval.
func (c Check) change() string {
	if math.IsNaN(c.Change) {
		return "changed from " + number(c.Base) + " to " + number(c.New)
	}
	text := signed(c.Change) + " %"
	if !math.IsNaN(c.Low) {
		text += fmt.Sprintf(" (%s to %s %%)", signed(c.Low), signed(c.High))
	}
	return text
}

func signed(share float64) string {
	s := fmt.Sprintf("%+.1f", 100*share)
	if s == "-0.0" {
		return "+0.0"
	}
	return s
}

func number(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return stats.Number(x)
}

// rows are the cells of the table of limits, with its head.
func (g *Gate) rows() [][]string {
	rows := [][]string{{"Metric", "BASE", "NEW", "Change", "Limit", "Verdict"}}
	for _, c := range g.Checks {
		change := "-"
		if !math.IsNaN(c.Change) {
			change = c.change()
		}
		verdict := string(c.Outcome)
		if c.Reason != "" {
			verdict += ": " + c.Reason
		}
		rows = append(rows, []string{result.MetricOf(c.Metric).Title, number(c.Base), number(c.New), change,
			c.Limit.text(), verdict})
	}
	return rows
}

// basis says what the answer rests on.
func (g *Gate) basis() string {
	n, paired := math.MaxInt, true
	for _, c := range g.Checks {
		n, paired = min(n, c.Runs), paired && c.Paired
	}
	text := format.Count(n, "run") + " of each side"
	if paired {
		text += ", paired by seed; the change is the geometric mean of their ratios"
	}
	text += "; all intervals hold together in 95 % of cases"
	if g.New.sampling == stats.Resampled {
		text += "; each run draws its requests from one workload"
	}
	return text
}

// notes are what a reader should know beside the verdict.
func (g *Gate) notes() (list []string) {
	for _, r := range []*Run{g.Base, g.New} {
		if s := r.Stationarity(); !s.Judge() {
			list = append(list, fmt.Sprintf("%s is %s: its figures depend on the number of requests", r.Name, s))
		}
	}
	return list
}

func (g *Gate) writeText(w io.Writer, next string) error {
	var b strings.Builder
	b.WriteString(format.Paragraph(g.String(), format.Width) + "\n")
	if next != "" {
		b.WriteString("Next: " + next + "\n")
	}
	b.WriteByte('\n')
	if err := format.Fit(&b, g.rows(), 1, g.Table.width); err != nil {
		return err
	}
	b.WriteString("\n" + format.Paragraph(g.basis(), format.Width) + "\n\n")
	g.Table.writeRuns(&b)
	b.WriteByte('\n')
	if err := g.Table.writeRows(&b); err != nil {
		return err
	}
	g.Table.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeMarkdown writes the comment of a pull request.
func (g *Gate) writeMarkdown(w io.Writer, next string) error {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace
	fmt.Fprintf(&b, "**lorasim: %s.** %s.\n\n", g.Outcome(), cell(g.String()))
	for i, row := range g.rows() {
		for k := range row {
			row[k] = cell(row[k])
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|--:|--:|--:|--:|---|\n")
		}
	}
	b.WriteString("\n" + g.basis() + ".\n\n")
	for _, r := range []*Run{g.Base, g.New} {
		fmt.Fprintf(&b, "- %s: %s\n", r.Name, cell(joinKnown(r.File, r.What)))
	}
	for _, n := range g.notes() {
		b.WriteString("- " + cell(n) + "\n")
	}
	if next != "" {
		b.WriteString("\nThis would decide:\n\n```sh\n" + next + "\n```\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// The elements of JUnit's XML, of which every CI system reads these.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Error   *junitMessage `xml:"error"`
	Out     string        `xml:"system-out"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a test case for each limit: a failure if NEW is worse, an error if the runs do not decide.
func (g *Gate) writeJUnit(w io.Writer, next string) error {
	suite := junitSuite{Name: "lorasim compare", Tests: len(g.Checks)}
	for _, c := range g.Checks {
		one := junitCase{Class: "lorasim.compare", Name: c.Limit.String(), Out: format.Line(c.String(), 4096)}
		said := &junitMessage{Message: format.Line(c.String(), 4096), Type: string(c.Outcome)}
		switch c.Outcome {
		case Failed:
			suite.Failures++
			one.Failure = said
		case Unsure:
			suite.Errors++
			if one.Error = said; next != "" {
				said.Text = "This would decide: " + next
			}
		}
		suite.Cases = append(suite.Cases, one)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// JSON returns the gate for encoding/json. next is the command that decides it; "": none.
func (g *Gate) JSON(next string) any {
	checks := []any{}
	for _, c := range g.Checks {
		checks = append(checks, format.Object{"metric", c.Metric, "limit", c.Share, "base,omitempty", c.Base,
			"new,omitempty", c.New, "change,omitempty", c.Change, "change_low,omitempty", c.Low,
			"change_high,omitempty", c.High, "runs", c.Runs, "paired", c.Paired, "outcome", string(c.Outcome),
			"reason,omitempty", c.Reason, "runs_needed,omitempty", c.Needed, "text", c.String()})
	}
	return format.Object{"outcome", string(g.Outcome()), "text", g.String(), "limits", checks,
		"runs_needed,omitempty", g.Needed(), "next,omitempty", next}
}
