package table_test

import (
	"math"
	"strings"
	"testing"

	"lorasim/internal/table"
)

func TestReadCSV(t *testing.T) {
	text := "name,rate,slots,note\n first ,2.5, 8.0 ,\n\"two\nlines\",1e1,3,x\n"
	var names []string
	var lines []int
	sum, slots := 0.0, 0
	err := table.ReadCSV(strings.NewReader(text), "t.csv", []string{"name", "rate"}, func(r *table.CSVRow) {
		names, lines = append(names, r.Text("name")), append(lines, r.Line)
		sum, slots = sum+r.Positive("rate"), slots+r.Count("slots", 1, 9)
		if r.Has("note") != (r.Text("name") != "first") || r.Text("other") != "" || r.Has("other") {
			t.Errorf("line %d: %q, %q", r.Line, r.Text("note"), r.Text("other"))
		}
		if !math.IsNaN(r.Number("other")) {
			t.Error(r.Number("other"))
		}
	})
	if err != nil || len(names) != 2 || names[0] != "first" || names[1] != "two\nlines" || sum != 12.5 || slots != 11 {
		t.Errorf("%q, %v, %v, %v", names, sum, slots, err)
	}
	if lines[0] != 2 {
		t.Error(lines)
	}
}

func TestReadCSVErrors(t *testing.T) {
	for text, want := range map[string]string{
		"rate\n5\n":              `t.csv:1: no column "slots"; the header has rate`,
		"rate,slots\n":           "t.csv: no rows below the header",
		"rate,slots\n0,1\n":      `t.csv:2: rate: "0", expected a number > 0`,
		"rate,slots\ninf,1\n":    `t.csv:2: rate: "inf", expected a number > 0`,
		"rate,slots\n1,x\n":      `t.csv:2: slots: "x", expected a whole number from 1 to 9`,
		"rate,slots\n1,1.5\n":    `t.csv:2: slots: "1.5", expected a whole number from 1 to 9`,
		"rate,slots\n1,10\n":     `t.csv:2: slots: "10", expected a whole number from 1 to 9`,
		"rate,slots\n-1,0\n":     `t.csv:2: rate: "-1", expected a number > 0`, // the first fault
		"rate,slots\n1,1\n2,0\n": `t.csv:3: slots: "0", expected a whole number from 1 to 9`,
	} {
		err := table.ReadCSV(strings.NewReader(text), "t.csv", []string{"rate", "slots"}, func(r *table.CSVRow) {
			r.Positive("rate")
			if n := r.Count("slots", 1, 9); n < 1 || n > 9 {
				t.Errorf("%q: %d slots", text, n)
			}
		})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
}
