package measured

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlfile"
	"lorasim/trace/lengths"
)

// Setup is the set-up of a run, as far as reports show it.
type Setup struct {
	Line   int     `json:"line,omitempty"` // line of the table or log
	Group  string  `json:"group"`          // name of the campaign
	Use    string  `json:"use,omitempty"`  // calibration: may be fitted; validation: only compared
	ID     string  `json:"run_id,omitempty"`
	Policy string  `json:"policy,omitempty"`     // policy spec of the router
	Trace  string  `json:"trace,omitempty"`      // name of the trace
	Rate   float64 `json:"total_rate,omitempty"` // requests/s of all adapters
	Stride int     `json:"map_stride,omitempty"` // functions per block of the trace's mapping to adapters
}

// Run is one measured run.
type Run struct {
	Setup
	CV         float64 // coefficient of variation of the gaps between requests
	Requests   int
	Workers    int
	Adapters   int
	Ranks      []int // ranks of the adapters; 0: unknown
	MaxLoras   int   // adapter slots per worker; 0: those of the profile
	MaxRunning int   // limit of running requests per worker; 0: that of the profile

	Measured Values
	// Sent is the numbers of requests sent to the first two workers; 0: unknown.
	Sent [2]int
}

// Bounds of a run. They limit the memory that a mistyped field can take.
const (
	maxAdapters = 100_000
	maxCount    = 100_000_000
)

// measuredColumns are the columns with measured values. A later column overrides an earlier one.
var measuredColumns = []struct {
	name   string
	metric Metric
}{
	{"duration_s", Duration}, {"mean_e2e_ms", MeanE2E}, {"median_e2e_ms", MedianE2E},
	{"p99_ttft_ms", P99E2E}, // clients that do not stream: TTFT = E2E
	{"p99_e2e_ms", P99E2E},
}

// ReadRuns reads a table of measured runs: CSV with a header. It ignores unknown columns; empty
// fields are unknown values. name is the name of the file in errors.
func ReadRuns(in io.Reader, name string) (runs []Run, err error) {
	required := []string{
		"group", "policy_file", "total_rate", "map_stride", "num_prompts", "num_instances", "num_loras",
	}
	err = table.ReadCSV(in, name, required, func(t *table.CSVRow) {
		for _, column := range required {
			if !t.Has(column) {
				t.Fail(column, "is empty")
			}
		}
		count := func(column string) int {
			if !t.Has(column) {
				return 0
			}
			return t.Count(column, 1, maxCount)
		}
		r := Run{
			Setup: Setup{Line: t.Line, Group: t.Text("group"), Use: t.Text("use"), ID: t.Text("run_id"),
				Trace:  t.Text("trace"),
				Policy: policyOf(t.Text("policy_file"), t.Text("policy_actual")), Rate: t.Positive("total_rate"),
				Stride: count("map_stride")},
			CV: 1, Requests: count("num_prompts"), Workers: count("num_instances"), Adapters: count("num_loras"),
			MaxLoras: count("max_loras_per_batch"), MaxRunning: count("max_running_requests"),
			Measured: Values{}, Sent: [2]int{count("inst0_requests"), count("inst1_requests")},
		}
		if uses := []string{Calibration, Validation}; t.Has("use") && r.Use != Calibration && r.Use != Validation {
			t.Fail("use", "%w", suggest.Unknown("use", r.Use, uses))
		}
		if t.Has("cv") {
			r.CV = t.Positive("cv")
		}
		if t.Has("lora_ranks") {
			r.Ranks = readRanks(t.Text("lora_ranks"))
			r.Ranks = r.Ranks[:min(len(r.Ranks), r.Adapters)]
		}
		for _, c := range measuredColumns {
			if t.Has(c.name) {
				r.Measured[c.metric] = t.Positive(c.name)
			}
		}
		runs = append(runs, r)
	})
	return runs, err
}

// policyOf returns the router spec of a policy of the table. It is derived from the policy's name,
// or from words that describe the observed behaviour, which take precedence if they are recognized.
func policyOf(name, words string) string {
	for _, p := range []struct{ word, policy string }{
		{"static block", "static-block"}, {"static modulo", "static"},
		{"random", "random"}, {"least active", "least-loaded:ties=first"},
	} {
		if strings.Contains(strings.ToLower(words), p.word) {
			return p.policy
		}
	}
	switch name = strings.ToLower(name); name {
	case "static":
		return "static-block"
	case "least-loaded":
		return "least-loaded:ties=first"
	}
	return name
}

// readRanks reads ranks such as 64|16|64|8 or 8x4|16x4. Anything but a number is an unknown rank.
func readRanks(s string) []int {
	var ranks []int
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "likely "), " ")
	for part := range strings.SplitSeq(s, "|") {
		rank, times, _ := strings.Cut(part, "x")
		n, err := strconv.Atoi(rank)
		if err != nil || n < 0 {
			n = 0
		}
		repeat, err := strconv.Atoi(times)
		if err != nil || repeat < 1 || repeat > maxAdapters {
			repeat = 1
		}
		for range repeat {
			ranks = append(ranks, n)
		}
	}
	return ranks
}

