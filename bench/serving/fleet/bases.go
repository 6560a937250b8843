package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lorasim/router"
	"lorasim/trace"
)

// Workers of one fleet may serve different base models. A request for a base model, or for an adapter of it, goes to
// workers that serve that base model and to no others; an adapter is loaded on those only. Workers tell their base
// model when they register, and the base model of an adapter is that of the first worker that lists or loads it.
//
// Policies know nothing of base models: for each request the fleet hides the workers of others. Planners, and policies
// that move adapters, would place adapters on workers of another base model. With them the fleet serves one base model,
// and a worker of another one stays down.

// errOtherBase: a worker serves another base model than the others, and the policy does not distinguish base models.
var errOtherBase = errors.New("serves another base model")

// wanted returns the base model that a request needs: that of its adapter, else the one that it names; "": any. Called
// with mu held.
func (t *table) wanted(a int32, named string) string {
	if a != trace.BaseModel {
		return t.catalog.baseOf(a)
	}
	return named
}

// serves reports whether a worker may get requests for a base model, "": any. Called with mu held. If all workers
// report the same base model, every worker may, even if it reported another name earlier.
func (t *table) serves(k *worker, base string) bool {
	return !t.mixed || base == "" || base == k.health.info.Model
}

// mix notes whether the workers serve different base models; called with mu held when a worker registers or leaves.
func (t *table) mix() {
	t.mixed = len(t.models()) > 1
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

// OneBase returns an error that explains why a router works with one base model only. It returns nil if the router
// works with several.
func OneBase(rt *router.Router) error {
	if !rt.Plans() {
		return nil
	}
	return fmt.Errorf("policy %s places adapters on workers of one base model: use a policy without plans, such as "+
		"least-loaded or affinity, or a gateway for each base model", rt.Name)
}

// otherBase returns an error if a worker with the given base model cannot work beside the others. Called with mu held.
func (t *table) otherBase(k *worker, model string) error {
	if model == "" {
		return nil
	}
	for _, other := range t.workers {
		m := other.health.info.Model
		if other == k || other.gone || m == "" || m == model {
			continue
		}
		if err := OneBase(t.router); err != nil {
			return fmt.Errorf("%s %w: %s, and %s serves %s: %w", k.name, errOtherBase, model, other.name, m, err)
		}
	}
	return nil
}

// noteBase notes the base model of an adapter that a worker lists, the first time; called with mu held.
func (t *table) noteBase(k *worker, name, base string) {
	was, known := t.catalog.base(name)
	switch {
	case base == "" || was == base:
	case !known, !slices.Contains(t.models(), was):
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
	if !t.serves(k, base) {
		return fmt.Errorf("adapter %s belongs to base model %s, and %s serves %s", name, base, k.name,
			k.health.info.Model)
	}
	return nil
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
