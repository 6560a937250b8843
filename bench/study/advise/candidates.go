package advise

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/router"
)

// A Candidate is a policy with its options, in the form "affinity-spill:threshold=10".
type Candidate struct {
	Spec string
}

// apply is the scenario with the candidate in place of its own policy.
func (c Candidate) apply(sc scenario.Scenario) (scenario.Scenario, error) {
	sc.Routing.InferenceArchitecture = ""
	err := sc.Set("policy", c.Spec)
	return sc, err
}

// name is the name of the policy in the registry, without its options.
func (c Candidate) name() string {
	if name, _, err := router.Given(c.Spec); err == nil {
		return name
	}
	name, _, _ := strings.Cut(c.Spec, ":")
	return name
}

// allPolicies returns the names of all policies, in the order of the registry.
func allPolicies() (names []string) {
	for _, d := range router.List() {
		names = append(names, d.Name)
	}
	return names
}

// A Class states what a policy needs in operation. Among candidates without significant differences, the one of the
// lowest class is recommended.
type Class int

// The classes, from simple to complex.
const (
	Fixed Class = iota // no counts, no reports: only the adapter or the order decides
	Loads              // the router's own counts of requests or tokens
	State              // reports of the workers, prefixes, or predicted times
	Plans              // loads adapters or moves requests
)

func (c Class) String() string {
	return []string{"fixed", "loads", "state", "plans"}[c]
}

// byLoads are the policies that need no more than the router's own counts.
var byLoads = []string{"bounded-hash", "least-loaded", "p2c", "least-tokens", "weighted-queue"}

// withoutPlans are the policies without plans that the registry does not mark as such.
var withoutPlans = []string{"route-only"}

// Class returns the class of the candidate's policy. An unknown policy counts as complex.
func (c Candidate) Class() Class {
	facts := router.FactsOf(c.Spec)
	switch {
	case !facts.Signals && !facts.Plans:
		return Fixed
	case slices.Contains(byLoads, c.name()):
		return Loads
	case !facts.Plans || slices.Contains(withoutPlans, c.name()):
		return State
	}
	return Plans
}

// simpler compares two candidates: by class, then by the number of options that differ
// from their defaults, then by the order of the registry.
func simpler(a, b Candidate) int {
	place := func(c Candidate) int {
		return slices.IndexFunc(router.List(), func(d router.Descriptor) bool { return d.Name == c.name() })
	}
	options := func(c Candidate) int {
		_, given, _ := router.Given(c.Spec)
		n := len(given)
		for _, o := range given {
			if o[0] == "set" { // each number of a configuration counts
				n += strings.Count(o[1], "/")
			}
		}
		return n
	}
	return cmp.Or(cmp.Compare(a.Class(), b.Class()), cmp.Compare(options(a), options(b)),
		cmp.Compare(place(a), place(b)), cmp.Compare(a.Spec, b.Spec))
}

// canonical is the spec without options that have their default.
func canonical(spec string) string {
	name, options, err := router.Given(spec)
	if err != nil {
		return spec
	}
	return write(name, options)
}

func write(name string, options [][2]string) string {
	var parts []string
	for _, o := range options {
		parts = append(parts, o[0]+"="+o[1])
	}
	if len(parts) == 0 {
		return name
	}
	return name + ":" + strings.Join(parts, ",")
}

// with is a spec with another value of one option, in the order of the registry.
func with(d *router.Descriptor, spec, option, value string) string {
	_, given, _ := router.Given(spec)
	values := map[string]string{option: value}
	for _, o := range given {
		if o[0] != option {
			values[o[0]] = o[1]
		}
	}
	var options [][2]string
	for _, o := range d.Options {
		if v, ok := values[o.Name]; ok && v != o.Default {
			options = append(options, [2]string{o.Name, v})
		}
	}
	return write(d.Name, options)
}

// factors are by how much numeric options are changed at a time.
var factors = []float64{0.25, 0.5, 2, 4}

// neighbours are the specs that differ from one in a single option: all words of an
// option that takes words, and a quarter, half, twice and four times the value of a
// number. A number that is 0 becomes 1. The numbers of endpoint pickers are in their
// configuration, which has a search of its own.
func neighbours(spec string) (out []string) {
	if (Candidate{spec}).name() == pickerPolicy {
		return nil
	}
	list := router.List()
	i := slices.IndexFunc(list, func(d router.Descriptor) bool { return d.Name == Candidate{spec}.name() })
	if i < 0 {
		return nil
	}
	d := &list[i]
	_, given, err := router.Given(spec)
	if err != nil {
		return nil
	}
	for _, o := range d.Options {
		value := o.Default
		for _, g := range given {
			if g[0] == o.Name {
				value = g[1]
			}
		}
		for _, v := range others(o.Words, value) {
			next := with(d, spec, o.Name, v)
			if x, err := strconv.ParseFloat(v, 64); err == nil && router.CheckSpec(next) != nil {
				next = with(d, spec, o.Name, strconv.FormatFloat(math.Round(x), 'f', 0, 64)) // of a whole number
			}
			valid := router.CheckSpec(next) == nil // within the option's bounds
			if valid && next != spec && !slices.Contains(out, next) {
				out = append(out, next)
			}
		}
	}
	return out
}

// others are further values of an option, which takes one of the words or, without any, a number.
func others(words []string, value string) (out []string) {
	if value == "true" || value == "false" {
		words = []string{"true", "false"}
	}
	if words != nil {
		return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == value })
	}
	x, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil: // a table, a path, or auto
		return nil
	case x == 0:
		return []string{"1"}
	}
	_, fraction := strconv.ParseInt(value, 10, 64)
	for _, f := range factors {
		if fraction == nil && x*f == math.Trunc(x*f) { // as it may have to be
			out = append(out, strconv.FormatFloat(x*f, 'f', 0, 64))
		} else {
			out = append(out, strconv.FormatFloat(x*f, 'g', 6, 64))
		}
	}
	return out
}
