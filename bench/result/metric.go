package result

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// A Metric describes one number of a result. The table of all metrics (table.go) is the
// single source of their names, titles and rules: the block, the extra section, JSON,
// sweeps, comparisons, reports, completion and docs/result-metrics.md read it.
type Metric struct {
	// Name is the name in JSON. A dot separates an object from its field, as in
	// "goodput.share". Names that begin with "workers." or "adapters." are fields of the
	// elements of the list, and no values of the run.
	Name   string
	Title  string // in tables and reports, with the unit in parentheses
	Unit   string // "": a plain count or index
	Better stats.Direction
	Help   string // what the number is, for the docs
	Int    bool   // the block prints a whole number; it prints other metrics with two decimals

	AllRequests bool // covers all requests of a run, so that runs that completed different ones compare
	NeedsSteady bool // depends on the length of a run that is not in a steady state
	Hidden      bool // tables omit it

	Compare bool // row of a comparison by default
	Sweep   int  // position among the default columns of a sweep's table, from 1; 0: none
	Curve   bool // a report has a curve of it over a sweep, as of the default columns
	Map     bool // a report has a map of it over two axes of a sweep

	// Print formats the value in the extra section; nil: the section has no row for it. A row
	// is omitted if no value of it is above 0, unless Zero is set. Consecutive metrics with
	// one Label share a row.
	Print func(v float64) string
	Label string // label of the row; "": Title
	Zero  bool

	// Column is the metric's column in the table of workers. The counters of a worker
	// (record.Counters) and their sums over the workers have the same name.
	Column *Column

	id ID // of a metric of the reference benchmark, plus 1
}

// A Column is a column of the table of workers.
type Column struct {
	Head     string
	Width    int
	Format   func(v float64) string
	Optional bool // omitted if all workers have 0 in it
	Last     bool // comes after the columns without Last
}

// A group is a part of the table of metrics. The extra section has the same parts.
type group struct {
	Title   string
	Metrics []Metric
}

var byName, byID, columns = index(table)

// index returns the metrics by name and by ID, and the columns of the table of workers.
func index(table []group) (byName map[string]*Metric, byID [NumMetrics]*Metric, columns []*Metric) {
	byName = map[string]*Metric{}
	var last []*Metric
	for g := range table {
		for i := range table[g].Metrics {
			m := &table[g].Metrics[i]
			if byName[m.Name] = m; m.id > 0 {
				byID[m.id-1] = m
			}
			if c := m.Column; c != nil && c.Last {
				last = append(last, m)
			} else if c != nil {
				columns = append(columns, m)
			}
		}
	}
	return byName, byID, append(columns, last...)
}

// groups returns the table of metrics. The caller must not change it.
func groups() []group { return table }

// Metric returns the description of id.
func (id ID) Metric() *Metric { return byID[id] }

// String returns the name of id in JSON and JSONL.
func (id ID) String() string {
	if id < 0 || id >= NumMetrics {
		return fmt.Sprintf("metric(%d)", int(id))
	}
	return byID[id].Name
}

// IDOf returns the metric of the reference benchmark with the given name in JSON and
// JSONL, and whether there is one.
func IDOf(name string) (ID, bool) {
	if m := byName[name]; m != nil && m.id > 0 {
		return m.id - 1, true
	}
	return 0, false
}

// MetricOf returns the metric of the given name. A name that the table lacks, as in a file
// of another version, gets a title that follows from the name.
func MetricOf(name string) *Metric {
	if m := byName[name]; m != nil {
		return m
	}
	return &Metric{Name: name, Title: titleOf(name)}
}

// titleOf returns a title that follows from a name: "load_time_s" is "Load time (s)".
func titleOf(name string) string {
	t := strings.NewReplacer("_", " ", ".", " ").Replace(name)
	for _, unit := range []string{"ms", "s"} {
		if cut, ok := strings.CutSuffix(t, " "+unit); ok {
			t = cut + " (" + unit + ")"
		}
	}
	if t == "" {
		return t
	}
	return strings.ToUpper(t[:1]) + t[1:]
}

// ofRun reports whether the metric is a value of a run, not a field of a worker or adapter.
func (m *Metric) ofRun() bool {
	return !strings.HasPrefix(m.Name, workersPrefix) && !strings.HasPrefix(m.Name, adaptersPrefix)
}

// latency reports whether the metric is unknown in a run without a successful request.
func (m *Metric) latency() bool { return m.Unit == "ms" || m.Unit == "s/token" }

// label returns the label of the metric's row.
func (m *Metric) label() string {
	if m.Label != "" {
		return m.Label
	}
	return m.Title
}

// Unsteady returns the reason why a metric of runs in state s gets no verdict, or "" if it
// gets one.
func (m *Metric) Unsteady(s steady.Stationarity) string {
	if m.NeedsSteady && !s.Judge() {
		return s.String()
	}
	return ""
}

// Names returns the names of the metrics for which where returns true, in the order of the
// table.
func Names(where func(m *Metric) bool) (names []string) {
	for _, g := range table {
		for i := range g.Metrics {
			if where(&g.Metrics[i]) {
				names = append(names, g.Metrics[i].Name)
			}
		}
	}
	return names
}

// KnownValues returns the names of all numbers that a result can have and tables show.
func KnownValues() []string { return Names(func(m *Metric) bool { return m.ofRun() && !m.Hidden }) }

// SweepDefaults returns the names of the default columns of a sweep's table, in order.
func SweepDefaults() []string {
	names := Names(func(m *Metric) bool { return m.Sweep > 0 })
	slices.SortFunc(names, func(a, b string) int { return byName[a].Sweep - byName[b].Sweep })
	return names
}
