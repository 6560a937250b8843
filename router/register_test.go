package router

import (
	"strings"
	"sync"
	"testing"

	"lorasim/internal/testutil"
)

// firstOptions make a policy that sends every request to the first usable worker from one on.
type firstOptions struct {
	From int `default:"0" check:">=0" help:"worker that comes first"`
}

func (o *firstOptions) Build(Env) (*Router, error) {
	return &Router{Policy: first{from: o.From}}, nil
}

type first struct {
	Base
	from int
}

func (p first) Route(_ Request, v *View) Decision { return To(max(v.LeastLoaded(), p.from)) }

// some are policies that are registered before.
func some() []Descriptor {
	static, hash := Describe[firstOptions]("static", "x"), Describe[firstOptions]("hash", "y")
	static.Facts, hash.Facts = &Facts{}, &Facts{Signals: true}
	hash.Aliases = []string{"period_mig"}
	return []Descriptor{static, hash}
}

// A policy that is registered is one like the others: by name, by alias, with options, in lists and forms.
func TestRegister(t *testing.T) {
	r := newRegistry(some())
	d := Describe[firstOptions]("first", "the first usable worker")
	d.Aliases, d.Preset = []string{"one"}, "from=1"
	if err := r.add([]Descriptor{d}); err != nil {
		t.Fatal(err)
	}
	got := r.catalog()
	last := got.list[len(got.list)-1]
	if last.Name != "first" || len(last.Options) != 1 || last.Options[0].Default != "1" ||
		got.called("one").Name != "first" {
		t.Errorf("registered: %+v", last)
	}
	if len(got.forms) != len(some())+1 || len(got.kinds) != len(got.forms) {
		t.Errorf("%d forms, %d kinds, %d policies before", len(got.forms), len(got.kinds), len(some()))
	}
}

func TestRegisterErrors(t *testing.T) {
	options := func(b Builder) func(*Descriptor) {
		return func(d *Descriptor) { d.New = func() Builder { return b } }
	}
	for want, change := range map[string]func(*Descriptor){
		`policy static is already registered`:        func(d *Descriptor) { d.Name = "static" },
		`policy period_mig is already registered`:    func(d *Descriptor) { d.Name = "period_mig" },
		`policy hash is already registered`:          func(d *Descriptor) { d.Aliases = []string{"hash"} },
		`name "a+b", expected lower-case`:            func(d *Descriptor) { d.Name = "a+b" },
		`name "", expected`:                          func(d *Descriptor) { d.Name = "" },
		`name "A", expected`:                         func(d *Descriptor) { d.Aliases = []string{"A"} },
		`the name first is given twice`:              func(d *Descriptor) { d.Aliases = []string{"first"} },
		`summary "", expected one line`:              func(d *Descriptor) { d.Summary = "" },
		`expected one line of text`:                  func(d *Descriptor) { d.Summary = "a\nb" },
		`New is nil`:                                 func(d *Descriptor) { d.New = nil },
		`preset: unknown option "to"`:                func(d *Descriptor) { d.Preset = "to=1" },
		`default of from: "-1" is not a whole`:       func(d *Descriptor) { d.Preset = "from=-1" },
		`New returns nil`:                            options(nil),
		`x has no help`:                              options(new(noHelp)),
		`"~1" is not a number`:                       options(new(oddCheck)),
		`type map[string]int, expected a text`:       options(new(oddType)),
		`options of type router.notStruct, expected`: options(new(notStruct)),
		`New returns a nil *router.firstOptions`:     options((*firstOptions)(nil)),
	} {
		r, d := newRegistry(some()), Describe[firstOptions]("first", "the first usable worker")
		change(&d)
		testutil.ExpectError(t, r.add([]Descriptor{Describe[firstOptions]("fine", "z"), d}), want)
		if len(r.catalog().list) != len(some()) {
			t.Errorf("%s: registered", want)
		}
	}
	err := newRegistry(some()).add(some())
	testutil.ExpectError(t, err, `register policy "static": policy static is already`)
}

type (
	noHelp struct {
		firstOptions
		X int
	}
	oddCheck struct {
		firstOptions
		X int `check:">=~1" help:"x"`
	}
	oddType struct {
		firstOptions
		X map[string]int `help:"x"`
	}
	notStruct int
)

func (notStruct) Build(Env) (*Router, error) { return nil, nil }

// Programs may register policies from several goroutines, while others read.
func TestRegisterIsSafe(t *testing.T) {
	r := newRegistry(some())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := r.add([]Descriptor{Describe[firstOptions]("first-"+strings.Repeat("x", i+1),
				"one")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(r.catalog().list); n != len(some())+20 {
		t.Errorf("%d policies", n)
	}
}

// What a policy says about itself is checked where it is built.
func TestBuiltPoliciesAreChecked(t *testing.T) {
	env := Env{Workers: make([]Spec, 2)}
	deaf, hears := &some()[0], &some()[1]
	for want, c := range map[string]struct {
		rt *Router
		d  *Descriptor
	}{
		"no policy":                       {&Router{}, deaf},
		"returns no policy":               {nil, deaf},
		"placement on 1 workers":          {&Router{Policy: first{}, Placement: [][]int32{{0}}}, hears},
		"plans, but its Facts lack Plans": {&Router{Policy: first{}, Places: true}, hears},
		"Facts lack Signals":              {&Router{Policy: first{}, ReadsKV: true}, deaf},
	} {
		testutil.ExpectError(t, c.rt.check(c.d, env), want)
	}
	if err := (&Router{Policy: first{}, ReadsKV: true}).check(hears, env); err != nil {
		t.Error(err)
	}
}
