package figure

import (
	"bytes"
	"strings"
	"testing"
)

func TestPanels(t *testing.T) {
	var b bytes.Buffer
	err := WritePanels(&b, []Panel{
		{Title: "throughput", Unit: "tokens/s", Points: []Point{{"first", 100, 110}, {"second", 1000, 900}}},
		{Title: "TTFT", Unit: "ms", Points: []Point{{"first", 10, 1e6}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, times := range map[string]int{
		"measured, tokens/s": 1, "predicted, ms": 1, ">first<": 2, ">second<": 1,
	} {
		if n := strings.Count(b.String(), text); n != times {
			t.Errorf("%q is there %d times, expected %d", text, n, times)
		}
	}
	if err := WritePanels(&b, []Panel{{Title: "TPOT"}}); err == nil ||
		!strings.Contains(err.Error(), "no run with a prediction of TPOT") {
		t.Errorf("a panel without points gives %v", err)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{
		{10, 50, "10 15 20 30 40 50"},
		{10, 200, "10 20 50 100 200"},
		{10, 5000, "10 30 100 300 1000 3000"},
		{10, 100000, "10 100 1000 10k 100k"},
	} {
		var labels []string
		for _, tick := range (logTicks{}).Ticks(c.lo, c.hi) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("marks from %v to %v are %s, expected %s", c.lo, c.hi, got, c.want)
		}
	}
}
