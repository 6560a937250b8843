// Package script implements the routing policy "script": a program in Starlark routes requests.
//
//	rt, err := router.New("script:file=least-loaded.star", env)
//
// The program defines a function, which docs/own-policy.md describes:
//
//	def route(request, workers):
//	    return [-w.requests for w in workers]
//
// Starlark (go.starlark.net) is deterministic. A program has no clock, no files, and no random numbers except those of
// the run's seed. The number of steps of a call is limited. The values of requests and workers are created once. They
// read the router's view when a program reads an attribute, so that a call costs no more than the attributes it reads.
package script

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/trace/settings"
)

// Policy describes the policy script. Package router/builtin registers it.
func Policy() router.Descriptor {
	d := router.Describe[options]("script", "a program in Starlark scores or picks workers")
	d.Group = router.YourOwn
	return d
}

// options are the options of the policy.
type options struct {
	File string `required:"yes" path:"yes" help:"Starlark program with a function route(request, workers)"`
	Args string `commas:"yes" pairs:"= ;" help:"values for the program, NAME=VALUE;NAME=VALUE: its args"`
	Ties string `default:"random" check:"oneof random first" help:"among equal scores: random (seeded) or first"`
}

// Check implements settings.Checker.
func (o *options) Check(settings.Given) error {
	_, err := o.args()
	return err
}

// args returns the names and values in Args.
func (o *options) args() (list [][2]string, err error) {
	if o.Args == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(o.Args, ";") {
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || slices.ContainsFunc(list, func(a [2]string) bool { return a[0] == name }) {
			return nil, fmt.Errorf("args: %q, expected NAME=VALUE, each name once", part)
		}
		list = append(list, [2]string{name, strings.TrimSpace(value)})
	}
	return list, nil
}

// maxScript bounds a program, bytes.
const maxScript = 1 << 20

// Build implements router.Builder. It reads the program and runs it once, which defines its functions.
func (o *options) Build(env router.Env) (*router.Router, error) {
	source, err := textfile.ReadFile(env.Context, o.File, maxScript)
	if err != nil {
		return nil, err
	}
	p, err := newPolicy(o, string(source), env)
	if err != nil {
		return nil, err
	}
	rt := &router.Router{
		Policy: p,
		// the names of attributes; a script that has them elsewhere is slower, not wrong
		ReadsKV: strings.Contains(string(source), "kv_"), ReadsFewKV: true,
		ReadsPrefixes: strings.Contains(string(source), "cached_tokens"),
	}
	return rt, nil
}

// policy is a program that routes.
type policy struct {
	router.Base
	options options
	source  string
	program *program
	env     router.Env
	ties    *rand.Rand // picks among equals; nil: the first

	view    *router.View
	workers []*worker // by worker: their values, made once
	usable  []int     // in this call
	list    *workers  // of the usable ones
	args    [2]starlark.Value
	equals  []int // scratch
}

func newPolicy(o *options, source string, env router.Env) (*policy, error) {
	args, err := o.args()
	if err != nil {
		return nil, err
	}
	rng := env.Rand()
	p := &policy{options: *o, source: source, env: env, list: &workers{}}
	if o.Ties == "random" {
		p.ties = rng
	}
	p.program, err = load(o.File, source, predeclared(args, rng))
	return p, err
}

// Route implements router.Policy. If the program fails, the request goes to the least loaded worker.
func (p *policy) Route(r router.Request, v *router.View) router.Decision {
	p.show(v)
	if len(p.usable) == 0 {
		return router.To(router.None)
	}
	w, err := p.ask(&r)
	if err != nil {
		return router.Decision{Worker: v.LeastLoaded(), Err: err}
	}
	return router.To(w)
}

// Note implements router.Policy: the program's function finished, if there is one, sees how requests end.
func (p *policy) Note(e router.Event) error {
	if p.program.finished == nil || e.Kind != router.Finished {
		return nil
	}
	_, err := p.program.call(p.program.finished, []starlark.Value{&finished{e}})
	return err
}

