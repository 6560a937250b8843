package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/trace/settings"
)

// wrapper passes every call on to the policy that it wraps.
type wrapper struct{ router.Policy }

// A policy that is wrapped gives the same run: nothing looks behind the contract of [router.Policy].
func TestWrappedPoliciesRunAlike(t *testing.T) {
	for _, d := range router.List() {
		spec := map[string]string{"explicit": "explicit:map=rest@all",
			"script": "script:file=../../scenarios/policies/weighted-score.star"}[d.Name]
		specs := []string{cmp.Or(spec, d.Name)}
		if d.Name == "epp" {
			for _, file := range []string{"kserve-lora", "llmd-baseline"} {
				specs = append(specs, "epp:file=../../scenarios/pickers/"+file+".yaml")
			}
		}
		for _, spec := range specs {
			t.Run(spec, func(t *testing.T) {
				run := func(wrap func(router.Policy) router.Policy) []byte {
					sc := Default()
					sc.Workload.NumPrompts, sc.Workload.RequestRate = settings.Some[int64](300), 16
					testutil.Set(t, &sc, "policy", spec)
					in, err := sc.OpenWorkload(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer in.Close()
					cfg, err := sc.config(t.Context(), in, RunOptions{})
					if err != nil {
						t.Fatal(err)
					}
					cfg.Outages = []sim.Outage{{Worker: 1, From: 5, To: 9}}
					cfg.Router.Policy = wrap(cfg.Router.Policy)
					var out bytes.Buffer
					cfg.Observer = record.Ends(func(r *record.Request) { fmt.Fprintln(&out, *r) })
					if _, err := sim.Run(t.Context(), cfg); err != nil {
						t.Fatal(err)
					}
					return out.Bytes()
				}
				plain := run(func(p router.Policy) router.Policy { return p })
				wrapped := run(func(p router.Policy) router.Policy { return wrapper{wrapper{p}} })
				if !bytes.Equal(plain, wrapped) {
					t.Error("the wrapped policy routes otherwise")
				}
			})
		}
	}
}
