package sweep

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/suggest"
	"lorasim/trace"
)

// schema names the version of the manifest and of the files of cells.
const schema = "lorasim.sweep/2"

// Manifest is a sweep written out. Once it is in a folder it may grow, see
// [Create], but what a cell is never changes.
type Manifest struct {
	Schema   string `json:"schema"`
	Name     string `json:"name"`
	About    string `json:"about,omitempty"`
	Hash     string `json:"hash"` // of everything below that matters to results
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

// Cell is one run of a sweep.
type Cell struct {
	Index  int      `json:"index"`
	Seed   uint64   `json:"seed"`
	Policy string   `json:"policy"`
	Values []string `json:"values"` // of the axes, in order
	Hash   string   `json:"hash"`   // of its scenario
}

// Fingerprint identifies a file that a sweep reads.
type Fingerprint struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Plan writes a spec out: its cells in the order of the axes (the first varies
// slowest), then the policies, then the seeds. It checks what can be checked
// without running anything.
func (s *Spec) Plan(ctx context.Context) (*Manifest, error) {
	spec := *s
	if err := spec.complete(); err != nil {
		return nil, err
	}
	if err := spec.commonRanks(); err != nil {
		return nil, err
	}
	m := &Manifest{Schema: schema, Name: spec.Name, About: spec.About, Grid: spec.Grid, base: spec.Scenario, anyBaseline: s.Baseline == ""}
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	if err := m.takeFingerprints(); err != nil {
		return nil, err
	}
	return m, m.write()
}

// commonRanks gives all cells the same default ranks where an axis decides which
// ranks the workers load.
func (s *Spec) commonRanks() error {
	var variants []scenario.Scenario
	for _, a := range s.Axes {
		switch a.Key {
		case "workload.lora_ranks", "workload.file":
			return nil // the axis states them
		case "cluster.profile", "cluster.max_lora_rank":
			for _, v := range a.Values {
				sc := s.Scenario
				if err := setting(a.Key).Set(&sc, v); err != nil {
					return err
				}
				variants = append(variants, sc)
			}
		}
	}
	s.Scenario.CommonRanks(variants...)
	return nil
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

// takeFingerprints notes the files that the settings name.
func (m *Manifest) takeFingerprints() error {
	var failed error
	seen := map[string]bool{}
	note := func(path string) string {
		if !seen[path] && failed == nil {
			var sum string
			sum, failed = sumPath(path)
			m.Inputs = append(m.Inputs, Fingerprint{path, sum})
		}
		seen[path] = true
		return path
	}
	base := m.base
	base.Routing.Policy = ""
	for _, a := range m.Axes {
		if err := setting(a.Key).Set(&base, a.Values[0]); err != nil { // the base's own value does not matter
			return err
		}
	}
	base.MapPaths(note)
	m.mapPaths(note)
	return failed
}

// sumPath is the hash of a file; of a folder, that of the names and sizes of its
// files, as traces in folders are too large to be read more often than needed.
func sumPath(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if st, err := f.Stat(); err == nil && !st.IsDir() {
		_, err = io.Copy(h, f)
		return hex.EncodeToString(h.Sum(nil)), err
	}
	entries, err := os.ReadDir(path) // sorted
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return "", err
		}
		if info.Mode().IsRegular() {
			fmt.Fprintf(h, "%q %d\n", e.Name(), info.Size())
		}
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// checkInputs makes sure that the files are those that the sweep was planned
// with.
func (m *Manifest) checkInputs() error {
	for _, in := range m.Inputs {
		path := m.resolve(in.Path)
		sum, err := sumPath(path)
		if err != nil {
			return err
		}
		if sum != in.SHA256 {
			return fmt.Errorf("%s has changed since the sweep was planned", path)
		}
	}
	return nil
}

// resolve turns a path of the manifest into one from the working directory.
func (m *Manifest) resolve(path string) string { return scenario.In(m.dir)(path) }

// moveTo makes relative paths those from the folder of the sweep instead of the
// working directory, so that the sweep can be gone on with from anywhere, and on
// machines that see folder and files elsewhere.
func (m *Manifest) moveTo(dir string) error {
	abs, failed := filepath.Abs(dir)
	to := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		p, err := filepath.Abs(path)
		if err == nil {
			p, err = filepath.Rel(abs, p)
		}
		failed = cmp.Or(failed, err)
		return p
	}
	m.base.MapPaths(to)
	m.mapPaths(to)
	for i := range m.Inputs {
		m.Inputs[i].Path = to(m.Inputs[i].Path)
	}
	if m.dir = dir; failed != nil {
		return failed
	}
	return m.write()
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

// addCells makes the cells: of each combination of values, of which the last axis
// varies fastest, one for each policy and seed.
func (m *Manifest) addCells() error {
	content := map[string]string{} // instead of paths, which differ by folder
	for _, in := range m.Inputs {
		content[in.Path] = "sha256:" + in.SHA256
	}
	byContent := func(path string) string { return cmp.Or(content[path], path) }
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n", schema, m.Goodput, mapPolicy(m.Baseline, byContent))
	for _, in := range m.Inputs {
		fmt.Fprintln(sum, in.SHA256)
	}
	m.alike = nil
	runs := map[string][]int{} // cells by the hash of what can change their run
	var keys []string          // of the cells, in runs
	combinations := 1
	for _, a := range m.Axes {
		combinations *= len(a.Values)
	}
	for n := range combinations {
		values := make([]string, len(m.Axes))
		for i, a := range slices.Backward(m.Axes) {
			values[i], n = a.Values[n%len(a.Values)], n/len(a.Values)
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
				key := c.Hash
				if m.variesUnused(sc) {
					key = m.hash(sc.Effective(), byContent)
				}
				runs[key], keys = append(runs[key], c.Index), append(keys, key)
				m.Cells = append(m.Cells, c)
			}
		}
	}
	for _, key := range keys {
		if len(runs[key]) == 1 {
			runs[key] = nil
		}
		m.alike = append(m.alike, runs[key])
	}
	m.Hash = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// variesUnused says whether an axis is a setting that a cell's policy does not use.
func (m *Manifest) variesUnused(sc *scenario.Scenario) bool {
	return slices.ContainsFunc(sc.Unused(), func(key string) bool {
		return slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
	})
}

// Runs is the index of the cell that runs for this one: its own, or that of the
// first cell that differs from it only in settings that their policy does not use.
func (m *Manifest) Runs(c *Cell) int {
	if all := m.sharing(c); all != nil {
		return all[0]
	}
	return c.Index
}

// sharing lists the cells that must have the result of this one, itself among
// them; nil: none but itself.
func (m *Manifest) sharing(c *Cell) []int {
	if m == nil || c.Index >= len(m.alike) {
		return nil
	}
	return m.alike[c.Index]
}

// Shared is the number of cells that take the result of another one.
func (m *Manifest) Shared() (n int) {
	for i := range m.Cells {
		if m.Runs(&m.Cells[i]) != i {
			n++
		}
	}
	return n
}

// Shares says, for each policy that shares runs, which of the axes it does not use.
func (m *Manifest) Shares() (policies []string, axes [][]string) {
	for i, p := range m.Policies {
		sc, err := m.stored(&m.Cells[i*len(m.Seeds)])
		if err != nil {
			continue // such a cell fails
		}
		var unused []string
		for _, a := range m.Axes {
			if len(a.Values) > 1 && slices.Contains(sc.Unused(), a.Key) {
				unused = append(unused, a.Leaf())
			}
		}
		if unused != nil {
			policies, axes = append(policies, p), append(axes, unused)
		}
	}
	return policies, axes
}

// ScenarioOf returns the scenario of a cell.
func (m *Manifest) ScenarioOf(c *Cell) (*scenario.Scenario, error) {
	sc, err := m.stored(c)
	if err == nil && m.dir != "" {
		sc.MapPaths(m.resolve)
	}
	return sc, err
}

// stored is the scenario of a cell with the paths of the manifest.
func (m *Manifest) stored(c *Cell) (*scenario.Scenario, error) {
	sc := m.base
	sc.Seed, sc.Routing.Policy = c.Seed, c.Policy
	for i, a := range m.Axes {
		if err := setting(a.Key).Set(&sc, c.Values[i]); err != nil {
			return nil, fmt.Errorf("cell %d: %w", c.Index, err)
		}
	}
	return &sc, nil
}

// hashed are the settings that every hash contains. Settings that were added later
// enter only where they differ from their default, so that sweeps of older versions
// keep their hashes.
var hashed = strings.Fields(hashedText)

//go:embed hashed.txt
var hashedText string

// hash identifies what a cell's result depends on; byContent replaces the names
// of files by their hashes.
func (m *Manifest) hash(sc *scenario.Scenario, byContent func(path string) string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n", schema, m.Goodput)
	if m.Oracle {
		fmt.Fprintln(&b, "oracle")
	}
	own := *sc
	own.MapPaths(byContent)
	def := scenario.Default()
	for _, f := range scenario.Fields() {
		if v := f.Get(&own); v != f.Get(&def) || slices.Contains(hashed, f.Key) {
			fmt.Fprintf(&b, "%s=%q\n", f.Key, v)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:16])
}

// SLO returns the limits of goodput.
func (m *Manifest) SLO() result.SLO {
	slo, _ := result.ParseSLO(m.Goodput) // was checked when the sweep was planned
	return slo
}

// unusedSettings is Shares for JSON: for each such policy the full keys.
func (m *Manifest) unusedSettings() map[string][]string {
	policies, axes := m.Shares()
	if policies == nil {
		return nil
	}
	out := map[string][]string{}
	for i, p := range policies {
		for _, a := range m.Axes {
			if slices.Contains(axes[i], a.Leaf()) {
				out[p] = append(out[p], a.Key)
			}
		}
	}
	return out
}

// Describe names a cell by its settings.
func (m *Manifest) Describe(c *Cell) string {
	return fmt.Sprintf("%spolicy=%s seed=%d", m.settingsText(c.Values), c.Policy, c.Seed)
}

// settingsText lists the values of the axes, each followed by a space.
func (m *Manifest) settingsText(values []string) (text string) {
	for i, a := range m.Axes {
		text += a.Leaf() + "=" + values[i] + " "
	}
	return text
}

// CheckMetrics finds names that no cell of a sweep can have a number of, before
// any cell has run.
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

// CheckBaseline finds a baseline that is none of the policies.
func (m *Manifest) CheckBaseline(policy string) error {
	if policy == "" {
		return nil
	}
	return suggest.Among("baseline", policy, m.Policies)
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
	if m.Schema != schema {
		return nil, fmt.Errorf("%s: schema is %q, expected %q", where, m.Schema, schema)
	}
	sc, err := scenario.Parse([]byte(m.Scenario), where+" (scenario)")
	if err != nil {
		return nil, err
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
		if a.Index != i || a.Hash != b.Hash || a.Seed != b.Seed || a.Policy != b.Policy {
			return nil, fmt.Errorf("%s: cell %d is not what the settings give; the file was changed, or made by another version", where, i)
		}
	}
	if m.Hash != again.Hash {
		return nil, fmt.Errorf("%s: the hash does not fit; the file was changed, or made by another version", where)
	}
	m.base, m.Axes, m.Cells, m.alike = sc, again.Axes, again.Cells, again.alike
	return m, nil
}
