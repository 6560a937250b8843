package epp

import (
	"errors"
	"fmt"
)

// machine is a configuration with its plugins built, ready for a scheduler.
type machine struct {
	profiles  []profile
	decider   *decider // nil: one profile decides
	index     *indexParams
	flight    *flightParams // nil: not counted
	detector  detector
	admitters []admitter
	all       []plugin // in the order of the document
	names     []string // of all
	flow      bool     // the gate flowControl is on
}

// profile is a scheduling profile.
type profile struct {
	name    string
	filters []named[filter]
	scorers []weighted
	picker  picker
	picks   string // type of the picker
}

type named[T any] struct {
	name string
	run  T
}

type weighted struct {
	named[scorer]
	weight float64
}

// assemble makes the plugins and profiles.
func (c *Config) assemble() (*machine, error) {
	m, made := &machine{}, map[string]plugin{}
	for i := range c.doc.Plugins {
		s := spec{c.doc.Plugins[i], c.Dialect}
		p, ok, err := build(&s)
		if err != nil {
			return nil, fmt.Errorf("plugins[%d] %s (type %s): parameters: %w", i, s.Name, s.Type, err)
		}
		if !ok {
			p = unsupported{}
		}
		made[s.Name] = p
		m.all, m.names = append(m.all, p), append(m.names, s.Name)
	}
	if err := m.addProfiles(c, made); err != nil {
		return nil, err
	}
	if err := m.addHandler(c, made); err != nil {
		return nil, err
	}
	m.addData(c)
	return m, m.addSaturation(c, made)
}

// addProfiles makes the profiles.
func (m *machine) addProfiles(c *Config, made map[string]plugin) error {
	var spare picker
	spareType := "max-score-picker"
	for i, p := range m.all {
		if k, ok := p.(picker); ok && spare == nil {
			spare, spareType = k, c.doc.Plugins[i].Type
		}
	}
	for _, s := range c.doc.Profiles {
		p := profile{name: s.Name}
		for _, u := range s.Plugins {
			if err := p.add(u, made[u.Ref], c.find(u.Ref).Type); err != nil {
				return fmt.Errorf("schedulingProfiles[%s]: plugin %s: %w", s.Name, u.Ref, err)
			}
		}
		if p.picker == nil {
			if p.picker, p.picks = spare, spareType; spare == nil {
				p.picker = &maxScorePicker{pickParams{1}}
			}
		}
		m.profiles = append(m.profiles, p)
	}
	return nil
}

// add puts a plugin into a profile, as all that it is.
func (p *profile) add(u use, x plugin, typ string) error {
	if f, ok := x.(filter); ok {
		p.filters = append(p.filters, named[filter]{u.Ref, f})
	}
	if s, ok := x.(scorer); ok {
		w, err := weightOf(u)
		if err != nil {
			return err
		}
		p.scorers = append(p.scorers, weighted{named[scorer]{u.Ref, s}, w})
	}
	if k, ok := x.(picker); ok {
		if p.picker != nil {
			return errors.New("the profile already has a picker")
		}
		p.picker, p.picks = k, typ
	}
	return nil
}

// addHandler checks the profile handler.
func (m *machine) addHandler(c *Config, made map[string]plugin) error {
	var handler plugin
	for i, p := range m.all {
		switch p.(type) {
		case single, *disagg:
		default:
			if u, ok := p.(unsupported); !ok || u.what != "" || !isHandler(c.doc.Plugins[i].Type) {
				continue
			}
		}
		if handler != nil {
			return fmt.Errorf("two profile handlers, expected one; the second is %s", m.names[i])
		}
		handler = p
	}
	switch h := handler.(type) {
	case nil:
		if len(m.profiles) > 1 {
			return errors.New("no profile handler configured, and more than one profile")
		}
	case single:
		if len(m.profiles) > 1 {
			return errors.New("single-profile-handler takes one profile")
		}
	case *disagg:
		return m.addDisagg(h, made)
	}
	return nil
}

