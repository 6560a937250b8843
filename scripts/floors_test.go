package scripts

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// floors are the top-level folders from below: one may import from itself and
// from those before it.
var floors = []string{"internal", "trace", "ilp", "router", "sim", "bench", "cmd"}

// rooms are the packages of sim and bench from below: one may import from rows before its own, and from no other of
// its row.
var rooms = map[string][][]string{
	"sim": {
		{"sim/profile"},
		{"sim/event", "sim/autoscale", "sim/kvcache", "sim/oracle", "sim/engine/dlora"},
		{"sim/lora"},
		{"sim/engine"},
		{"sim/engine/sglang", "sim/engine/vllm"},
		{"sim"},
	},
	"bench": {
		{"bench/stats"},
		{"bench/steady"},
		{"bench/result"},
		{"bench/result/importer", "bench/result/records", "bench/result/series"},
		{"bench/scenario"},

		{"bench/study/capacity", "bench/study/sweep"},
		{"bench/study/compare", "bench/study/worth"},
		{"bench/study/report"},
		{"bench/study/advise"},

		{"bench/serving/emulate", "bench/serving/matrix", "bench/serving/wire"},
		{"bench/serving/fleet"},
		{"bench/serving/gateway", "bench/serving/live"},

		{"bench/accuracy/steps", "bench/accuracy/validate"},
		{"bench/accuracy/vllmruns"},
		{"bench/accuracy/calibrate"},

		{"bench"}, // its map, without code
	},
}

// TestFloors holds the imports of all packages, those of tests left out, against
// the floors of docs/architecture.md.
func TestFloors(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}`,
		"lorasim/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	floor := func(pkg string) int {
		top, _, _ := strings.Cut(strings.TrimPrefix(pkg, "lorasim/"), "/")
		return slices.Index(floors, top)
	}
	room := func(floor, pkg string) int {
		return slices.IndexFunc(rooms[floor], func(row []string) bool {
			return slices.Contains(row, strings.TrimPrefix(pkg, "lorasim/"))
		})
	}
	checked := 0
	for line := range strings.Lines(string(out)) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(to, "lorasim/") || strings.HasPrefix(from, "lorasim/scripts") {
			continue
		}
		if floor(from) < 0 || floor(to) < 0 {
			t.Errorf("%s imports %s: a folder without a floor, expected one of %v", from, to, floors)
		}
		if floor(to) > floor(from) {
			t.Errorf("%s imports %s, which is above it", from, to)
		}
		if top := floors[floor(from)]; rooms[top] != nil {
			inside := floors[floor(to)] == top
			if room(top, from) < 0 || inside && room(top, to) >= room(top, from) {
				t.Errorf("%s imports %s: expected a room of %s, and one from below it", from, to, top)
			}
		}
		checked++
	}
	if checked < 100 {
		t.Errorf("%d imports checked, expected hundreds", checked)
	}
}
