package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// Workers of one fleet may serve different base models. A request for a base model, or for an adapter of it, goes to
// workers that serve that base model and to no others; an adapter is loaded on those only. Workers tell their base
// model when they register, and the base model of an adapter is that of the first worker that lists or loads it.
//
// Policies know nothing of base models: for each request the fleet hides the workers of others, and it carries out only
// the parts of a plan that concern workers of the adapter's base model. So a rolling update of all workers to another
// base model is served all the time: one set of workers shrinks while another one grows.

// wanted returns the base model that a request needs: that of its adapter, else the one that it names; "": any. Called
// with mu held.
func (t *table) wanted(a int32, named string) string {
	if a != trace.BaseModel {
		return t.catalog.baseOf(a)
	}
	return named
}

// serves reports whether a worker may get requests for a base model, "": any. A worker that has not told
// its own may get any. Called with mu held.
func (t *table) serves(k *worker, base string) bool {
	model := k.health.info.Model
	return base == "" || model == "" || t.answersTo(model, base)
}

// answersTo reports whether workers of a base model get requests for a name of one.
func (t *table) answersTo(model, name string) bool {
	return name == model || t.cfg.Aliases[name] == model
}

// allServe reports whether every worker may get requests for a base model, "": any. Called with mu held.
func (t *table) allServe(base string) bool {
	return base == "" && !t.mixed || len(t.served) == 0 || len(t.served) == 1 && t.answersTo(t.served[0], base)
}

// baseGrace is how long a base model counts as served after its last worker went down: the worker may come back.
const baseGrace = time.Minute

// stands reports whether workers serve a base model, or may do so again soon. Called with mu held.
func (t *table) stands(base string) bool {
	return slices.ContainsFunc(t.workers, func(k *worker) bool {
		return !k.gone && k.health.info.Model == base && (k.health.known || time.Since(k.health.downAt) < baseGrace)
	})
}

// mix notes which base models the workers serve, when a worker is identified or leaves. Called with mu held.
func (t *table) mix() {
	t.served = t.models()
	t.mixed = len(t.served) > 1
}

// models returns the names of the base models that the workers have reported. Called with mu held.
func (t *table) models() (list []string) {
	seen := map[string]bool{}
	for _, k := range t.workers {
		if m := k.health.info.Model; m != "" && !k.gone && !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	return list
}

// fitting returns a plan without the parts that concern a worker of another base model: the policy that made it knows
// nothing of base models. Called with mu held.
func (t *table) fitting(plan *router.Plan) *router.Plan {
	if plan == nil || !t.mixed || plan.Check(&t.view) != nil {
		return plan
	}
	fit := *plan
	fit.Load = slices.DeleteFunc(slices.Clone(plan.Load),
		func(l router.Placement) bool { return t.fits(t.workers[l.Worker], l.Adapter) != nil })
	fit.Move = slices.DeleteFunc(slices.Clone(plan.Move), func(m router.Move) bool {
		r := t.workers[m.From].books.requests[m.ID]
		return r != nil && !t.serves(t.workers[m.To], t.wanted(r.Adapter, r.Base))
	})
	return &fit
}

// noteBase notes the base model of an adapter that a worker lists, the first time; called with mu held.
func (t *table) noteBase(k *worker, name, base string) {
	was, known := t.catalog.base(name)
	switch {
	case base == "" || known && t.answersTo(base, was):
	case !known, !t.stands(was):
		t.catalog.setBase(name, base)
	case k.health.first("base of " + name):
		t.cfg.Log("%s holds adapter %s, which belongs to base model %s: it is not used there", k.name, name, was)
	}
}

// fits returns an error if a worker serves another base model than the adapter's. Called with mu held.
func (t *table) fits(k *worker, a int32) error {
	name, base := t.catalog.name(a), t.catalog.baseOf(a)
	if base == "" && t.mixed {
		return fmt.Errorf("the base model of adapter %s is unknown, and the workers serve %s: load it on a worker first "+
			"(POST /admin/load with \"path\")", name, strings.Join(t.models(), ", "))
	}
	if other := k.loras.rows[a].foreign; other != "" {
		return fmt.Errorf("%s holds adapter %s from %s, and others hold it from %s: unload it there, or use another name "+
			"for other weights", k.name, name, other, t.catalog.root(name))
	}
	if !t.serves(k, base) {
		return fmt.Errorf("adapter %s belongs to base model %s, and %s serves %s", name, base, k.name,
			k.health.info.Model)
	}
	return nil
}

// orphan reports whether the base model of an adapter is served by no worker, and will not be soon. Called with mu
// held.
func (t *table) orphan(a int32) bool {
	base := t.catalog.baseOf(a)
	return base != "" && len(t.served) > 0 && !t.stands(base) &&
		!slices.ContainsFunc(t.workers, func(k *worker) bool { return !k.gone && t.serves(k, base) })
}

// adopt gives an adapter of a base model that is gone to the base model of a worker. Called with mu held.
func (t *table) adopt(k *worker, a int32) {
	if t.orphan(a) {
		t.catalog.setBase(t.catalog.name(a), k.health.info.Model)
	}
}

// Orphaned returns an error if the workers serve adapter a's base model no more.
func (f *Fleet) Orphaned(a int32) error {
	defer f.lock()()
	if a == trace.BaseModel || !f.orphan(a) {
		return nil
	}
	base := f.catalog.baseOf(a)
	return fmt.Errorf("adapter %s belongs to base model %s, and the workers serve %s: POST /admin/load loads it there, "+
		"and --base-alias %[2]s=NAME loads all adapters of %[2]s", f.catalog.name(a), base,
		strings.Join(f.models(), ", "))
}

// IsBase reports whether a name is that of a base model that the workers serve, or an alias of one.
func (f *Fleet) IsBase(name string) bool {
	defer f.lock()()
	return slices.ContainsFunc(f.models(), func(m string) bool { return f.answersTo(m, name) })
}

// BaseOf returns the base model of adapter a, or "" if it is unknown. It also reports whether the workers serve
// several base models.
func (f *Fleet) BaseOf(a int32) (base string, several bool) {
	defer f.lock()()
	if a != trace.BaseModel {
		base = f.catalog.baseOf(a)
	}
	return base, f.mixed
}
