package sweep

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/trace"
)

// schema names the version of the manifest and of the files of cells.
const schema = "lorasim.sweep/2"

// A Manifest is a planned sweep with all its cells. A manifest in a folder may grow (see [Create]), but its cells
// never change.
type Manifest struct {
	Schema   string `json:"schema"`
	Name     string `json:"name"`
	About    string `json:"about,omitempty"`
	Hash     string `json:"hash"` // hash of all fields below that affect results
	Scenario string `json:"scenario"`
	Grid
	Inputs []Fingerprint `json:"inputs,omitempty"`
	Cells  []Cell        `json:"cells"`

	base scenario.Scenario
	// dir is the folder that relative paths in the fields above are from; "":
	// the working directory, as long as the sweep has no folder.
	dir         string
	anyBaseline bool // nobody asked for Baseline
	// alike lists for each cell the cells that must have the same result, itself
	// among them, by index; nil: none but itself. They differ only in settings that
	// their policy does not use (scenario.Unused), so that one of them runs for all.
	alike [][]int
}

// Plan lists the cells of a sweep: by axes (the first varies slowest), then policies, then seeds. It returns the
// errors that can be found without a run.
func (s *Spec) Plan(ctx context.Context) (*Manifest, error) {
	spec := *s
	if err := spec.complete(); err != nil {
		return nil, err
	}
	if err := spec.commonRanks(ctx); err != nil {
		return nil, err
	}
	m := &Manifest{
		Schema: schema, Name: spec.Name, About: spec.About, Grid: spec.Grid, base: spec.Scenario,
		anyBaseline: s.Baseline == "",
	}
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	if err := m.takeFingerprints(); err != nil {
		return nil, err
	}
	return m, m.write()
}

// commonRanks gives all cells the same default ranks if an axis affects the ranks that the workers load.
func (s *Spec) commonRanks(ctx context.Context) error {
	var variants []scenario.Scenario
	for _, a := range s.Axes {
		switch a.Key {
		case "workload.lora_ranks", "workload.file":
			return nil // the axis states them
		case "cluster.profile", "cluster.engine.max_lora_rank":
			for _, v := range a.Values {
				sc := s.Scenario
				if err := setting(a.Key).Set(&sc, v); err != nil {
					return err
				}
				variants = append(variants, sc)
			}
		}
	}
	return s.Scenario.CommonRanks(ctx, variants...)
}

// check tries every policy, and every value of every axis, in one cell each, so
// that a wrong one is found now and not in the middle of the sweep.
func (m *Manifest) check(ctx context.Context) error {
	first := map[string]*trace.Workload{}
	try := func(policy, key, value string) error {
		sc := m.base
		sc.Seed = m.Seeds[0]
		if err := setting(policyKey).Set(&sc, policy); err != nil {
			return err
		}
		for _, a := range m.Axes {
			v := a.Values[0]
			if a.Key == key {
				v = value
			}
			if err := setting(a.Key).Set(&sc, v); err != nil {
				return err
			}
		}
		k := workloadKey(&sc)
		if first[k] == nil {
			var err error
			if first[k], err = sc.First(ctx); err != nil {
				return err
			}
		}
		return sc.Check(ctx, first[k])
	}
	for _, p := range m.Policies {
		if err := try(p, "", ""); err != nil {
			return err
		}
	}
	for _, a := range m.Axes {
		for _, v := range a.Values[1:] { // the first one was tried with the policies
			if err := try(m.Policies[0], a.Key, v); err != nil {
				return fmt.Errorf("%s %s: %w", a.Key, v, err)
			}
		}
	}
	return nil
}

// write writes out what follows from the settings: the text of the scenario,
// the cells, the hash.
func (m *Manifest) write() error {
	text, err := m.base.YAML()
	if err != nil {
		return err
	}
	m.Scenario, m.Cells = string(text), nil
	slices.SortFunc(m.Inputs, func(a, b Fingerprint) int { // in no order of paths, which differ by folder
		return cmp.Or(strings.Compare(a.SHA256, b.SHA256), strings.Compare(a.Path, b.Path))
	})
	return m.addCells()
}

// SLO returns the latency limits of goodput.
func (m *Manifest) SLO() result.SLO {
	slo, _ := result.ParseSLO(m.Goodput) // was checked when the sweep was planned
	return slo
}

// CheckMetrics returns an error for names that no cell of the sweep can have a value of. It needs no results.
func (m *Manifest) CheckMetrics(names []string) error {
	known := result.KnownValues()
	for _, n := range names {
		if err := suggest.Among("metric", n, known); err != nil {
			return err
		}
		if strings.HasPrefix(n, "goodput.") && m.Goodput == "" {
			return fmt.Errorf("%s needs an SLO, see --goodput", n)
		}
	}
	return nil
}

// CheckBaseline returns an error if the baseline is none of the policies. "" is valid.
func (m *Manifest) CheckBaseline(policy string) error {
	if policy == "" {
		return nil
	}
	return suggest.Among("baseline", router.Canonical(policy), m.Policies)
}

// readManifest reads a manifest. It returns an error if [Spec.Plan] would not make the same manifest from the
// settings.
func readManifest(data []byte, where string) (*Manifest, error) {
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: not a manifest of a sweep: %w", where, err)
	}
	if m.Schema != schema {
		return nil, fmt.Errorf("%s: schema is %q, expected %q", where, m.Schema, schema)
	}
	sc, err := scenario.Parse([]byte(m.Scenario), where+" (scenario)")
	if err != nil {
		return nil, err
	}
	m.Baseline = router.Canonical(m.Baseline)
	for i, p := range m.Policies {
		m.Policies[i] = router.Canonical(p)
	}
	again := &Manifest{Grid: m.Grid, Inputs: m.Inputs, base: sc}
	again.Axes = nil
	for _, a := range m.Axes {
		if a, err = NewAxis(a.Key, a.Values); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		again.Axes = append(again.Axes, a)
	}
	n, err := m.cells()
	switch {
	case err != nil || n != len(m.Cells):
		return nil, fmt.Errorf("%s: %d cells, expected %d", where, len(m.Cells), n)
	case n == 0:
		return nil, fmt.Errorf("%s: no cells", where)
	}
	if err := again.addCells(); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	for i := range m.Cells {
		a, b := &m.Cells[i], &again.Cells[i]
		if a.Index != i || a.Hash != b.Hash || a.Seed != b.Seed ||
			router.Canonical(a.Policy) != b.Policy {
			return nil, fmt.Errorf(
				"%s: cell %d is not what the settings give; the file was changed, or made by another version", where, i)
		}
	}
	if m.Hash != again.Hash {
		return nil, fmt.Errorf("%s: the hash does not match; the file was changed, or made by another version", where)
	}
	m.base, m.Axes, m.Cells, m.alike = sc, again.Axes, again.Cells, again.alike
	return m, nil
}
