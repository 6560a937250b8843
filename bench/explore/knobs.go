package explore

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/scenario"
	"lorasim/bench/study/sweep"
	"lorasim/router"
)

// A Knob is a setting on the page.
type Knob struct {
	Key     string   `json:"key"`
	Label   string   `json:"label"`
	Group   string   `json:"group"`
	Main    bool     `json:"main,omitempty"` // always shown; the others are under "all settings"
	Help    string   `json:"help"`
	More    string   `json:"more,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	Type    string   `json:"type"`              // int, float, bool or string
	Choices []string `json:"choices,omitempty"` // all allowed values
	Suggest []string `json:"suggest,omitempty"` // some allowed values, or beginnings of values
	Default string   `json:"default"`
	// Slide holds the ends of a slider, which has a logarithmic scale; nil: no slider.
	Slide *[2]float64 `json:"slide,omitempty"`
}

// main are the knobs that are always shown, in order.
var mainKnobs = []struct {
	key, label, group string
	low, high         float64 // of the slider; 0: none
}{
	{"workload.request_rate", "Request rate", "Requests", 0.5, 200},
	{"workload.num_prompts", "Length of the run", "Requests", 100, 20000},
	{"workload.arrivals", "Burstiness: gaps between requests", "Requests", 0, 0},
	{"workload.pattern", "Rate over time", "Requests", 0, 0},
	{"workload.lengths", "Token lengths", "Requests", 0, 0},
	{"workload.file", "My log", "Requests", 0, 0},
	{"workload.num_adapters", "Adapters", "Adapters", 1, 1024},
	{"workload.lora_ranks", "Ranks", "Adapters", 0, 0},
	{"workload.popularity", "Popularity", "Adapters", 0, 0},
	{"cluster.num_workers", "Workers", "Workers", 1, 64},
	{"cluster.profile", "Profile", "Workers", 0, 0},
	{"cluster.engine.max_loras_per_batch", "GPU adapter slots per worker", "Workers", 1, 128},
	{"cluster.engine.max_loaded_loras", "Adapters in host memory per worker", "Workers", 1, 1024},
	{"cluster.adapter_home", "Storage of adapters not held at the start", "Workers", 0, 0},
}

// hiddenKnobs have fields of their own on the page, or none.
var hiddenKnobs = []string{"name", "routing.policy", "routing.inference_architecture", "routing.migration_type"}

// Knobs lists the settings on the page: the main ones first, then the others by group.
func Knobs() []Knob {
	def := scenario.Default()
	knob := func(f scenario.Field) Knob {
		k := Knob{Key: f.Key, Label: f.Leaf(), Group: cmp.Or(f.Group, "Scenario"), Help: f.Help, More: f.More,
			Unit: f.Unit(), Type: f.Type(), Default: f.Get(&def), Suggest: f.Suggest("")}
		if strings.HasPrefix(f.Values(), "`") {
			k.Choices, k.Suggest = k.Suggest, nil
		}
		return k
	}
	var main, others []Knob
	for _, m := range mainKnobs {
		f, err := scenario.Find(m.key)
		if err != nil {
			panic(err) // a fault of this file
		}
		k := knob(f)
		k.Label, k.Group, k.Main = m.label, m.group, true
		if m.high > 0 {
			k.Slide = &[2]float64{m.low, m.high}
		}
		main = append(main, k)
	}
	for _, f := range scenario.Fields() {
		known := slices.ContainsFunc(main, func(k Knob) bool { return k.Key == f.Key })
		if !known && !slices.Contains(hiddenKnobs, f.Key) {
			others = append(others, knob(f))
		}
	}
	return append(main, others...)
}

// A Policy is a policy that the user can choose.
type Policy struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

// Policies lists the policies that the user can choose.
func Policies() (list []Policy) {
	for _, d := range router.List() {
		list = append(list, Policy{d.Name, d.Summary})
	}
	return list
}

// A Preset is a predefined query.
type Preset struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	Query Query  `json:"query"`
}

// defaultSLO is the SLO of a page whose scenario has none.
const defaultSLO = "ttft:1000 tpot:50"

// DefaultPreset returns the initial query of a page without a file: the default scenario with three policies.
func DefaultPreset() Preset {
	return Preset{Name: "defaults", About: "A skewed, bursty load on four workers.",
		Query: Query{Settings: map[string]string{}, Policies: []string{"plan-and-route", "least-loaded", "static"},
			SLO: defaultSLO, Seeds: "5"}}
}

