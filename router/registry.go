package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lorasim/trace/settings"
)

// Descriptor describes a policy to users and to [New]. [Describe] returns one; [Register] adds it.
type Descriptor struct {
	Name    string   `json:"name"`              // lower-case letters, digits, - and _
	Summary string   `json:"summary"`           // one line
	Options []Option `json:"options,omitempty"` // read from the struct that New returns; set by [List]
	// Aliases are other names of the policy, the oldest first. [New] accepts them; output has the policy's own name
	// ([Canonical]).
	Aliases []string `json:"aliases,omitempty"`

	// Preset are defaults, "option=value,...", that override those of the struct's tags.
	Preset string `json:"-"`
	// Group is the section of docs/policies.md that lists the policy; "": none does.
	Group Group `json:"-"`
	// New returns a pointer to the policy's options: a struct with the tags of package trace/settings.
	New func() Builder `json:"-"`
	// Facts returns the inputs that the policy uses; nil: all. A sweep runs cells that differ only in other inputs
	// once.
	Facts *Facts `json:"-"`
}

// Group is a kind of policies.
type Group string

// The groups of docs/policies.md.
const (
	FixedPlacement  Group = "Fixed placement"
	LoadAlone       Group = "Load alone"
	AdapterAffinity Group = "Adapter affinity"
	PrefixCaches    Group = "Prefix caches"
	Planning        Group = "Planning and migration"
	YourOwn         Group = "Your own"
)

// Builder is a pointer to the options of a policy. Build returns the policy once the options are set.
type Builder interface {
	Build(env Env) (*Router, error)
}

// Option is one option of a policy.
type Option struct {
	Name    string
	Default string   // "": none
	Doc     string   // one line, with the unit
	Words   []string `json:",omitempty"` // allowed values; nil: numbers, or any text
}

// New returns the policy that a spec names, ready for one run. A spec is a name and options, such as "round-robin"
// or "affinity:variant=residency,kv=0". Errors name the policy and the option.
func New(spec string, env Env) (*Router, error) {
	if len(env.Workers) < 1 {
		return nil, fmt.Errorf("policy %s: no workers, expected at least one", spec)
	}
	s, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	if env.Context == nil {
		env.Context = context.Background()
	}
	// options that are not given are set to what the environment says, if it says anything
	settings.Fill(s.Given, s.Value, map[string]float64{"interval": env.Interval, "threshold": env.Threshold})
	rt, err := s.Value.Build(env.unlimited())
	if err == nil {
		err = rt.check(policies.catalog().named(s.Name), env)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", s.Name, err)
	}
	rt.Name = Canonical(spec)
	return rt, nil
}

// check says what a policy got wrong about itself.
func (rt *Router) check(d *Descriptor, env Env) error {
	switch {
	case rt == nil || rt.Policy == nil:
		return errors.New("its Build returns no policy")
	case rt.Placement != nil && len(rt.Placement) != len(env.Workers):
		return fmt.Errorf("placement on %d workers, expected %d", len(rt.Placement), len(env.Workers))
	case d.Facts == nil:
		return nil
	case rt.Plans() && !d.Facts.Plans:
		return errors.New("it plans, but its Facts lack Plans")
	case (rt.ReadsKV || rt.ReadsPrefixes || rt.Prefetch) && !d.Facts.Signals:
		return errors.New("it reads the workers' state, but its Facts lack Signals")
	}
	return nil
}

// CheckSpec returns an error if a spec is invalid, as far as that can be checked without workers.
func CheckSpec(spec string) error {
	_, err := parseSpec(spec)
	return err
}

// ParseOptions returns the options that a spec gives, as the struct of the policy's [Descriptor].
func ParseOptions(spec string) (Builder, error) {
	s, err := parseSpec(spec)
	return s.Value, err
}

func parseSpec(spec string) (settings.Spec[Builder], error) {
	if len(policies.catalog().kinds) == 0 {
		return settings.Spec[Builder]{}, errors.New(`no policy is registered; import _ "lorasim/router/builtin"`)
	}
	return settings.Parse("policy", policies.catalog().kinds, Canonical(spec))
}

// Rand returns the random number generator of a policy, seeded by the seed of the run. The second word of the
// generator's seed separates it from other uses of the same seed.
func (e Env) Rand() *rand.Rand {
	const stream = 0x726f75746572 // "router"
	return rand.New(rand.NewPCG(e.Seed, stream))
}
