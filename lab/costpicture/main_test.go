package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const page = "# A page\n\n| run | CPU |\n|---|---|\n| one | 2 µs |\n\n" +
	"| workers | adapters | `static` | `plan-and-route` |\n|---:|---:|---:|---:|\n" +
	"| 1 | 100 | 18 µs, 35 MB | 80 µs, 39 MB |\n| 10 | 100 | 14.5 µs, 36 MB | 40 µs, 38 MB |\n\n" +
	"| requests | processor time |\n|---:|---:|\n| 1 | 2 s |\n"

func TestReadCosts(t *testing.T) {
	c, err := readCosts(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(c.policies, " "), "static plan-and-route"; got != want {
		t.Errorf("policies %s, expected %s", got, want)
	}
	want := []cost{{1, 100, 0, 18}, {1, 100, 1, 80}, {10, 100, 0, 14.5}, {10, 100, 1, 40}}
	if len(c.cells) != len(want) {
		t.Fatalf("cells %v, expected %v", c.cells, want)
	}
	for i := range want {
		if c.cells[i] != want[i] {
			t.Errorf("cell %d is %v, expected %v", i, c.cells[i], want[i])
		}
	}
	for name, text := range map[string]string{
		"no table":          "# A page\n\n| run | CPU |\n",
		"a cell is missing": strings.Replace(page, " 80 µs, 39 MB |", "", 1),
		"no time":           strings.Replace(page, "18 µs", "-", 1),
	} {
		if _, err := readCosts(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPictureOfThePage draws the table of the page itself.
func TestPictureOfThePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.svg")
	if err := run([]string{"../docs/speed.md", path}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">100000 adapters: ", ">1 adapter: ", ">plan-and-route<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}
