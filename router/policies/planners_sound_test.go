package policies

import (
	"testing"

	"pgregory.net/rapid"

	"lorasim/router/routertest"
)

func TestPlansAreSound(t *testing.T) {
	for _, spec := range []string{"rank-group", "min-cost-flow", "llumnix", "dlora_period_mig:threshold=1"} {
		t.Run(spec, func(t *testing.T) {
			c := routertest.PlannerTest{Spec: spec, Homeless: spec == "dlora_period_mig:threshold=1"}
			rapid.Check(t, c.Check)
		})
	}
}
