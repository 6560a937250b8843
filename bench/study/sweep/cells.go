package sweep

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/internal/format"
	"lorasim/router"
)

// A Cell is one run of a sweep.
type Cell struct {
	Index  int      `json:"index"`
	Seed   uint64   `json:"seed"`
	Policy string   `json:"policy"`
	Values []string `json:"values"` // values of the axes, in order
	Hash   string   `json:"hash"`   // hash of the cell's scenario
}

// addCells adds one cell per combination of values, policy and seed. The last axis varies fastest.
func (m *Manifest) addCells() error {
	content := map[string]string{} // instead of paths, which differ by folder
	for _, in := range m.Inputs {
		content[in.Path] = "sha256:" + in.SHA256
	}
	byContent := func(path string) string { return cmp.Or(content[path], path) }
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n", schema, m.Goodput, router.Oldest(mapPolicy(m.Baseline, byContent)))
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

// variesUnused reports whether an axis is a setting that a cell's policy does not use.
func (m *Manifest) variesUnused(sc *scenario.Scenario) bool {
	return slices.ContainsFunc(sc.Unused(), func(key string) bool {
		return slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
	})
}

// Runs returns the index of the cell whose run gives the result of c. It is the first cell that differs from c only in
// settings that their policy does not use; often c itself.
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

// Shared returns the number of cells that take their result from another cell.
func (m *Manifest) Shared() (n int) {
	for i := range m.Cells {
		if m.Runs(&m.Cells[i]) != i {
			n++
		}
	}
	return n
}

// Shares lists the policies whose cells share runs, and for each policy the axes that it does not use.
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

// ScenarioOf returns the scenario of a cell.
func (m *Manifest) ScenarioOf(c *Cell) (*scenario.Scenario, error) {
	sc, err := m.stored(c)
	if err == nil && m.dir != "" {
		err = sc.MapPaths(m.resolve)
	}
	return sc, err
}

// Command returns the command that runs the sweep in its folder, with changes of the scenario and a number of seeds in
// place of its own (0: its own); "": flags cannot state it.
func (d *Dir) Command(folder string, seeds int, change func(*scenario.Scenario) error) (string, error) {
	sc, err := d.ScenarioOf(&d.Cells[0])
	if err != nil || len(d.Cells[0].Values) != len(d.Axes) {
		return "", err
	}
	first, plain := d.Seeds[0], scenario.Default()
	for i, s := range d.Seeds {
		if s != first+uint64(i) {
			return "", nil
		}
	}
	words := []string{"lorasim sweep", "-o", format.Shell(folder)}
	if base := filepath.Base(folder); d.Name != base {
		words = append(words, "--name", format.Shell(d.Name))
	}
	for _, a := range d.Axes {
		f := setting(a.Key)
		values := list(a.Values)
		if values == "" {
			return "", nil
		}
		if err := f.Set(sc, f.Get(&plain)); err != nil {
			return "", err
		}
		key := a.Leaf()
		if g, err := scenario.Find(key); err != nil || g.Key != a.Key {
			key = a.Key
		}
		words = append(words, "--set", format.Shell(key+"="+values))
	}
	policies := list(d.Policies)
	if policies == "" {
		return "", nil
	}
	if err := setting(policyKey).Set(sc, setting(policyKey).Get(&plain)); err != nil {
		return "", err
	}
	words = append(words, "--policies", format.Shell(policies), "--seeds", strconv.Itoa(cmp.Or(seeds, len(d.Seeds))))
	if d.Goodput != "" {
		words = append(words, "--goodput", format.Shell(d.Goodput))
	}
	if change != nil {
		if err := change(sc); err != nil {
			return "", err
		}
	}
	return strings.Join(append(words, sc.Arguments()...), " "), nil
}

// stored is the scenario of a cell with the paths of the manifest.
func (m *Manifest) stored(c *Cell) (*scenario.Scenario, error) {
	sc := m.base
	sc.Seed = c.Seed
	if err := setting(policyKey).Set(&sc, c.Policy); err != nil {
		return nil, fmt.Errorf("cell %d: %w", c.Index, err)
	}
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

// oldestName maps settings whose names changed to functions that return the oldest name, as in hashes of older sweeps.
var oldestName = map[string]func(string) string{policyKey: router.Oldest, profileKey: scenario.OldestProfiles}

// hash identifies the inputs of a cell's result. byContent replaces the names of files by their hashes.
func (m *Manifest) hash(sc *scenario.Scenario, byContent func(path string) string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n", schema, m.Goodput)
	if m.Oracle {
		fmt.Fprintln(&b, "oracle")
	}
	def := scenario.Default()
	for _, f := range scenario.Fields() {
		v, usual := f.MapPaths(f.Get(sc), byContent), f.Get(&def)
		if oldest := oldestName[f.Key]; oldest != nil {
			v, usual = oldest(v), oldest(usual)
		}
		if v != usual || slices.Contains(hashed, f.Key) {
			fmt.Fprintf(&b, "%s=%q\n", f.Key, v)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:16])
}

// Describe returns a cell's settings as text.
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
