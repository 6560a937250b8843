package fleet

import (
	"errors"
	"fmt"
	"testing"

	"lorasim/router"
	"lorasim/trace"
)

// A fleet remembers the latest plans that change something, and why others were dropped.
func TestPlanNotes(t *testing.T) {
	c := newCluster(Config{Connection: Connection{URLs: []string{"http://w"}}, Adapters: trace.Names(2, nil),
		Router: &router.Router{}}.withDefaults())
	defer c.tasks.cancel()
	p, f := &planRunner{cluster: c}, &Fleet{cluster: c}
	load := []router.Placement{{Worker: 0, Adapter: 1}}
	for i := range keptPlans + 5 {
		p.remember(&router.Plan{Reason: fmt.Sprint("plan ", i), Load: load}, nil)
	}
	p.remember(&router.Plan{Reason: "none"}, nil)
	p.remember(&router.Plan{Reason: "down", Load: load, Move: make([]router.Move, 3)}, errors.New("a worker is down"))
	list := f.Plans()
	if len(list) != keptPlans {
		t.Fatalf("%d plans, expected %d", len(list), keptPlans)
	}
	if n := list[0]; n.Result != "dropped" || n.Error != "a worker is down" || n.Moves != 3 || n.Reason != "down" {
		t.Errorf("the latest is %+v", n)
	}
	if n := list[1]; n.Result != "applied" || n.Reason != fmt.Sprint("plan ", keptPlans+4) || len(n.Load) != 1 ||
		n.Load[0] != c.catalog.adapters[1].Name+"@http://w" {
		t.Errorf("the one before is %+v", n)
	}
}
