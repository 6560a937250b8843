package epp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// Change sets one number of a configuration. Name is PLUGIN for the weight of a scorer and PLUGIN.PARAMETER for a
// parameter, as in [Number.Name]. If Name is a type of scorer that the configuration lacks, the change adds the scorer.
type Change struct {
	Name  string
	Value float64
}

// ParseChanges parses "NAME:VALUE/NAME:VALUE"; "" has no changes. It does not check that the names exist; [Config.With]
// does.
func ParseChanges(text string) (out []Change, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, "/") {
		name, value, ok := strings.Cut(part, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("%q: expected PLUGIN:WEIGHT or PLUGIN.PARAMETER:NUMBER", part)
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s:%s: expected a finite number", name, value)
		}
		if slices.ContainsFunc(out, func(c Change) bool { return c.Name == name }) {
			return nil, fmt.Errorf("%s is set twice", name)
		}
		out = append(out, Change{name, v})
	}
	return out, nil
}

// FormatChanges is the inverse of [ParseChanges].
func FormatChanges(changes []Change) string {
	parts := make([]string, len(changes))
	for i, c := range changes {
		parts[i] = c.Name + ":" + FormatNumber(c.Value)
	}
	return strings.Join(parts, "/")
}

// FormatNumber formats a number without an exponent, in a form that is also valid for integer parameters in YAML.
func FormatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// With returns a copy of the configuration with some numbers changed. It returns an error if [Parse] refuses the
// result.
func (c *Config) With(changes []Change) (*Config, error) {
	out := &Config{Dialect: c.Dialect, recorded: c.recorded, doc: c.doc.clone()}
	for _, ch := range changes {
		if err := out.set(ch); err != nil {
			return nil, err
		}
	}
	if _, err := out.assemble(); err != nil {
		return nil, err
	}
	return out, nil
}

// clone copies what changes may touch.
func (doc *document) clone() *document {
	d := *doc
	d.Plugins, d.Profiles = slices.Clone(doc.Plugins), slices.Clone(doc.Profiles)
	for i := range d.Profiles {
		d.Profiles[i].Plugins = slices.Clone(d.Profiles[i].Plugins)
	}
	return &d
}

// set makes one change.
func (c *Config) set(ch Change) error {
	numbers := c.Numbers()
	i := slices.IndexFunc(numbers, func(n Number) bool { return n.Name() == ch.Name })
	if i < 0 && c.canAdd(ch.Name) {
		c.doc.Plugins = append(c.doc.Plugins, pluginSpec{Name: ch.Name, Type: ch.Name})
		p := &c.doc.Profiles[0]
		p.Plugins = append(p.Plugins, use{Ref: ch.Name, Weight: &ch.Value})
		return nil
	}
	if i < 0 {
		var names []string
		for _, n := range numbers {
			names = append(names, n.Name())
		}
		return fmt.Errorf("set: %w", suggest.Unknown("number", ch.Name, names))
	}
	n := numbers[i]
	if n.Key == "" {
		uses := c.doc.Profiles[0].Plugins
		for k := range uses {
			if uses[k].Ref == n.Plugin {
				uses[k].Weight = &ch.Value
			}
		}
		return nil
	}
	if n.Whole && ch.Value != math.Trunc(ch.Value) {
		return fmt.Errorf("set: %s:%s: expected a whole number", ch.Name, FormatNumber(ch.Value))
	}
	p := c.find(n.Plugin)
	var err error
	p.Parameters, err = setParameter(p.Parameters, n.Key, ch.Value)
	return err
}

// setParameter sets a number in parameters. A key such as conditions.0.maxValue leads through lists and mappings that
// are there.
func setParameter(parameters json.RawMessage, key string, value float64) (json.RawMessage, error) {
	tree := map[string]any{}
	if len(parameters) > 0 && !bytes.Equal(bytes.TrimSpace(parameters), []byte("null")) {
		dec := json.NewDecoder(bytes.NewReader(parameters))
		dec.UseNumber()
		if err := dec.Decode(&tree); err != nil {
			return nil, err
		}
	}
	path := strings.Split(key, ".")
	var at any = tree
	for _, step := range path[:len(path)-1] {
		switch x := at.(type) {
		case map[string]any:
			at = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				return nil, fmt.Errorf("set: %s: no entry %s", key, step)
			}
			at = x[i]
		}
	}
	last, ok := at.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("set: %s: its place is no mapping", key)
	}
	last[path[len(path)-1]] = json.Number(FormatNumber(value))
	return json.Marshal(tree)
}

// Members returns the names of the filters, scorers and pickers of the first profile, in the order of the profile.
func (c *Config) Members() (names []string) {
	for _, u := range c.doc.Profiles[0].Plugins {
		p, _, _ := build(&spec{*c.find(u.Ref), c.Dialect})
		switch p.(type) {
		case filter, scorer, picker:
			names = append(names, u.Ref)
		}
	}
	return names
}

// Same reports whether two configurations have the same plugins, parameters and profiles. Entries of a profile without
// effect do not count.
func (c *Config) Same(o *Config) bool {
	return c.Dialect == o.Dialect && reflect.DeepEqual(c.plain(), o.plain())
}

// plain is what two configurations are compared by.
func (c *Config) plain() (out []any) {
	m, err := c.assemble()
	if err != nil {
		panic("epp: a parsed configuration does not assemble: " + err.Error())
	}
	for _, p := range c.doc.Plugins {
		var parameters map[string]any
		if len(p.Parameters) > 0 {
			if err := json.Unmarshal(p.Parameters, &parameters); err != nil {
				out = append(out, string(p.Parameters))
			}
		}
		out = append(out, p.Name, p.Type, parameters)
	}
	for _, p := range m.profiles {
		out = append(out, p.name, p.picks)
		for _, f := range p.filters {
			out = append(out, "filter", f.name)
		}
		for _, s := range p.scorers {
			out = append(out, "scorer", s.name, s.weight)
		}
	}
	return out
}
