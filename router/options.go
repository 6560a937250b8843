package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// options are the options of one spec. A getter that finds a bad value keeps
// the first error in err and returns the default, so that constructors need
// not check each of them.
type options struct {
	d      *Descriptor
	values map[string]string
	err    error
}

func parseOptions(d *Descriptor, s string, given bool) (*options, error) {
	o := &options{d: d, values: make(map[string]string)}
	if !given {
		return o, nil
	}
	last := ""
	for piece := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(piece, "=")
		if !ok && last != "" {
			o.values[last] += "," + piece
			continue
		}
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not an option, expected key=value", piece)
		}
		if _, found := d.option(key); !found {
			return nil, suggest.Unknown("option", key, d.optionNames())
		}
		if _, twice := o.values[key]; twice {
			return nil, fmt.Errorf("option %s is given twice", key)
		}
		o.values[key], last = value, key
	}
	for key, value := range o.values {
		o.values[key] = strings.TrimSpace(value)
	}
	return o, nil
}

func (d *Descriptor) option(name string) (Option, bool) {
	for _, o := range d.Options {
		if o.Name == name {
			return o, true
		}
	}
	return Option{}, false
}

func (d *Descriptor) optionNames() []string {
	names := make([]string, len(d.Options))
	for i, o := range d.Options {
		names[i] = o.Name
	}
	return names
}

// text returns the option's value, or its default.
func (o *options) text(name string) string {
	if v, ok := o.values[name]; ok {
		return v
	}
	return o.fallback(name)
}

func (o *options) fallback(name string) string {
	opt, ok := o.d.option(name)
	if !ok {
		panic("router: policy " + o.d.Name + " has no option " + name)
	}
	return opt.Default
}

// bad notes that an option's value is not what was expected.
func (o *options) bad(name, expected string) {
	if o.err == nil {
		o.err = fmt.Errorf("option %s is %q, expected %s", name, o.text(name), expected)
	}
}

// number returns an option that is a finite number in [lo, hi]; hi may be
// infinite. The caller has ruled out the words that may stand there instead.
func (o *options) number(name string, lo, hi float64, words ...string) float64 {
	v, err := strconv.ParseFloat(o.text(name), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < lo || v > hi {
		expected := fmt.Sprintf("a number from %g to %g", lo, hi)
		if math.IsInf(hi, 1) {
			expected = fmt.Sprintf("a number >= %g", lo)
		}
		o.bad(name, strings.Join(append([]string{expected}, words...), " or "))
		v, _ = strconv.ParseFloat(o.fallback(name), 64)
	}
	return v
}

// numberOr is number, but where the option is not given it is what the
// environment says, if it says anything.
func (o *options) numberOr(env float64, name string, lo, hi float64) float64 {
	if _, given := o.values[name]; !given && env != 0 {
		return env
	}
	return o.number(name, lo, hi)
}

// integer returns an option that is an integer in [lo, hi]; math.MaxInt is no
// limit.
func (o *options) integer(name string, lo, hi int) int {
	v, err := strconv.Atoi(o.text(name))
	if err != nil || v < lo || v > hi {
		expected := fmt.Sprintf("an integer from %d to %d", lo, hi)
		if hi == math.MaxInt {
			expected = fmt.Sprintf("an integer >= %d", lo)
		}
		o.bad(name, expected)
		v, _ = strconv.Atoi(o.fallback(name))
	}
	return v
}

// choice returns an option that is one of the given words.
func (o *options) choice(name string, words ...string) string {
	v := o.text(name)
	for _, w := range words {
		if v == w {
			return v
		}
	}
	o.bad(name, strings.Join(words, " or "))
	return o.fallback(name)
}

// ties returns the generator that picks among equals, or nil for the first.
func (o *options) ties(env Env) *rand.Rand {
	if o.choice("ties", "random", "first") == "first" {
		return nil
	}
	return newRand(env)
}

// newRand returns the generator of a policy. The second word keeps it apart
// from other users of the same seed.
func newRand(env Env) *rand.Rand {
	const stream = 0x726f75746572 // "router"
	return rand.New(rand.NewPCG(env.Seed, stream))
}
