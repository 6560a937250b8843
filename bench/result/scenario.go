package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/format"
)

// A Scenario describes what ran. The zero value means unknown. Results of older versions
// and JSONL lines have only a Summary.
type Scenario struct {
	// Summary is the scenario's name, or the settings that differ from their defaults.
	Summary string `json:"summary,omitempty"`

	Policy        string            `json:"policy,omitempty"`         // name, without options
	PolicyOptions map[string]string `json:"policy_options,omitempty"` // options that differ from their defaults
	// Moving is how requests migrate; "" means that the policy migrates none.
	Moving string `json:"request_migration,omitempty"`

	Workers  int          `json:"workers,omitempty"` // number; in an elastic cluster the largest number
	Elastic  string       `json:"elastic,omitempty"` // autoscaling setting; "": the number of workers is fixed
	Profiles []RanProfile `json:"profiles,omitempty"`
	Adapters int          `json:"adapters"`
	// WithRequests is the number of adapters that a saved workload or a log names, if the scenario adds others; else 0.
	WithRequests int           `json:"adapters_with_requests,omitempty"`
	Ranks        []RankCount   `json:"ranks,omitempty"` // in ascending order
	Workload     *RanWorkload  `json:"workload,omitempty"`
	Seed         *uint64       `json:"seed,omitempty"`
	Settings     []SettingUsed `json:"settings,omitempty"` // other settings that differ from their defaults
}

// A RanProfile is a profile and the workers that use it.
type RanProfile struct {
	Name string `json:"name"`
	// Kind is "measured", "calibrated" or "computed".
	Kind     string `json:"kind"`
	Hardware string `json:"hardware,omitempty"`
	Workers  int    `json:"workers"`
	// Engine is the simulated scheduler (sglang, vllm), or for a live run the engine and
	// its version.
	Engine string `json:"engine"`
	// AdapterSlots is the number of adapter slots of a worker.
	AdapterSlots int `json:"adapter_slots"`
	// Routing reports whether only the policy uses the profile's step times, as in live
	// runs.
	Routing bool `json:"for_routing_alone,omitempty"`
}

// A RankCount is the number of adapters of one rank.
type RankCount struct {
	Rank     int `json:"rank"`
	Adapters int `json:"adapters"`
}

// A RanWorkload describes the source of the requests.
type RanWorkload struct {
	Source   string `json:"source"`         // "generated", the name of a trace, a file, ...
	File     string `json:"file,omitempty"` // file that was read
	Requests int64  `json:"requests"`
	Rate     Rate   `json:"rate"`    // requests/s; TraceRate: the source's own times
	Lengths  string `json:"lengths"` // setting; "source": the lengths of the source
}

// A SettingUsed is a setting that differs from its default.
type SettingUsed struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// UnmarshalJSON reads an object, or a string with only the summary, as in results of older
// versions and in lines of WriteJSONL.
func (s *Scenario) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*s = Scenario{}
		return json.Unmarshal(data, &s.Summary)
	}
	type plain Scenario // without this method
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return fmt.Errorf("is neither a text nor an object: %w", err)
	}
	return nil
}

// known reports whether more than the summary is known.
func (s *Scenario) known() bool { return s.Policy != "" || s.Workload != nil }

