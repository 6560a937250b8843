package steps

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	r := newReport([]Case{
		{Name: "a", Steps: 3},
		{Name: "c", Steps: 5, FirstDifference: &Difference{4, map[string]int{"free": 2}, map[string]int{"free": 3}}},
	})
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
	if err := newReport(r.Cases[:1]).Err(); err != nil {
		t.Errorf("no case differs: %v", err)
	}
}