// ParsePreset reads a scenario or a sweep from YAML; where names the file in errors. From a sweep, it takes the SLO,
// the first value of each varied setting, and the first policies with the baseline among them.
func ParsePreset(data []byte, where string) (Preset, error) {
	sc, err := scenario.Parse(data, where)
	if err != nil {
		return Preset{}, err
	}
	p := Preset{Name: cmp.Or(sc.Name, where),
		Query: Query{Policies: []string{sc.Routing.Policy.String()}, SLO: defaultSLO, Seeds: "5"}}
	if isSweep(data) {
		spec, err := sweep.ParseSpec(data, where)
		if err != nil {
			return p, err
		}
		if p, sc, err = ofSweep(spec, p); err != nil {
			return p, fmt.Errorf("%s: %w", where, err)
		}
	}
	p.Query.Settings = differences(&sc)
	return p, nil
}

// MapPaths replaces each file name in the settings and policies by f(name).
func (p *Preset) MapPaths(f func(path string) string) {
	for key, value := range p.Query.Settings {
		if field, err := scenario.Find(key); err == nil {
			p.Query.Settings[key] = field.MapPaths(value, f)
		}
	}
	if field, err := scenario.Find("routing.policy"); err == nil {
		for i, policy := range p.Query.Policies {
			p.Query.Policies[i] = field.MapPaths(policy, f)
		}
	}
}

// sweepKey is a key that a sweep has and a scenario has not, at the start of a line.
var sweepKey = regexp.MustCompile(`(?m)^(scenario|set|policies|seeds|baseline|goodput)\s*:`)

// isSweep reports whether a file, which is a valid scenario or has one, is a sweep.
func isSweep(data []byte) bool { return sweepKey.Match(data) }

// ofSweep is the preset of a sweep with its first scenario.
func ofSweep(spec *sweep.Spec, p Preset) (Preset, scenario.Scenario, error) {
	sc := spec.Scenario
	for _, a := range spec.Axes {
		if err := sc.Set(a.Key, a.Values[0]); err != nil {
			return p, sc, err
		}
	}
	p.Name, p.About = cmp.Or(spec.Name, p.Name), spec.About
	policies := slices.Clone(spec.Policies)
	if i := slices.Index(policies, spec.Baseline); i > 0 {
		policies = slices.Concat([]string{spec.Baseline}, policies[:i], policies[i+1:])
	}
	if len(policies) > 0 {
		p.Query.Policies = policies[:min(len(policies), MaxPolicies)]
	}
	p.Query.SLO = cmp.Or(spec.Goodput, p.Query.SLO)
	if _, err := result.ParseSLO(p.Query.SLO); err != nil {
		return p, sc, err
	}
	if n := max(spec.SeedCount, len(spec.Seeds)); n > 0 {
		p.Query.Seeds = fmt.Sprint(min(n, 5))
	}
	return p, sc, nil
}

// differences are the settings of a scenario that differ from their defaults.
func differences(sc *scenario.Scenario) map[string]string {
	def, out := scenario.Default(), map[string]string{}
	for _, f := range scenario.Fields() {
		if v := f.Get(sc); v != f.Get(&def) && !slices.Contains(hiddenKnobs, f.Key) {
			out[f.Key] = v
		}
	}
	return out
}

// Presets reads the presets of a folder, in the order of their names. It skips presets whose workload is a file,
// because those files are not part of the program.
func Presets(files fs.FS) ([]Preset, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	list := []Preset{DefaultPreset()}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		p, err := ParsePreset(data, name)
		if err != nil {
			return nil, err
		}
		if s := p.Query.Settings; s["workload.file"] == "" && s["workload.trace_path"] == "" {
			list = append(list, p)
		}
	}
	return list, nil
}

// Start is the initial data of a page.
type Start struct {
	Knobs         []Knob    `json:"knobs"`
	Policies      []Policy  `json:"policies"`
	MaxPolicies   int       `json:"max_policies"`
	Parts         []string  `json:"parts"`
	Presets       []Preset  `json:"presets"`
	Query         Query     `json:"query"` // initial query
	Upload        bool      `json:"upload"`
	Replay        bool      `json:"replay"`
	Probabilities []float64 `json:"probabilities"` // probabilities of the quantiles in Run
}

// NewStart returns the initial data of a page with presets and a query.
func NewStart(presets []Preset, q Query) Start {
	st := Start{Knobs: Knobs(), Policies: Policies(), MaxPolicies: MaxPolicies, Parts: PartNames(), Presets: presets,
		Query: q}
	for i := range series.Quantiles + 1 {
		st.Probabilities = append(st.Probabilities, float64(i)/series.Quantiles)
	}
	return st
}
