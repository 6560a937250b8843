package scenario

import (
	"fmt"
	"math"
	"slices"

	"lorasim/ilp"
	"lorasim/ilp/highs"
	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Router makes the scenario's policy for workers of the given profiles.
func (s *Scenario) Router(ps []*profile.Profile, adapters []trace.Adapter) (*router.Router, error) {
	r := &s.Routing
	spec, err := r.spec()
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	solver, err := r.solver()
	if err != nil {
		return nil, err
	}
	env := router.Env{
		Adapters:  adapters,
		Seed:      s.Seed,
		Moving:    router.Moving(r.RequestMigration),
		Interval:  r.MigrationInterval,
		Threshold: r.MigrationReqThreshold,
		Solver:    solver,
	}
	known := map[*profile.Profile]router.Spec{}
	for _, p := range ps {
		if _, ok := known[p]; !ok {
			if known[p], err = workerSpec(p, adapters); err != nil {
				return nil, err
			}
		}
		env.Workers = append(env.Workers, known[p])
	}
	return router.New(spec, env)
}

// workerSpec is what a router knows of a worker of a profile.
func workerSpec(p *profile.Profile, adapters []trace.Adapter) (router.Spec, error) {
	costs := p.Compile()
	kv, err := p.KVTokens()
	if err != nil {
		return router.Spec{}, err
	}
	s := router.Spec{
		Cost:         profile.Model{Costs: costs},
		MaxRunning:   p.Engine.MaxRunningRequests,
		Slots:        p.Engine.MaxLorasPerBatch,
		HostSlots:    p.Engine.HostLoras(),
		AdapterBytes: make([]float64, len(adapters)),
		KVBytes:      float64(p.Memory.KVBytesPerToken),
		PageSize:     p.Engine.PageSize,
	}
	largest := 0.0
	for k, a := range adapters {
		s.AdapterBytes[k] = costs.Bytes(a.Rank)
		largest = max(largest, s.AdapterBytes[k])
	}
	s.Memory = float64(kv)*s.KVBytes + float64(s.Slots)*largest
	return s, nil
}

// spec is the policy that the routing asks for.
func (r *Routing) spec() (string, error) {
	switch r.InferenceArchitecture {
	case "":
		if r.MigrationType != "" {
			return "", fmt.Errorf("migration_type %s goes with inference_architecture dlora", r.MigrationType)
		}
		return r.Policy, nil
	case "sglang":
		return "static", nil
	case "dlora":
		switch r.MigrationType {
		case "", "period_mig":
			return "dlora_period_mig", nil
		case "dispatch_only", "dispatch_mig":
			return r.MigrationType, nil
		}
		return "", suggest.Unknown("migration_type", r.MigrationType, []string{"dispatch_only", "dispatch_mig", "period_mig"})
	}
	return "", suggest.Unknown("inference_architecture", r.InferenceArchitecture, []string{"sglang", "dlora"})
}

func (r *Routing) check() error {
	if !slices.Contains(router.Movings(), router.Moving(r.RequestMigration)) {
		return suggest.Unknown("request_migration", r.RequestMigration, movings())
	}
	for _, c := range []struct {
		key string
		v   float64
	}{
		{"view_staleness", r.ViewStaleness}, {"migration_interval", r.MigrationInterval},
		{"migration_req_threshold", r.MigrationReqThreshold},
	} {
		if !(c.v >= 0) || math.IsInf(c.v, 0) {
			return fmt.Errorf("%s is %v, expected a number >= 0", c.key, c.v)
		}
	}
	return nil
}

func movings() []string {
	var names []string
	for _, m := range router.Movings() {
		names = append(names, string(m))
	}
	return names
}

// solver is the solver of plans, nil: the embedded one.
func (r *Routing) solver() (ilp.Solver, error) {
	switch r.Solver {
	case "embedded":
		return nil, nil
	case "highs":
		return highs.New(highs.Options{})
	}
	return nil, suggest.Unknown("solver", r.Solver, []string{"embedded", "highs"})
}
