package decisions

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	r := newReport(Report{of: "engine", Cases: []Case{
		{Name: "a", Steps: 3},
		{Name: "c", Steps: 5, FirstDifference: &Difference{Step: 4, Expected: map[string]int{"free": 2},
			Got: map[string]int{"free": 3}}},
	}})
	if want := (Summary{Cases: 2, Exact: 1}); r.Summary != want {
		t.Errorf("summary %+v, expected %+v", r.Summary, want)
	}
	if r.Err() == nil {
		t.Error("a case differs, and there is no error")
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a     3      exact", `step 4: expected {"free":2}, got {"free":3}`, "2 cases: 1 exact, 1 differ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q not in\n%s", want, &b)
		}
	}
	p := newReport(Report{of: "real picker", skips: true, Cases: []Case{{Name: "a"}, {Name: "b", Skipped: "why"},
		{Name: "c", FirstDifference: &Difference{Step: 1, What: "best", Expected: 2, Got: 3}}}})
	b.Reset()
	if err := p.WriteText(&b); err != nil || strings.Contains(b.String(), "a ") ||
		!strings.Contains(b.String(), "skipped: why") || !strings.Contains(b.String(),
		"step 1, best: expected 2, got 3") ||
		!strings.Contains(b.String(), "3 cases: 1 exact, 1 skipped, 1 differ") {
		t.Errorf("%v\n%s", err, &b)
	}
	if err := newReport(Report{Cases: r.Cases[:1]}).Err(); err != nil {
		t.Errorf("no case differs: %v", err)
	}
}
