package ilp

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"lorasim/internal/shareddata"
)

// TestSharedInstances holds bound and objective against those that a prototype
// found in a second. The embedded solver takes milliseconds with its default
// budget; 2 permille is what it may lose by that.
func TestSharedInstances(t *testing.T) {
	data, err := os.ReadFile(shareddata.Path(t, "ilp/reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var reference map[string]struct {
		LowerBound float64 `json:"lower_bound"`
		Second     float64 `json:"prototype_1s"`
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	for name, want := range reference {
		t.Run(name, func(t *testing.T) {
			path := shareddata.Path(t, "ilp/"+name+".json")
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			in, err := ReadInstance(f, path)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := in.Problem()
			sol, err := Embedded{}.Solve(context.Background(), p, Budget{})
			if err != nil {
				t.Fatal(err)
			}
			if err := Verify(p, sol); err != nil {
				t.Fatal(err)
			}
			t.Logf("objective %.4f (%+.3f %%), bound %.4f (%+.4f %%), gap %.3f %%", sol.Objective,
				100*(sol.Objective/want.Second-1),
				sol.Bound, 100*(sol.Bound/want.LowerBound-1), 100*sol.Gap())
			if sol.Bound < want.LowerBound*(1-1e-3) {
				t.Errorf("bound %v, expected %v", sol.Bound, want.LowerBound)
			}
			if sol.Objective > want.Second*1.002 {
				t.Errorf("objective %v, expected %v", sol.Objective, want.Second)
			}
			if sol.Objective < want.LowerBound*(1-1e-6) {
				t.Errorf("objective %v below the known bound %v", sol.Objective, want.LowerBound)
			}
		})
	}
}
