package sweep

import (
	"path/filepath"

	"lorasim/bench/scenario"
)

// moveTo makes relative paths those from the folder of the sweep instead of the
// working directory, so that the sweep can be gone on with from anywhere, and on
// machines that see folder and files elsewhere.
func (m *Manifest) moveTo(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var failed error
	to := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		p, err := filepath.Abs(path)
		if err == nil {
			p, err = filepath.Rel(abs, p)
		}
		if err != nil {
			failed = err
		}
		return p
	}
	m.base.MapPaths(to)
	m.Axes, m.Policies, m.Baseline = mapPaths(m.Axes, to), mapPolicies(m.Policies, to), mapPolicy(m.Baseline, to)
	for i := range m.Inputs {
		m.Inputs[i].Path = to(m.Inputs[i].Path)
	}
	if m.dir = dir; failed != nil {
		return failed
	}
	return m.write()
}

func mapPaths(axes []Axis, f func(string) string) []Axis {
	out := make([]Axis, len(axes))
	for i, a := range axes {
		out[i].Key = a.Key
		for _, v := range a.Values {
			out[i].Values = append(out[i].Values, fieldByKey[a.Key].MapPaths(v, f))
		}
	}
	return out
}

func mapPolicies(policies []string, f func(string) string) []string {
	var out []string
	for _, p := range policies {
		out = append(out, mapPolicy(p, f))
	}
	return out
}

func mapPolicy(policy string, f func(string) string) string {
	return fieldByKey[policyKey].MapPaths(policy, f)
}

// fingerprints identifies the files that the settings name.
func (m *Manifest) fingerprints() ([]Fingerprint, error) {
	var out []Fingerprint
	var failed error
	seen := map[string]bool{}
	note := func(path string) string {
		if !seen[path] && failed == nil {
			var sum string
			sum, failed = sumPath(path)
			out = append(out, Fingerprint{path, sum})
		}
		seen[path] = true
		return path
	}
	base := m.base
	base.Routing.Policy = ""
	for _, a := range m.Axes {
		if err := fieldByKey[a.Key].Set(&base, a.Values[0]); err != nil { // the base's own value does not matter
			return nil, err
		}
	}
	base.MapPaths(note)
	mapPolicies(m.Policies, note)
	mapPaths(m.Axes, note)
	return out, failed
}

// resolve turns a path of the manifest into one from the working directory.
func (m *Manifest) resolve(path string) string { return scenario.In(m.dir)(path) }
