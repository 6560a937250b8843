package live

import (
	"strings"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
)

// A gateway whose policy plans refuses workers of different base models before it starts.
func TestOneBase(t *testing.T) {
	report := func(url, model string) fleet.Report { return fleet.Report{URL: url, Info: fleet.Info{Model: model}} }
	same := []fleet.Report{report("u0", ""), report("u1", "A"), report("u2", "A")}
	mixed := append(same, report("u3", "B"))
	planning := &router.Router{Name: "period_mig", Planner: noPlanner{}}
	if err := oneBase(same, planning); err != nil {
		t.Error(err)
	}
	if err := oneBase(mixed, &router.Router{Name: "least-loaded"}); err != nil {
		t.Error(err)
	}
	err := oneBase(mixed, planning)
	if err == nil || !strings.Contains(err.Error(), "u1 serves base model A, u3 serves B: policy period_mig") {
		t.Error(err)
	}
}

type noPlanner struct{ router.Planner }
