// Package metricstest holds a scrape of lorasim gateway against the table of docs/metrics.md. The lab holds it against
// Prometheus' naming rules.
package metricstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/textfile"
	"lorasim/router/promtext"
)

// row is a metric of the table.
type row struct {
	kind       string
	labels     string // sorted, with ", " between them
	components []string
}

// table reads the rows of docs/metrics.md: | `NAME` | type | labels | components | meaning |, names without prefix.
func table(t testing.TB, file string) map[string]row {
	t.Helper()
	text, err := textfile.ReadRegular(file, textfile.MaxSettings)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		labels := strings.Split(cells[3], ", ")
		slices.Sort(labels)
		components := []string{cells[4]}
		if cells[4] == "both" {
			components = []string{"gateway", "epp"}
		}
		rows[cells[1]] = row{kind: cells[2], labels: strings.Join(labels, ", "), components: components}
	}
	if len(rows) == 0 {
		t.Fatalf("%s: no table of metrics", file)
	}
	return rows
}

// Check fails the test unless the scrape of a component ("gateway", "epp") has the metrics that the table in file
// states for the component, with these types and labels, and no others. Metrics of the Go runtime and the process are
// left out.
func Check(t testing.TB, file, component, scrape string) {
	t.Helper()
	families, err := promtext.Parse(scrape)
	if err != nil {
		t.Fatal(err)
	}
	rows, prefix, seen := table(t, file), "lorasim_"+component+"_", map[string]bool{}
	for _, name := range families.Names() {
		family := families[name]
		short := strings.TrimPrefix(name, prefix)
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		seen[short] = true
		labels := map[string]bool{}
		for _, m := range family {
			for _, l := range m.Labels {
				labels[l.Name] = true
			}
		}
		got := fmt.Sprintf("%s{%s}", family[0].Type,
			strings.Join(slices.Sorted(maps.Keys(labels)), ", "))
		want, ok := rows[short]
		if !ok || !slices.Contains(want.components, component) {
			t.Errorf("%s: /metrics of %s has %s %s, which the table does not have", file, component, name, got)
		} else if stated := fmt.Sprintf("%s{%s}", want.kind, want.labels); got != stated {
			t.Errorf("%s: %s is %s, the table states %s", file, name, got, stated)
		}
	}
	for name, r := range rows {
		if slices.Contains(r.components, component) && !seen[name] {
			t.Errorf("%s: the table has %s, which /metrics of %s lacks", file, name, component)
		}
	}
}