// WriteScenario writes the scenario in a few lines of text. It writes nothing if only the
// summary is known.
func (r *Result) WriteScenario(w io.Writer) error {
	s := &r.Scenario
	if !s.known() {
		return nil
	}
	var b strings.Builder
	line := func(label, text string) { writeHead(&b, label, text) }
	if !strings.Contains(s.Summary, "=") && s.Summary != "defaults" {
		line("Scenario", s.Summary)
	}
	line("Policy", s.policyText())
	workers := fmt.Sprint(s.Workers)
	if s.Elastic != "" {
		workers = "up to " + workers
	}
	for i := range s.Profiles {
		p := &s.Profiles[i]
		if len(s.Profiles) > 1 {
			workers = fmt.Sprintf("%d of %d", p.Workers, s.Workers)
		}
		slots := format.Count(p.AdapterSlots, "adapter slot")
		line("Workers", fmt.Sprintf("%s, engine %s, %s", workers, p.Engine, slots))
		line("Profile", p.text())
	}
	line("Adapters", s.adaptersText())
	if s.Workload != nil {
		line("Workload", s.Workload.text())
	}
	if s.Seed != nil {
		line("Seed", strconv.FormatUint(*s.Seed, 10))
	}
	var settings []string
	for _, v := range s.Settings {
		settings = append(settings, v.Key[strings.LastIndexByte(v.Key, '.')+1:]+"="+v.Value)
	}
	line("Settings", strings.Join(settings, " "))
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHead writes a line of the head of a result, and nothing without a text.
func writeHead(b *strings.Builder, label, text string) {
	if text == "" {
		return
	}
	const indent = 10
	lines := strings.Split(format.Paragraph(text, format.Width-indent), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	fmt.Fprintf(b, "%-*s%s\n", indent, label, strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
}

func (s *Scenario) policyText() string {
	text := s.Policy
	var options []string
	for _, k := range slices.Sorted(maps.Keys(s.PolicyOptions)) {
		options = append(options, k+"="+s.PolicyOptions[k])
	}
	if options != nil {
		text += " (" + strings.Join(options, ", ") + ")"
	}
	return text
}

func (p *RanProfile) text() string {
	text := fmt.Sprintf("%s, %s", p.Name, p.Kind)
	if p.Hardware != "" {
		text += " (" + p.Hardware + ")"
	}
	if p.Routing {
		text += ", used only by the policy"
	}
	return text
}

// mostRanks is the number of different ranks that are listed one by one.
const mostRanks = 8

// adaptersText describes the adapters, as in "32, ranks 8, 16, 32, 64 (8 each)".
func (s *Scenario) adaptersText() string {
	text, n := fmt.Sprint(s.Adapters), len(s.Ranks)
	if s.WithRequests > 0 {
		text += fmt.Sprintf(" (%d of the workload, %d without requests)", s.WithRequests, s.Adapters-s.WithRequests)
	}
	even := !slices.ContainsFunc(s.Ranks, func(c RankCount) bool { return c.Adapters != s.Ranks[0].Adapters })
	var ranks []string
	for _, c := range s.Ranks {
		rank := strconv.Itoa(c.Rank)
		if !even {
			rank = fmt.Sprintf("%d (%d)", c.Rank, c.Adapters)
		}
		ranks = append(ranks, rank)
	}
	switch {
	case n == 0:
		return text
	case n == 1 && s.Ranks[0].Rank == 0:
		return text + ", ranks unknown"
	case n == 1:
		return text + ", rank " + strconv.Itoa(s.Ranks[0].Rank)
	case n > mostRanks:
		return fmt.Sprintf("%s, %d ranks from %d to %d", text, n, s.Ranks[0].Rank, s.Ranks[n-1].Rank)
	case even:
		return fmt.Sprintf("%s, ranks %s (%d each)", text, strings.Join(ranks, ", "), s.Ranks[0].Adapters)
	}
	return text + ", ranks " + strings.Join(ranks, ", ")
}

func (w *RanWorkload) text() string {
	text := w.Source
	if w.File != "" {
		text += " " + w.File[strings.LastIndexByte(w.File, '/')+1:]
	}
	text += ", " + format.Count(int(w.Requests), "request")
	switch {
	case w.Rate == TraceRate:
		text += " at its own times"
	case math.IsInf(float64(w.Rate), 1):
		text += ", all at once"
	case w.Rate > 0:
		text += fmt.Sprintf(" at %s/s", strconv.FormatFloat(float64(w.Rate), 'g', -1, 64))
	}
	return text + ", lengths " + cmp.Or(w.Lengths, "unknown")
}
