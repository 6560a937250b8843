package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/ilp"
	"lorasim/ilp/highs"
)

// TestSolveHighs solves with HiGHS where it is built in, and checks what the
// program says where it is not.
func TestSolveHighs(t *testing.T) {
	in := ilp.Generate(2, 4, 32, 3)
	path := filepath.Join(t.TempDir(), "p.json")
	var text bytes.Buffer
	if err := in.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--formulation", "flow"}, {"--formulation", "d0", "--warm-start"}} {
		args = append([]string{"solve", path, "--solver", "highs", "--json", "--gap", "0.001", "--time-limit", "30s"},
			args...)
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
		if !highs.Available() {
			if code != exitFailed || stdout.Len() > 0 || !strings.Contains(stderr.String(), "scripts/highs") {
				t.Errorf("%v without HiGHS: exit code %d, %q, %q", args, code, &stdout, &stderr)
			}
			continue
		}
		if code != exitOK {
			t.Fatalf("%v: exit code %d, %s", args, code, &stderr)
		}
		checkSolved(t, in, stdout.Bytes())
	}
}

// checkSolved recomputes an objective from the JSON result.
func checkSolved(t *testing.T, in *ilp.Instance, text []byte) {
	t.Helper()
	var got struct {
		Objective, Bound, Gap, Seconds float64
		Status, Solver                 string
		Assignment                     struct {
			Requests []int
			Workers  [][]int32
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	busy, pages := make([]float64, len(in.Workers)), make([]int64, len(in.Workers))
	for i, r := range in.Requests {
		to := got.Assignment.Requests[i]
		busy[to] += in.Adapters[r.Adapter].ExecTime
		if int32(to) != r.Worker {
			busy[to] += in.Alpha
		}
		pages[to] += r.Pages
	}
	most := 0.0
	for j, w := range in.Workers {
		most = math.Max(most, busy[j]+math.Max(0, float64(pages[j]-w.KVPages))/in.Bandwidth)
		if n := len(got.Assignment.Workers[j]); n > w.Slots {
			t.Errorf("worker %d: %d adapters in %d slots", j, n, w.Slots)
		}
	}
	if math.Abs(most-got.Objective) > 1e-6*most || got.Bound > most*(1+1e-6) || got.Gap > 0.001+1e-6 {
		t.Errorf("objective %v, bound %v, gap %v; recomputed %v", got.Objective, got.Bound, got.Gap, most)
	}
	if got.Solver == "" || got.Status == "" || got.Seconds <= 0 {
		t.Errorf("%s", text)
	}
}

// TestSolveInterrupted: what was found is printed, and the exit code says why.
func TestSolveInterrupted(t *testing.T) {
	var text, stdout, stderr bytes.Buffer
	if err := ilp.Generate(4, 32, 200, 1).Write(&text); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code := run(ctx, []string{"solve", "-"}, &text, &stdout, &stderr)
	if code != exitInterrupted || !strings.Contains(stdout.String(), "Objective") ||
		!strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d, %s, %s", code, &stdout, &stderr)
	}
}
