package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lorasim/internal/suggest"
)

// EngineSection is the section of a scenario with the keys of the engine. They have no flags of their own: see
// [Scenario.EngineArgs].
const EngineSection = "cluster.engine"

// ownName is what an engine calls a key.
type ownName struct{ engine, name string }

// EngineFields lists the keys of the engine that --engine-args takes.
func EngineFields() []Field {
	return slices.DeleteFunc(slices.Clone(fields), func(f Field) bool {
		return f.Section != EngineSection || f.Flag != ""
	})
}

// Option returns the flag and its value that set the setting on a command line.
func (f Field) Option(value string) (flag, text string) {
	switch {
	case f.Section == EngineSection && f.Flag == "":
		return "--engine-args", f.leaf + "=" + value
	case f.Flag == "":
		return "", ""
	}
	return "--" + f.Flag, value
}

// Names returns the key of the engine and what engines call it.
func (f Field) Names() []string {
	names := []string{f.leaf}
	for _, own := range f.own {
		names = append(names, own.name)
	}
	return names
}

// findEngineKey returns the setting of the engine with a key, or with an engine's own name of one, and that engine.
func findEngineKey(key string) (f Field, engine string, err error) {
	key = strings.ReplaceAll(key, "-", "_")
	var known []string
	for _, f := range fields {
		if f.Section != EngineSection {
			continue
		}
		if f.leaf == key {
			return f, "", nil
		}
		for _, own := range f.own {
			if own.name == key {
				return f, own.engine, nil
			}
		}
		known = append(known, f.Names()...)
	}
	return Field{}, "", suggest.Unknown("engine key", key, known)
}

// setEngine sets a key of the engine. It notes whose name the key was, for checkKeys.
func (s *Scenario) setEngine(key, value string) error {
	f, engine, err := findEngineKey(key)
	if err != nil {
		return err
	}
	if engine != "" {
		if was := s.Cluster.Engine.Spelled; was != "" && was != engine {
			return fmt.Errorf("%s is a key of %s, but another key is one of %s", key, engine, was)
		}
		s.Cluster.Engine.Spelled = engine
	}
	v, err := f.parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	f.of(s).Set(v)
	return nil
}

// opposites are the keys that disable what a profile or an engine may enable. A key that is false disables nothing.
var opposites = map[string]string{
	"async_scheduling": "no_async_scheduling", "overlap_schedule": "disable_overlap_schedule",
}

// EngineArgs sets keys of the engine from a text KEY=VALUE,KEY=VALUE,...; KEY alone means KEY=true.
func (s *Scenario) EngineArgs(text string) error {
	for arg := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(arg), "=")
		if key == "" {
			return errors.New("expected KEY=VALUE,KEY=VALUE,... with the keys of the engine")
		}
		if !ok {
			if f, _, err := findEngineKey(key); err == nil && f.Type() != "bool" {
				return fmt.Errorf("%s has no value: expected %s=VALUE", key, key)
			}
			value = "true"
		}
		if err := s.setEngine(key, value); err != nil {
			return err
		}
		if f, _, _ := findEngineKey(key); opposites[f.leaf] != "" && f.of(s).IsZero() {
			return fmt.Errorf("%s=%s has no effect: give %s", key, value, opposites[f.leaf])
		}
	}
	return nil
}

// checkKeys returns an error about a key that is set and that none of the simulated engines has.
func (e *Engine) checkKeys(engines ...string) error {
	simulated := strings.Join(engines, ", ")
	if e.Spelled != "" && !slices.Contains(engines, e.Spelled) {
		for _, f := range fields {
			for _, own := range f.own {
				if own.engine == e.Spelled && !f.of(&Scenario{Cluster: Cluster{Engine: *e}}).IsZero() {
					return fmt.Errorf("%s is a key of %s, but the simulated engine is %s: did you mean %s?", own.name,
						own.engine, simulated, f.leaf)
				}
			}
		}
	}
	for _, f := range fields {
		if f.Section == EngineSection && f.only != "" && !slices.Contains(engines, f.only) &&
			!f.of(&Scenario{Cluster: Cluster{Engine: *e}}).IsZero() {
			return fmt.Errorf("%s is a key of %s, but the simulated engine is %s", f.leaf, f.only, simulated)
		}
	}
	return nil
}
