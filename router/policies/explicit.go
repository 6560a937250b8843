package policies

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/place"
	"lorasim/trace/settings"
)

// explicit sends each adapter to the workers that a table lists for it: of
// several usable ones to the least loaded, ties seeded. While none of them is
// usable, the next usable worker after the first listed one takes their place.
// The base model has an entry too, all workers by default.
//
// With several workers per adapter it herds on late signals, within the list.
type explicit struct {
	router.Base
	adapters [][]int32 // workers of each adapter, in the order listed
	base     []int32
	rng      *rand.Rand
}

// explicitOptions name the table: see [table] for the syntax.
type explicitOptions struct {
	Map  string `commas:"yes" pairs:"@ ," help:"entries ADAPTERS@WORKERS, such as 0-7@0,8@0+1,rest@all"`
	File string `commas:"yes" path:"yes" help:"path of a file with one such entry per line"`
}

// Check implements settings.Checker.
func (o *explicitOptions) Check(settings.Given) error {
	if (o.Map == "") == (o.File == "") {
		return errors.New("expected either map=ADAPTERS@WORKERS,... or file=PATH")
	}
	return nil
}

// Build implements Builder.
func (o *explicitOptions) Build(env router.Env) (*router.Router, error) {
	inline, file := o.Map, o.File
	t := newTable(env)
	if file != "" {
		_, err := textfile.Read(env.Context, file,
			func(in io.Reader, name string) (any, error) { return nil, t.read(in, name) })
		if err != nil {
			return nil, err
		}
	} else {
		for entry := range strings.SplitSeq(inline, ",") {
			if err := t.add(strings.TrimSpace(entry), "option map"); err != nil {
				return nil, err
			}
		}
	}
	p := &explicit{rng: env.Rand()}
	var err error
	if p.adapters, p.base, err = t.finish(); err != nil {
		return nil, err
	}
	return &router.Router{Policy: p, Placement: place.Transpose(p.adapters, len(env.Workers))}, nil
}

// Route implements Policy.
func (p *explicit) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v, p.rng))
}

// Preview implements Policy.
func (p *explicit) Preview(r router.Request, v *router.View) int { return p.pick(r, v, nil) }

// pick returns the worker for a request; rng picks among equals, nil: the first.
func (p *explicit) pick(r router.Request, v *router.View, rng *rand.Rand) int {
	workers := p.base
	if r.Adapter >= 0 {
		workers = p.adapters[r.Adapter]
	}
	if w := choose.LeastLoaded(v, workers, rng); w != router.None {
		return w
	}
	return choose.NextUsable(v, int(workers[0]))
}

// table reads entries ADAPTERS@WORKERS that say which workers serve which
// adapters:
//
//	0@1        adapter 0 on worker 1
//	0-7@0      adapters 0 to 7 on worker 0
//	chat-de@2  the adapter of that name
//	8@0+2-3    adapter 8 on workers 0, 2 and 3
//	rest@all   adapters not listed elsewhere, on every worker
//	base@0     the base model
//
// Numbers, ranges, rest and base are read as such before names are tried: an
// adapter whose name looks like one is listed by its index.
type table struct {
	env     router.Env
	byName  map[string]int
	entries [][]int32 // by adapter; nil: not listed
	where   []string  // by adapter: where it was listed
	rest    []int32
	base    []int32
}

func newTable(env router.Env) *table {
	n := len(env.Adapters)
	t := &table{env: env, byName: make(map[string]int, n), entries: make([][]int32, n), where: make([]string, n)}
	for i, a := range env.Adapters {
		t.byName[a.Name] = i
	}
	return t
}

// read adds the entries of a file, one on each line; empty lines and lines
// that begin with # are skipped. The name is for errors.
func (t *table) read(r io.Reader, name string) error {
	f := textfile.New(name, r)
	for {
		text, err := f.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line := strings.TrimSpace(string(text)); line != "" && line[0] != '#' {
			if err := t.add(line, f.Where()); err != nil {
				return err
			}
		}
	}
}

// add adds one entry; where it stands is for errors.
func (t *table) add(entry, where string) error {
	at := strings.LastIndexByte(entry, '@')
	if at < 0 {
		return fmt.Errorf("%s: %q, expected ADAPTERS@WORKERS", where, suggest.Clip(entry))
	}
	workers, err := t.workers(strings.TrimSpace(entry[at+1:]))
	if err == nil {
		err = t.assign(strings.TrimSpace(entry[:at]), workers, where)
	}
	if err != nil {
		return fmt.Errorf("%s: %q: %w", where, entry, err)
	}
	return nil
}

func (t *table) workers(s string) ([]int32, error) {
	if s == "all" {
		return upTo(len(t.env.Workers)), nil
	}
	var list []int32
	seen := make([]bool, len(t.env.Workers))
	for part := range strings.SplitSeq(s, "+") {
		lo, hi, ok := span(part)
		if !ok {
			return nil, fmt.Errorf("workers %q, expected a number, a range such as 0-3, a sum such as 0+2, or all", s)
		}
		if lo > hi || hi >= len(t.env.Workers) {
			return nil, fmt.Errorf("worker %s, expected 0 to %d", part, len(t.env.Workers)-1)
		}
		for w := lo; w <= hi; w++ {
			if seen[w] {
				return nil, fmt.Errorf("worker %d is listed twice", w)
			}
			seen[w] = true
			list = append(list, int32(w))
		}
	}
	return list, nil
}

func (t *table) assign(s string, workers []int32, where string) error {
	if list := map[string]*[]int32{"rest": &t.rest, "base": &t.base}[s]; list != nil {
		if *list != nil {
			return errors.New(s + " is listed twice")
		}
		*list = workers
		return nil
	}
	lo, hi, ok := span(s)
	switch {
	case ok && len(t.entries) == 0:
		return fmt.Errorf("adapter %s, but there are no adapters", s)
	case ok && (lo > hi || hi >= len(t.entries)):
		return fmt.Errorf("adapter %s, expected 0 to %d", s, len(t.entries)-1)
	case !ok:
		if lo, ok = t.byName[s]; !ok {
			return fmt.Errorf("no adapter is named %q; expected a name, a number, a range such as 0-7, rest or base", s)
		}
		hi = lo
	}
	for a := lo; a <= hi; a++ {
		if t.entries[a] != nil {
			return fmt.Errorf("adapter %d is listed twice, first in %s", a, t.where[a])
		}
		t.entries[a], t.where[a] = workers, where
	}
	return nil
}

// finish returns the workers of every adapter and of the base model.
func (t *table) finish() (adapters [][]int32, base []int32, err error) {
	for a := range t.entries {
		if t.entries[a] == nil {
			t.entries[a] = t.rest
		}
		if t.entries[a] == nil {
			return nil, nil, fmt.Errorf("adapter %d (%s) has no worker; list it, or add an entry such as rest@all",
				a, t.env.Adapters[a].Name)
		}
	}
	if t.base == nil {
		t.base = upTo(len(t.env.Workers))
	}
	return t.entries, t.base, nil
}

// span reads "3" or "3-5", of digits alone.
func span(s string) (lo, hi int, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	return int(from), int(to), err1 == nil && err2 == nil
}

func upTo(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i)
	}
	return list
}
