package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
)

// grow adds the policies, seeds and values of an earlier manifest of the same folder to m. The cells of both stay the
// same. An error states all other differences.
func (m *Manifest) grow(old *Manifest) error {
	if err := m.sameBase(old); err != nil {
		return err
	}
	m.base = old.base // but for settings that the cells have their own values of
	m.Policies = union(old.Policies, m.Policies)
	m.Seeds = sortedUnion(old.Seeds, m.Seeds, cmp.Compare)
	for i, was := range old.Axes {
		k := slices.IndexFunc(m.Axes, func(a Axis) bool { return a.Key == was.Key })
		m.Axes[i], m.Axes[k] = m.Axes[k], m.Axes[i]
		if a := &m.Axes[i]; was.Numeric() && a.Numeric() {
			a.Values = sortedUnion(was.Values, a.Values, func(x, y string) int {
				return cmp.Compare(a.Number(x), a.Number(y))
			})
		} else {
			a.Values = union(was.Values, a.Values)
		}
	}
	if m.anyBaseline {
		m.Baseline = old.Baseline
	}
	m.Inputs = union(old.Inputs, m.Inputs)
	if _, err := m.cells(); err != nil {
		return err
	}
	return m.write()
}

// sameBase returns an error if anything but policies, seeds and values differs.
func (m *Manifest) sameBase(old *Manifest) error {
	if m.Goodput != old.Goodput {
		return fmt.Errorf("goodput was %q, now %q", old.Goodput, m.Goodput)
	}
	if m.Oracle != old.Oracle {
		return errors.New("only one of the two calls has --oracle")
	}
	var differ []string
	for _, f := range scenario.Fields() {
		here, there := m.varies(f.Key), old.varies(f.Key)
		switch was, is := f.Get(&old.base), f.Get(&m.base); {
		case there && !here:
			return fmt.Errorf("%s was varied and no longer is", f.Key)
		case here && !there:
			return fmt.Errorf("%s is varied and was not", f.Key)
		case was != is && f.Key != seedKey && !here:
			differ = append(differ, fmt.Sprintf("%s was %s, now %s", f.Key, given(was), given(is)))
		}
	}
	if len(differ) > 0 {
		return errors.New(strings.Join(differ, "; "))
	}
	for _, in := range old.Inputs {
		for _, is := range m.Inputs {
			if in.Path == is.Path && in.SHA256 != is.SHA256 {
				return fmt.Errorf("%s has changed since the sweep was planned", m.resolve(in.Path))
			}
		}
	}
	return nil
}

// given is the value of a setting in words.
func given(value string) string {
	if value == "" {
		return "not given"
	}
	return strconv.Quote(value)
}

func (m *Manifest) varies(key string) bool {
	return key == policyKey || slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
}

// union is old and what new has beyond it; in the order of new if that has all.
func union[T comparable](old, new []T) []T {
	both := slices.Concat(old, slices.DeleteFunc(slices.Clone(new), func(v T) bool { return slices.Contains(old, v) }))
	if len(both) == len(new) {
		return new
	}
	return both
}

// sortedUnion is union, in ascending order where both lists are.
func sortedUnion[T comparable](old, new []T, compare func(a, b T) int) []T {
	out := union(old, new)
	if slices.IsSortedFunc(old, compare) && slices.IsSortedFunc(new, compare) {
		out = slices.SortedStableFunc(slices.Values(out), compare)
	}
	return out
}
