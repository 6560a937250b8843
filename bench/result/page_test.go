package result

import (
	"fmt"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/internal/testutil"
)

const pageHead = `# Result metrics

This page lists every number of a result, from the table in ` + "`bench/result/table.go`" + `. Sweeps, comparisons, reports and
` + "`--metrics`" + ` use the same names.

` + "```sh" + `
lorasim sim --json                                  # all numbers of a run
lorasim compare --metrics retractions a.json b.json # one of them, of several runs
` + "```" + `

In the file of ` + "`--json`" + `, the metrics of the block (` + "`completed`" + `, *Duration and Throughput*, *Latency*) and ` + "`steady`" + ` are
fields of the result. All others are fields of ` + "`extra`" + `. A dot separates an object from its field: ` + "`goodput.share`" + ` is
the field ` + "`share`" + ` of ` + "`goodput`" + `. Names that begin with ` + "`workers.`" + ` or ` + "`adapters.`" + ` are fields of each element of the list; *w*
marks metrics that each element of ` + "`workers`" + ` has, too. Shares lie between 0 and 1.

↓: lower is better, ↑: higher is better. Without a mark, the metric alone says nothing.
`

// docs/result-metrics.md is the table of metrics. To write it: go test ./bench/result -run ResultMetricsPage -update
func TestResultMetricsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| name | title | unit | | meaning |\n|---|---|---|---|---|\n", g.Title)
		for _, m := range g.Metrics {
			mark := map[stats.Direction]string{stats.Lower: "↓", stats.Higher: "↑"}[m.Better]
			if m.Column != nil && m.ofRun() {
				mark = strings.TrimSpace(mark + " w")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.label(), m.Unit, mark, m.Help)
		}
	}
	testutil.Golden(t, "../../docs/result-metrics.md", b.String())
}