// Histograms holds the number of invocations of each adapter's functions, by stride of the mapping
// from functions to adapters.
type Histograms map[int][]int64

// ReadHistograms reads invocations per adapter from JSON:
//
//	{"histograms_by_stride": {"4": [23, 162, 206, 228], ...},
//	 "runs": {"any name": {"map_stride": 1, "histogram": [111, 159, 58, 291]}}}
//
// Either part may be absent. Other keys are ignored. name is the name of the file in errors.
func ReadHistograms(in io.Reader, name string) (Histograms, error) {
	var file struct {
		ByStride map[string][]int64 `json:"histograms_by_stride"`
		Runs     map[string]struct {
			Stride    int     `json:"map_stride"`
			Histogram []int64 `json:"histogram"`
		} `json:"runs"`
	}
	if err := json.NewDecoder(in).Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: expected a JSON object with histograms_by_stride or runs: %w", name, err)
	}
	hs := Histograms{}
	for key, counts := range file.ByStride {
		stride, err := strconv.Atoi(key)
		if err != nil || stride < 1 {
			return nil, fmt.Errorf("%s: histograms_by_stride: key %q, expected a stride >= 1", name, key)
		}
		hs[stride] = counts
	}
	for key, run := range file.Runs {
		if run.Stride < 1 {
			return nil, fmt.Errorf("%s: runs.%s: map_stride is %d, expected >= 1", name, key, run.Stride)
		}
		hs[run.Stride] = run.Histogram
	}
	if len(hs) == 0 {
		return nil, fmt.Errorf("%s: no histogram, expected histograms_by_stride or runs", name)
	}
	for stride, counts := range hs {
		if err := checkCounts(counts); err != nil {
			return nil, fmt.Errorf("%s: histogram of stride %d: %w", name, stride, err)
		}
	}
	return hs, nil
}

func checkCounts(counts []int64) error {
	sum := int64(0)
	for i, n := range counts {
		if n < 0 || n > 1e15 {
			return fmt.Errorf("adapter %d has %d invocations, expected 0 to 10^15", i, n)
		}
		sum += n
	}
	if sum == 0 {
		return errors.New("no invocations")
	}
	return nil
}

// Group is the data that a table of runs lacks: the lengths of the requests and, without a
// histogram, the shares of the adapters.
type Group struct {
	// Lengths is a spec of package lengths.
	Lengths string `yaml:"lengths"`
	// MeanKnown says that the mean output length was measured and must not be fitted.
	MeanKnown bool `yaml:"mean_known,omitempty"`
	// FirstWorker is the share of the requests whose adapters are on worker 0 of two under
	// static-block, by trace. It applies if there is no histogram for the run's number of adapters.
	FirstWorker map[string]float64 `yaml:"first_worker,omitempty"`
	// Source is the origin of the numbers.
	Source string `yaml:"source,omitempty"`
}

// Groups holds the groups of runs by name. Other applies to all runs whose group is not listed.
type Groups struct {
	Groups map[string]Group `yaml:"groups"`
	Other  Group            `yaml:"other"`
}

//go:embed groups.yaml
var embeddedGroups string

// DefaultGroups returns the groups of the runs that the embedded profiles were fitted to.
func DefaultGroups() *Groups {
	g, err := ReadGroups(strings.NewReader(embeddedGroups), "groups.yaml")
	if err != nil {
		panic(err) // embedded in the program
	}
	return g
}

// ReadGroups reads a YAML file of groups. name is the name of the file in errors.
func ReadGroups(in io.Reader, name string) (*Groups, error) {
	data, err := textfile.ReadAll(in, name, textfile.MaxSettings)
	if err != nil {
		return nil, err
	}
	g := &Groups{}
	if err := yamlfile.Unmarshal(data, name, g); err != nil {
		return nil, err
	}
	check := func(group string, gr Group) error {
		if _, err := lengths.ParseLaw(gr.Lengths); err != nil {
			return fmt.Errorf("%s: %s: %w", name, group, err)
		}
		for trace, share := range gr.FirstWorker {
			if !(share >= 0 && share <= 1) || math.IsNaN(share) {
				return fmt.Errorf("%s: %s: first_worker of %s is %v, expected 0 to 1", name, group, trace, share)
			}
		}
		return nil
	}
	for group, gr := range g.Groups {
		if err := check("groups."+group, gr); err != nil {
			return nil, err
		}
	}
	return g, check("other", g.Other)
}

// YAML returns the groups as a file for [ReadGroups].
func (g *Groups) YAML() ([]byte, error) { return yaml.Marshal(g) }

// of returns the group of a run.
func (g *Groups) of(r *Run) Group {
	if gr, ok := g.Groups[r.Group]; ok {
		return gr
	}
	return g.Other
}

// Clone returns a copy whose groups can be changed.
func (g *Groups) Clone() *Groups {
	c := &Groups{Groups: maps.Clone(g.Groups), Other: g.Other}
	for name, gr := range c.Groups {
		gr.FirstWorker = maps.Clone(gr.FirstWorker)
		c.Groups[name] = gr
	}
	return c
}