// Succeed implements router.Policy: the same program keeps its state.
func (p *policy) Succeed(s router.Succession) {
	old, ok := s.Before.(*policy)
	if !ok || old.source != p.source || old.options != p.options {
		return
	}
	p.program, p.ties, p.workers = old.program, old.ties, old.workers
	for _, w := range p.workers {
		w.policy = p
	}
}

// show makes the values of workers read a view.
func (p *policy) show(v *router.View) {
	p.program.limit(len(v.Workers))
	p.view, p.usable, p.list.values = v, p.usable[:0], p.list.values[:0]
	for j := range v.Workers {
		if j == len(p.workers) {
			p.workers = append(p.workers, &worker{policy: p, index: j})
		}
		p.workers[j].state = &v.Workers[j]
		if v.Workers[j].Usable() {
			p.usable = append(p.usable, j)
			p.list.values = append(p.list.values, p.workers[j])
		}
	}
	for _, w := range p.workers[len(v.Workers):] {
		w.state = &gone
	}
}

// gone is what a script sees of a worker that has left.
var gone router.Worker

// ask calls the program's function route.
func (p *policy) ask(r *router.Request) (int, error) {
	q := &request{Request: *r, policy: p}
	p.args = [2]starlark.Value{q, p.list}
	for _, w := range p.list.values {
		w.(*worker).request = q
	}
	answer, err := p.program.call(p.program.route, p.args[:])
	if err != nil {
		return router.None, err
	}
	w, err := p.chosen(answer)
	if err != nil {
		return router.None, p.program.wrong(p.program.route, err)
	}
	return w, nil
}

// chosen returns the worker that an answer of route names.
func (p *policy) chosen(answer starlark.Value) (int, error) {
	switch x := answer.(type) {
	case starlark.NoneType:
		return p.view.LeastLoaded(), nil
	case *worker:
		return p.usableWorker(x.index)
	case starlark.Int:
		j, err := starlark.AsInt32(x)
		if err != nil {
			j = -1
		}
		return p.usableWorker(j)
	case *starlark.List:
		return p.best(x)
	case starlark.Tuple:
		return p.best(x)
	}
	return router.None, fmt.Errorf("a %s, expected a worker, its index, a list of scores, or None", answer.Type())
}

func (p *policy) usableWorker(j int) (int, error) {
	if j < 0 || j >= len(p.view.Workers) || !p.view.Workers[j].Usable() {
		return router.None, fmt.Errorf("worker %d, expected one of workers", j)
	}
	return j, nil
}

// best returns the worker with the highest score. Without scores, it returns the least loaded one.
func (p *policy) best(scores starlark.Indexable) (int, error) {
	if scores.Len() != len(p.usable) {
		return router.None, fmt.Errorf("%d scores, expected one for each of %d workers", scores.Len(), len(p.usable))
	}
	most := math.Inf(-1)
	p.equals = p.equals[:0]
	for i, j := range p.usable {
		v := scores.Index(i)
		if v == starlark.None {
			continue
		}
		score, err := number(v)
		if err != nil {
			return router.None, fmt.Errorf("score %d: %w", i, err)
		}
		if score > most {
			most, p.equals = score, p.equals[:0]
		}
		if score == most {
			p.equals = append(p.equals, j)
		}
	}
	switch n := len(p.equals); {
	case n == 0:
		return p.view.LeastLoaded(), nil
	case n == 1 || p.ties == nil:
		return p.equals[0], nil
	default:
		return p.equals[p.ties.IntN(n)], nil
	}
}

var errNoScore = errors.New("expected a number or None")

func number(v starlark.Value) (float64, error) {
	switch x := v.(type) {
	case starlark.Float:
		if x != x {
			return 0, errors.New("not a number (nan)")
		}
		return float64(x), nil
	case starlark.Int:
		if i, ok := x.Int64(); ok {
			return float64(i), nil
		}
		return float64(x.Float()), nil
	}
	return 0, fmt.Errorf("%s, %w", v.Type(), errNoScore)
}