func isHandler(typ string) bool {
	switch typ {
	case "pd-profile-handler", "header-profile-handler", "data-parallel-profile-handler":
		return true
	}
	return false
}

// addDisagg orders the profiles: decode first, as the primary one, then prefill.
func (m *machine) addDisagg(h *disagg, made map[string]plugin) error {
	order := make([]profile, 0, maxProfiles)
	for _, role := range []string{"decode", "prefill"} {
		name := role
		if n := h.Profiles[role]; n != "" {
			name = n
		}
		for _, p := range m.profiles {
			if p.name == name {
				order = append(order, p)
			}
		}
	}
	if len(order) == 0 || len(order) < len(m.profiles) {
		return errors.New("disagg-profile-handler runs the profiles decode and prefill: expected both in schedulingProfiles")
	}
	m.profiles = order
	if name := h.Deciders["prefill"]; name != "" {
		d, ok := made[name].(*decider)
		if !ok {
			return fmt.Errorf("disagg-profile-handler: decider %q is not among the plugins", name)
		}
		m.decider = d
	}
	return nil
}

// addData makes the prefix index and the in-flight counts that plugins read.
func (m *machine) addData(c *Config) {
	wantsIndex, wantsFlight := false, false
	for _, p := range m.all {
		switch p := p.(type) {
		case *indexProducer:
			m.index = &p.indexParams
		case *flightProducer:
			m.flight = &p.flightParams
		case *prefixScorer, *noHitScorer, *affinityFilter, *latencyScorer:
			wantsIndex = true
		}
		switch p.(type) {
		case *activeScorer, *tokenLoadScorer, *concurrency, *utilizationFilter, *affinityFilter:
			wantsFlight = true
		}
	}
	for _, p := range m.all { // the last scorer's parameters count, where no producer is configured
		if s, ok := p.(*gieScorer); ok && !c.has("approx-prefix-cache-producer") {
			m.index = &s.index
		}
	}
	if c.Dialect == LLMD { // llm-d makes the producers that its plugins read
		if wantsIndex && m.index == nil {
			p := defaultIndex(LLMD)
			m.index = &p
		}
		if wantsFlight && m.flight == nil {
			m.flight = &flightParams{OutputRatio: 1.5, dialect: LLMD}
		}
	}
}

func (c *Config) has(typ string) bool {
	for _, p := range c.doc.Plugins {
		if p.Type == typ {
			return true
		}
	}
	return false
}

// addSaturation finds the detector of saturation and the admitters.
func (m *machine) addSaturation(c *Config, made map[string]plugin) error {
	if !c.recorded && c.Dialect == GIE && c.has("token-load-scorer") && c.has("inflight-load-producer") {
		return errTokenLoad
	}
	ref := c.doc.Saturation
	if c.doc.Flow != nil && c.doc.Flow.Saturation != nil {
		ref = c.doc.Flow.Saturation
	}
	if ref == nil {
		s := spec{pluginSpec{Type: "utilization-detector"}, c.Dialect}
		p, _, err := build(&s)
		if err != nil {
			return err
		}
		made[""], ref = p, &reference{}
	}
	d, ok := made[ref.Ref].(detector)
	if _, unsupported := made[ref.Ref].(unsupported); !ok && !unsupported {
		return fmt.Errorf("saturationDetector: plugin %q does not detect saturation", ref.Ref)
	}
	m.detector = d
	for _, p := range m.all {
		if a, ok := p.(admitter); ok {
			m.admitters = append(m.admitters, a)
		}
	}
	for _, g := range c.doc.Gates {
		m.flow = m.flow || g == "flowControl" || g == "flowControl=true"
	}
	return nil
}

// unsupported is the error for the first plugin that cannot be run, nil if all can.
func (m *machine) unsupported() error {
	for i, p := range m.all {
		if u, ok := p.(unsupported); ok {
			return &Unsupported{Plugin: m.names[i], What: u.what}
		}
	}
	if m.flow {
		return &Unsupported{Plugin: "flowControl", What: "feature gate, the queues of flow control"}
	}
	return nil
}
