package sweep

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/atomicfile"
	"lorasim/trace"
)

// Schema names the version of the manifest and of the files of cells.
const Schema = "lorasim.sweep/2"

// Manifest is a sweep written out. Once it is in a folder it may grow, see
// [Create], but what a cell is never changes.
type Manifest struct {
	Schema   string        `json:"schema"`
	Name     string        `json:"name"`
	About    string        `json:"about,omitempty"`
	Hash     string        `json:"hash"` // of everything below that matters to results
	Scenario string        `json:"scenario"`
	Axes     []Axis        `json:"axes"`
	Policies []string      `json:"policies"`
	Seeds    []uint64      `json:"seeds"`
	Baseline string        `json:"baseline"`
	Goodput  string        `json:"goodput,omitempty"`
	Inputs   []Fingerprint `json:"inputs,omitempty"`
	Cells    []Cell        `json:"cells"`

	base scenario.Scenario
	// dir is the folder that relative paths in the fields above are from; "":
	// the working directory, as long as the sweep has no folder.
	dir         string
	anyBaseline bool // nobody asked for Baseline
}

// Cell is one run of a sweep.
type Cell struct {
	Index  int      `json:"index"`
	Seed   uint64   `json:"seed"`
	Policy string   `json:"policy"`
	Values []string `json:"values"` // of the axes, in order
	Hash   string   `json:"hash"`   // of its scenario
}

// Plan writes a spec out: its cells in the order of the axes (the first varies
// slowest), then the policies, then the seeds. It checks what can be checked
// without running anything.
func (s *Spec) Plan(ctx context.Context) (*Manifest, error) {
	spec := *s
	if err := spec.complete(); err != nil {
		return nil, err
	}
	m := &Manifest{
		Schema: Schema, Name: spec.Name, About: spec.About, Axes: spec.Axes,
		Policies: spec.Policies, Seeds: spec.Seeds, Baseline: spec.Baseline, Goodput: spec.Goodput,
		base: spec.Scenario, anyBaseline: s.Baseline == "",
	}
	if m.Axes == nil {
		m.Axes = []Axis{}
	}
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	var err error
	if m.Inputs, err = m.fingerprints(); err != nil {
		return nil, err
	}
	if err := m.write(); err != nil {
		return nil, err
	}
	return m, nil
}

