package epp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config is a configuration that a [Scheduler] can run. It is immutable.
type Config struct {
	Dialect  Dialect
	doc      *document
	recorded bool
}

// Unsupported is the error for a configuration that the real picker accepts and this package cannot run.
type Unsupported struct {
	Plugin string // name of the plugin or feature gate
	What   string // details; "": none
}

// Error implements error.
func (u *Unsupported) Error() string {
	if u.What != "" {
		return fmt.Sprintf("plugin %s: %s: not supported", u.Plugin, u.What)
	}
	return fmt.Sprintf("plugin %s: not supported", u.Plugin)
}

// Parse parses a configuration in YAML or JSON. file is the file name for errors. With dialect "", apiVersion
// determines the dialect. Parse returns an error if the real loader refuses the configuration, and an [*Unsupported] if
// the loader accepts it but this package cannot run it.
func Parse(data []byte, file string, d Dialect) (*Config, error) { return parse(data, file, d, false) }

// ParseRecorded is Parse, but accepts token-load-scorer beside its producer. GIE v1.5.0 refuses this, because both
// declare a type of the same data. Decisions were recorded without that check.
func ParseRecorded(data []byte, file string, d Dialect) (*Config, error) {
	return parse(data, file, d, true)
}

func parse(data []byte, file string, d Dialect, recorded bool) (*Config, error) {
	doc, d, err := readDocument(data, file, d)
	if err != nil {
		return nil, err
	}
	c := &Config{Dialect: d, doc: doc, recorded: recorded}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	m, err := c.assemble()
	if err == nil {
		err = m.unsupported()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Disaggregated reports whether prefill and decode of a request may run on different servers.
func (c *Config) Disaggregated() bool { return len(c.doc.Profiles) > 1 }

// Weights returns the scorers of the first profile and their weights, in the order of the profile.
func (c *Config) Weights() (names []string, weights []float64) {
	types := map[string]string{}
	for _, p := range c.doc.Plugins {
		types[p.Name] = p.Type
	}
	for _, u := range c.doc.Profiles[0].Plugins {
		if strings.HasSuffix(types[u.Ref], "-scorer") {
			w, _ := weightOf(u)
			names, weights = append(names, u.Ref), append(weights, w)
		}
	}
	return names, weights
}

// complete checks names and adds the loader's defaults.
func (c *Config) complete() error {
	doc := c.doc
	if err := c.checkGates(); err != nil {
		return err
	}
	if len(doc.Plugins) == 0 && len(doc.Profiles) == 0 && doc.APIVersion == "" && doc.Kind == "" {
		c.fillEmpty()
	}
	if err := c.namePlugins(); err != nil {
		return err
	}
	if err := c.checkRefs(); err != nil {
		return err
	}
	if len(doc.Profiles) == 0 {
		c.defaultProfile()
	}
	return nil
}

// checkGates checks the feature gates.
func (c *Config) checkGates() error {
	for _, g := range c.doc.Gates {
		name, value, has := strings.Cut(g, "=")
		if c.Dialect == GIE {
			name, has = g, false
		}
		if !slices.Contains([]string{"flowControl", "enableLegacyMetrics"}, name) {
			return fmt.Errorf("feature gate %q is unknown", g)
		}
		if has && value != "true" && value != "false" {
			return fmt.Errorf("feature gate %q: expected %s=true or %s=false", g, name, name)
		}
	}
	return nil
}

// fillEmpty is the configuration for an empty document.
func (c *Config) fillEmpty() {
	p := profileSpec{Name: "default"}
	for _, s := range []struct {
		typ    string
		weight float64
	}{{"queue-scorer", 2}, {"kv-cache-utilization-scorer", 2}, {"prefix-cache-scorer", 3}} {
		c.doc.Plugins = append(c.doc.Plugins, pluginSpec{Name: s.typ, Type: s.typ})
		p.Plugins = append(p.Plugins, use{Ref: s.typ, Weight: &s.weight})
	}
	c.doc.Profiles = []profileSpec{p}
}

// namePlugins gives plugins the names of their types and checks both.
func (c *Config) namePlugins() error {
	seen := map[string]bool{}
	for i := range c.doc.Plugins {
		p := &c.doc.Plugins[i]
		if p.Type == "" {
			return fmt.Errorf("plugins[%d]: plugin %q is missing a type", i, p.Name)
		}
		if p.Name == "" {
			p.Name = p.Type
		}
		if seen[p.Name] {
			return fmt.Errorf("plugins[%d]: duplicate plugin name %q", i, p.Name)
		}
		seen[p.Name] = true
		if !known(c.Dialect, p.Type) {
			other := LLMD
			if c.Dialect == LLMD {
				other = GIE
			}
			if known(other, p.Type) {
				return fmt.Errorf("plugins[%d]: plugin type %q is not registered (dialect %s has it)", i, p.Type, other)
			}
			return fmt.Errorf("plugins[%d]: plugin type %q is not registered", i, p.Type)
		}
	}
	return nil
}

// checkRefs checks that references name plugins.
func (c *Config) checkRefs() error {
	doc, names := c.doc, map[string]bool{}
	for i, p := range doc.Profiles {
		if p.Name == "" {
			return fmt.Errorf("schedulingProfiles[%d] is missing a name", i)
		}
		if names[p.Name] {
			return fmt.Errorf("schedulingProfiles[%d] has duplicate name %q", i, p.Name)
		}
		names[p.Name] = true
		for k, u := range p.Plugins {
			where := fmt.Sprintf("schedulingProfiles[%s].plugins[%d]", p.Name, k)
			if u.Ref == "" {
				return fmt.Errorf("%s is missing a pluginRef", where)
			}
			if err := c.checkRef(where, u.Ref); err != nil {
				return err
			}
		}
	}
	for where, ref := range c.otherRefs() {
		if err := c.checkRef(where, ref); err != nil {
			return err
		}
	}
	return nil
}

// otherRefs are the references outside profiles.
func (c *Config) otherRefs() map[string]string {
	refs, doc := map[string]string{}, c.doc
	add := func(where string, r *reference) {
		if r != nil {
			refs[where] = r.Ref
		}
	}
	add("saturationDetector", doc.Saturation)
	add("parser", doc.Parser)
	if doc.Flow != nil {
		add("flowControl.saturationDetector", doc.Flow.Saturation)
		if doc.Flow.UsageLimit != "" {
			refs["flowControl.usageLimitPolicyPluginRef"] = doc.Flow.UsageLimit
		}
	}
	if doc.Data != nil {
		for i, s := range doc.Data.Sources {
			add(fmt.Sprintf("dataLayer.sources[%d]", i), &s.reference)
			for k := range s.Extractors {
				add(fmt.Sprintf("dataLayer.sources[%d].extractors[%d]", i, k), &s.Extractors[k])
			}
		}
	}
	if doc.Handler != nil {
		for i := range doc.Handler.Parsers {
			add(fmt.Sprintf("requestHandler.parsers[%d]", i), &doc.Handler.Parsers[i])
		}
	}
	return refs
}

func (c *Config) checkRef(where, ref string) error {
	if c.find(ref) == nil {
		return fmt.Errorf("%s references undefined plugin %q", where, ref)
	}
	return nil
}

func (c *Config) find(name string) *pluginSpec {
	for i := range c.doc.Plugins {
		if c.doc.Plugins[i].Name == name {
			return &c.doc.Plugins[i]
		}
	}
	return nil
}

// defaultProfile makes the one profile of a document without any: all filters, scorers and pickers.
func (c *Config) defaultProfile() {
	p := profileSpec{Name: "default"}
	for _, s := range c.doc.Plugins {
		p.Plugins = append(p.Plugins, use{Ref: s.Name})
	}
	c.doc.Profiles = []profileSpec{p}
}

var errTokenLoad = errors.New("token-load-scorer beside inflight-load-producer: " +
	"data type mismatch of InFlightLoadKey (gie v1.5.0 does not start so)")
