package result

import (
	"math"
	"testing"
)

func TestCompletion(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name  string
		a, b  Completion
		whole bool // a
		same  bool
	}{
		{"both whole, of different workloads", Completion{100, 100, 7}, Completion{50, 50, 9}, true, true},
		{"one rejected some", Completion{100, 100, 7}, Completion{100, 90, 9}, true, false},
		{"as many, but others", Completion{100, 90, 7}, Completion{100, 90, 9}, false, false},
		{"the same", Completion{100, 90, 7}, Completion{100, 90, 7}, false, true},
		{"no fingerprint", Completion{100, 90, nan}, Completion{100, 90, 7}, false, true},
		{"not one", Completion{100, 0, 0}, Completion{100, 100, 7}, false, false},
		{"totals not known", Completion{nan, 90, nan}, Completion{nan, 91, nan}, false, false},
		{"nothing known", Completion{nan, nan, nan}, Completion{100, 91, 1}, false, true},
	} {
		if got := c.a.Whole(); got != c.whole {
			t.Errorf("%s: whole %v", c.name, got)
		}
		if c.a.Same(c.b) != c.same || c.b.Same(c.a) != c.same {
			t.Errorf("%s: same %v", c.name, !c.same)
		}
	}
}

// A run that was stopped did not complete its workload, whatever it sent.
func TestCompletionOfStoppedRun(t *testing.T) {
	c := CompletionOf(func(name string) float64 {
		return map[string]float64{"requests": 10, "completed": 10, "unsent": 5}[name]
	})
	if c.Whole() || math.Abs(c.Left()-1.0/3) > 1e-12 {
		t.Errorf("%+v: %v left", c, c.Left())
	}
}

// Fingerprints tell that two runs completed different requests only where both are known.
func TestSameSet(t *testing.T) {
	for _, c := range []struct {
		a, b float64
		same bool
	}{{3, 3, true}, {3, 4, false}, {0, 4, true}, {3, 0, true}, {0, 0, true}} {
		if got := (Completion{set: c.a}).SameSet(Completion{set: c.b}); got != c.same {
			t.Errorf("%v and %v: same %v", c.a, c.b, got)
		}
	}
}