// check tries every policy, and every value of every axis, in one cell each, so
// that a wrong one is found now and not in the middle of the sweep.
func (m *Manifest) check(ctx context.Context) error {
	first := map[string]*trace.Workload{}
	try := func(policy, key, value string) error {
		sc := m.base
		sc.Seed, sc.Routing.Policy = m.Seeds[0], policy
		for _, a := range m.Axes {
			v := a.Values[0]
			if a.Key == key {
				v = value
			}
			if err := sc.Set(a.Key, v); err != nil {
				return err
			}
		}
		k := workloadKey(&sc)
		if first[k] == nil {
			w, err := sc.First(ctx)
			if err != nil {
				return err
			}
			first[k] = w
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

func (m *Manifest) addCells() error {
	at := make([]int, len(m.Axes))
	sum := sha256.New()
	content := map[string]string{} // instead of paths, which differ by folder
	for _, in := range m.Inputs {
		content[in.Path] = "sha256:" + in.SHA256
	}
	byContent := func(path string) string { return cmp.Or(content[path], path) }
	fmt.Fprintf(sum, "%s\n%s\n%s\n", Schema, m.Goodput, mapPolicy(m.Baseline, byContent))
	for _, in := range m.Inputs {
		fmt.Fprintln(sum, in.SHA256)
	}
	for {
		values := make([]string, len(at))
		for i, k := range at {
			values[i] = m.Axes[i].Values[k]
		}
		for _, p := range m.Policies {
			for _, seed := range m.Seeds {
				c := Cell{Index: len(m.Cells), Seed: seed, Policy: p, Values: values}
				sc, err := m.stored(&c)
				if err != nil {
					return err
				}
				c.Hash = m.hash(sc, byContent)
				fmt.Fprintln(sum, c.Hash)
				m.Cells = append(m.Cells, c)
			}
		}
		if !next(at, m.Axes) {
			m.Hash = hex.EncodeToString(sum.Sum(nil))
			return nil
		}
	}
}

// next moves on to the next combination of values, the last axis first.
func next(at []int, axes []Axis) bool {
	for i := len(at) - 1; i >= 0; i-- {
		if at[i]++; at[i] < len(axes[i].Values) {
			return true
		}
		at[i] = 0
	}
	return false
}

// ScenarioOf returns the scenario of a cell.
func (m *Manifest) ScenarioOf(c *Cell) (*scenario.Scenario, error) {
	sc, err := m.stored(c)
	if err == nil && m.dir != "" {
		sc.MapPaths(scenario.In(m.dir))
	}
	return sc, err
}

// stored is the scenario of a cell with the paths of the manifest.
func (m *Manifest) stored(c *Cell) (*scenario.Scenario, error) {
	sc := m.base
	sc.Seed, sc.Routing.Policy = c.Seed, c.Policy
	for i, a := range m.Axes {
		f, ok := fieldByKey[a.Key]
		if !ok {
			return nil, fmt.Errorf("cell %d: unknown key %q", c.Index, a.Key)
		}
		if err := f.Set(&sc, c.Values[i]); err != nil {
			return nil, fmt.Errorf("cell %d: %w", c.Index, err)
		}
	}
	return &sc, nil
}

// hash identifies what a cell's result depends on; byContent replaces the names
// of files by their hashes.
func (m *Manifest) hash(sc *scenario.Scenario, byContent func(path string) string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n", Schema, m.Goodput)
	own := *sc
	own.MapPaths(byContent)
	for _, f := range fields {
		fmt.Fprintf(&b, "%s=%q\n", f.Key, f.Get(&own))
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:16])
}

// The settings, found once: reflection for each of many cells would take longer
// than planning them.
var fields, fieldByKey = index()

func index() ([]scenario.Field, map[string]scenario.Field) {
	fs, by := scenario.Fields(), map[string]scenario.Field{}
	for _, f := range fs {
		by[f.Key] = f
	}
	return fs, by
}

// SLO returns the limits of goodput.
func (m *Manifest) SLO() result.SLO {
	slo, _ := result.ParseSLO(m.Goodput) // was checked when the sweep was planned
	return slo
}

const manifestFile = "manifest.json"

// save writes the manifest into its folder, unless it is there.
func (m *Manifest) save() error {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	path := filepath.Join(m.dir, manifestFile)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return atomicfile.Write(path, func(f *atomicfile.File) error {
		_, err := f.Write(data)
		return err
	})
}

// ReadManifest reads a manifest and checks that it is what [Spec.Plan] makes of
// its settings.
func ReadManifest(data []byte, where string) (*Manifest, error) {
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: not a manifest of a sweep: %w", where, err)
	}
	if m.Schema != Schema {
		return nil, fmt.Errorf("%s: schema is %q, expected %q", where, m.Schema, Schema)
	}
	sc, err := scenario.Parse([]byte(m.Scenario), where+" (scenario)")
	if err != nil {
		return nil, err
	}
	again := &Manifest{Schema: Schema, Goodput: m.Goodput, Baseline: m.Baseline, Policies: m.Policies, Seeds: m.Seeds, Inputs: m.Inputs, base: sc}
	cells := len(m.Policies) * len(m.Seeds)
	for _, a := range m.Axes {
		b, err := NewAxis(a.Key, a.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if again.Axes = append(again.Axes, b); cells <= maxCells {
			cells *= len(a.Values)
		}
	}
	if cells != len(m.Cells) {
		return nil, fmt.Errorf("%s: %d cells, expected %d", where, len(m.Cells), cells)
	}
	if cells == 0 {
		return nil, fmt.Errorf("%s: no cells", where)
	}
	if err := again.addCells(); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	for i := range m.Cells {
		a, b := &m.Cells[i], &again.Cells[i]
		if a.Index != i || a.Hash != b.Hash || a.Seed != b.Seed || a.Policy != b.Policy {
			return nil, fmt.Errorf("%s: cell %d is not what the settings give; the file was changed, or made by another version", where, i)
		}
	}
	if m.Hash != again.Hash {
		return nil, fmt.Errorf("%s: the hash does not fit; the file was changed, or made by another version", where)
	}
	m.base, m.Cells = sc, again.Cells
	return m, nil
}
