package scripts

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// floors are the top-level folders from below: one may import from itself and
// from those before it.
var floors = []string{"internal", "scenarios", "trace", "ilp", "router", "sim", "bench", "cmd", "examples"}

// rooms are the packages of router, sim and bench from below: one may import from rows before its own, and from no
// other of its row.
var rooms = map[string][][]string{
	"router": {
		{"router/average", "router/prefix", "router/promtext", "router/push"},
		{"router"}, // the contract
		{"router/admission", "router/choose", "router/prefixindex", "router/routertest"},
		{"router/place"},
		{"router/policies", "router/planroute", "router/script", "router/epp"},
		{"router/builtin", "router/epp/edit", "router/epp/scrape"},
	},
	"sim": {
		{"sim/tick"},
		{"sim/profile", "sim/record"},
		{"sim/event", "sim/autoscale", "sim/kvcache", "sim/oracle", "sim/engine/dlora"},
		{"sim/lora"},
		{"sim/engine"},
		{"sim/engine/sglang", "sim/engine/vllm", "sim/engine/slora"},
		{"sim"},
	},
	"bench": {
		{"bench/pages"},
		{"bench/stats"},
		{"bench/steady"},
		{"bench/result"},
		{"bench/replay", "bench/result/records", "bench/result/series", "bench/result/waits"},
		{"bench/result/importer", "bench/run"},
		{"bench/scenario", "bench/scenario/manifest"},
		{"bench/scenario/starter"},

		{"bench/study/capacity", "bench/study/sweep", "bench/study/tune"},
		{"bench/study/compare", "bench/study/remedy", "bench/study/worth"},
		{"bench/study/explain", "bench/study/report"},
		{"bench/study/advise"},
		{"bench/explore"},
		{"bench/explore/web"},

		{"bench/serving/bearer", "bench/serving/httpapi"},
		{"bench/serving/emulate", "bench/serving/faultworker", "bench/serving/matrix", "bench/serving/wire"},
		{"bench/serving/fleet"},
		{"bench/serving/fleetpage", "bench/serving/metrics"},
		{"bench/serving/metrics/metricstest"},
		{"bench/serving/extproc", "bench/serving/gateway", "bench/serving/live"},

		{"bench/fidelity/decisions", "bench/fidelity/measured"},
		{"bench/fidelity/check"},
		{"bench/fidelity/fit"},
		{"bench/study/hour"},

		{"bench"}, // its map, without code
	},
}

// TestFloors holds the imports of all packages, those of tests left out, against
// the layers of docs/architecture.md.
func TestFloors(t *testing.T) {
	floor := func(pkg string) int {
		top, _, _ := strings.Cut(pkg, "/")
		return slices.Index(floors, top)
	}
	room := func(floor, pkg string) int {
		return slices.IndexFunc(rooms[floor], func(row []string) bool {
			return slices.Contains(row, pkg)
		})
	}
	checked := 0
	for _, i := range imports(t) {
		from, to := i[0], i[1]
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

// imports lists the imports among the packages, those of tests and of scripts left out: who, and what, both without
// the name of the module.
func imports(t *testing.T) (list [][2]string) {
	t.Helper()
	for _, line := range goList(t, `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}`) {
		from, to, _ := strings.Cut(line, " ")
		from, to = strings.TrimPrefix(from, "lorasim"), strings.TrimPrefix(to, "lorasim")
		if strings.HasPrefix(to, "/") && from != "/scripts" && !strings.HasPrefix(from, "/scripts/") {
			list = append(list, [2]string{from[1:], to[1:]})
		}
	}
	return list
}

// goList runs go list over all packages, with flags and, the last, a format, and returns the lines of what it prints.
func goList(t *testing.T, flags ...string) (lines []string) {
	t.Helper()
	last := len(flags) - 1
	args := slices.Concat([]string{"list"}, flags[:last], []string{"-f", flags[last], "lorasim/..."})
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
