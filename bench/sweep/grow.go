package sweep

import (
	"fmt"
	"slices"
	"strings"
)

// grow takes everything of an earlier manifest of the same folder into m: its
// policies, seeds and values of axes. The cells of both stay what they are. An
// error tells what else differs.
func (m *Manifest) grow(old *Manifest) error {
	if err := m.sameBase(old); err != nil {
		return err
	}
	m.base = old.base // but for settings that the cells have their own values of
	m.Policies = union(old.Policies, m.Policies)
	m.Seeds = sortedUnion(old.Seeds, m.Seeds, func(a, b uint64) bool { return a < b })
	for i, was := range old.Axes {
		k := slices.IndexFunc(m.Axes, func(a Axis) bool { return a.Key == was.Key })
		m.Axes[i], m.Axes[k] = m.Axes[k], m.Axes[i]
		if a := &m.Axes[i]; was.Numeric() && a.Numeric() {
			a.Values = sortedUnion(was.Values, a.Values, func(x, y string) bool { return a.Number(x) < a.Number(y) })
		} else {
			a.Values = union(was.Values, a.Values)
		}
	}
	if m.anyBaseline {
		m.Baseline = old.Baseline
	}
	m.Inputs = union(old.Inputs, m.Inputs)
	cells := len(m.Policies) * len(m.Seeds)
	for _, a := range m.Axes {
		if cells *= len(a.Values); cells > maxCells {
			return fmt.Errorf("the sweep would have more than %d cells", maxCells)
		}
	}
	return m.write()
}

// sameBase makes sure that nothing differs but policies, seeds and values.
func (m *Manifest) sameBase(old *Manifest) error {
	if m.Goodput != old.Goodput {
		return fmt.Errorf("goodput is %q there, %q here", old.Goodput, m.Goodput)
	}
	for _, pair := range []struct {
		a, b  *Manifest
		where string
	}{{old, m, "there, but not here"}, {m, old, "here, but not there"}} {
		for _, a := range pair.a.Axes {
			if !pair.b.varies(a.Key) {
				return fmt.Errorf("%s is varied %s", a.Key, pair.where)
			}
		}
	}
	var differ []string
	for _, f := range fields {
		if was, is := f.Get(&old.base), f.Get(&m.base); was != is && f.Key != seedKey && !m.varies(f.Key) {
			differ = append(differ, fmt.Sprintf("%s is %q there, %q here", f.Key, was, is))
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%s", strings.Join(differ, "; "))
	}
	for _, in := range old.Inputs {
		for _, is := range m.Inputs {
			if in.Path == is.Path && in.SHA256 != is.SHA256 {
				return fmt.Errorf("%s has changed since", m.resolve(in.Path))
			}
		}
	}
	return nil
}

// union is old and what new has beyond it; in the order of new if that has all.
func union[T comparable](old, new []T) []T {
	all := true
	for _, v := range old {
		all = all && slices.Contains(new, v)
	}
	if all {
		return new
	}
	out := slices.Clone(old)
	for _, v := range new {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// sortedUnion is union, in ascending order where both lists are.
func sortedUnion[T comparable](old, new []T, less func(a, b T) bool) []T {
	cmp := func(a, b T) int {
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return 1
		}
		return 0
	}
	out := union(old, new)
	if slices.IsSortedFunc(old, cmp) && slices.IsSortedFunc(new, cmp) {
		out = slices.SortedStableFunc(slices.Values(out), cmp)
	}
	return out
}

func (m *Manifest) varies(key string) bool {
	return key == policyKey || slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
}
