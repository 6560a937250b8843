package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"

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

// A Choice is a policy with its options, as a spec names it: parsed once, for any number of runs. A spec is a name and
// options, such as "round-robin" or "affinity:variant=residency,kv=0".
type Choice struct {
	spec    string // with the policy's own name
	policy  *Descriptor
	options Builder // of the policy; runs get copies
	given   settings.Given
}

// Choose parses a spec. Errors name the policy and the option.
func Choose(spec string) (Choice, error) {
	t := policies.catalog()
	if len(t.kinds) == 0 {
		return Choice{}, errors.New(`no policy is registered; import _ "lorasim/router/builtin"`)
	}
	spec = Canonical(spec)
	s, err := settings.Parse("policy", t.kinds, spec)
	if err != nil {
		return Choice{}, err
	}
	return Choice{spec, t.named(s.Name), s.Value, s.Given}, nil
}

// String returns the spec, with the policy's own name.
func (c Choice) String() string { return c.spec }

// Name returns the name of the policy.
func (c Choice) Name() string { return c.policy.Name }

// Options returns a copy of the options, as the struct of the policy's [Descriptor].
func (c Choice) Options() Builder {
	own := reflect.New(reflect.TypeOf(c.options).Elem())
	own.Elem().Set(reflect.ValueOf(c.options).Elem())
	return own.Interface().(Builder)
}

// New returns the policy, ready for one run.
func (c Choice) New(env Env) (*Router, error) {
	if c.policy == nil {
		return nil, errors.New("no policy is chosen")
	}
	if len(env.Workers) < 1 {
		return nil, fmt.Errorf("policy %s: no workers, expected at least one", c.spec)
	}
	if env.Context == nil {
		env.Context = context.Background()
	}
	options := c.Options()
	// options that are not given are set to what the environment says, if it says anything
	settings.Fill(c.given, options, map[string]float64{"interval": env.Interval, "threshold": env.Threshold})
	rt, err := options.Build(env.unlimited())
	if err == nil {
		err = rt.check(c.policy, env)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", c.Name(), err)
	}
	rt.Name = c.spec
	return rt, nil
}

// New returns the policy that a spec names, ready for one run: that of [Choose].
func New(spec string, env Env) (*Router, error) {
	c, err := Choose(spec)
	if err != nil {
		return nil, err
	}
	return c.New(env)
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
	_, err := Choose(spec)
	return err
}

// Rand returns the random number generator of a policy, seeded by the seed of the run. The second word of the
// generator's seed separates it from other uses of the same seed.
func (e Env) Rand() *rand.Rand {
	const stream = 0x726f75746572 // "router"
	return rand.New(rand.NewPCG(e.Seed, stream))
}
