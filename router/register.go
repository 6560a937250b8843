package router

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"lorasim/trace/settings"
)

// policies are the policies that [New] knows: those that programs have registered. This is the only state of the
// package that is shared by all runs of a process. It only grows, before the first run.
var policies = newRegistry(nil)

type registry struct {
	mu      sync.Mutex // held by add
	current atomic.Pointer[catalog]
}

// catalog is the policies at one time. It never changes.
type catalog struct {
	list  []Descriptor
	kinds []settings.Kind[Builder] // the same, as package settings knows them
	forms []settings.Form
}

func newRegistry(list []Descriptor) *registry {
	r := &registry{}
	r.current.Store(newCatalog(list))
	return r
}

func newCatalog(list []Descriptor) *catalog {
	t := &catalog{list: list}
	for _, d := range list {
		k := settings.Kind[Builder]{Name: d.Name, Summary: d.Summary, Preset: d.Preset, New: d.New}
		t.kinds = append(t.kinds, k)
	}
	t.forms = settings.Forms(t.kinds)
	for i, form := range t.forms {
		t.list[i].Options = nil
		for _, f := range form.Fields() {
			t.list[i].Options = append(t.list[i].Options, Option{f.Key, f.Default, f.Help, f.Enum()})
		}
	}
	return t
}

func (r *registry) catalog() *catalog { return r.current.Load() }

// add adds policies after the others: all of them, or with an error none.
func (r *registry) add(list []Descriptor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &catalog{list: slices.Clone(r.catalog().list)}
	for _, d := range list {
		if err := t.add(d); err != nil {
			return fmt.Errorf("register policy %q: %w", d.Name, err)
		}
	}
	r.current.Store(newCatalog(t.list))
	return nil
}

// add adds a policy to the list.
func (t *catalog) add(d Descriptor) error {
	if err := d.check(); err != nil {
		return err
	}
	for _, name := range append([]string{d.Name}, d.Aliases...) {
		if other := t.called(name); other != nil {
			return fmt.Errorf("policy %s is already registered (%s)", name, other.Summary)
		}
	}
	d.Aliases = slices.Clone(d.Aliases)
	t.list = append(t.list, d)
	return nil
}

// named is the policy of a name that is no alias; nil: there is none.
func (t *catalog) named(name string) *Descriptor {
	i := slices.IndexFunc(t.list, func(d Descriptor) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &t.list[i]
}

// called is the policy of a name or alias; nil: there is none.
func (t *catalog) called(name string) *Descriptor {
	i := slices.IndexFunc(t.list, func(d Descriptor) bool { return d.Name == name || slices.Contains(d.Aliases, name) })
	if i < 0 {
		return nil
	}
	return &t.list[i]
}

// Describe returns the description of a policy with a name, a one-line summary, and options of the struct type T:
//
//	router.Describe[stickyOptions]("sticky", "last worker of the adapter while it has room")
func Describe[T any, P interface {
	*T
	Builder
}](name, summary string) Descriptor {
	return Descriptor{Name: name, Summary: summary, New: func() Builder { return P(new(T)) }}
}

// Register adds policies to those that [New], [List] and the command line know. A program calls it before it uses any
// policy. The error says which part of a description is wrong, or that a policy of the name exists; then none is added.
//
// Package router/builtin registers the policies of this module. All registered policies have the same rights: their
// specs may stand in scenario files and sweeps.
func Register(list ...Descriptor) error { return policies.add(list) }

var policyName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// check says what is wrong with a description.
func (d *Descriptor) check() (err error) {
	names := append([]string{d.Name}, d.Aliases...)
	for i, name := range names {
		switch {
		case !policyName.MatchString(name):
			return fmt.Errorf("name %q, expected lower-case letters, digits, - and _, a letter first", name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("the name %s is given twice", name)
		}
	}
	switch {
	case d.Summary == "" || strings.ContainsAny(d.Summary, "\n\t"):
		return fmt.Errorf("summary %q, expected one line of text", d.Summary)
	case d.New == nil:
		return errors.New("New is nil, expected the function that returns the options; use Describe")
	}
	options := d.New()
	switch v := reflect.ValueOf(options); {
	case options == nil:
		return errors.New("New returns nil, expected a pointer to the struct of its options")
	case v.Kind() != reflect.Pointer || v.Type().Elem().Kind() != reflect.Struct:
		return fmt.Errorf("options of type %v, expected a struct", reflect.Indirect(v).Type())
	case v.IsNil():
		return fmt.Errorf("New returns a nil %v", v.Type())
	}
	form := settings.Form{Name: d.Name, Summary: d.Summary, Preset: d.Preset, New: func() any { return options }}
	return form.Verify()
}

// Forms returns the forms of a spec, for YAML, JSON Schema and the reference.
func Forms() []settings.Form { return slices.Clone(policies.catalog().forms) }

// List returns every policy with its options, in the order in which to show them.
func List() []Descriptor { return slices.Clone(policies.catalog().list) }
