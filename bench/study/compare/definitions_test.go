package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/trace/columnar"
)

// Metrics that clients measure in different ways get no star, and a note says how each measures. vLLM's gaps are
// between chunks, sglang's between tokens; both have the same TPOT.
func TestDefinitions(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for name, fields := range map[string]string{
		"a.json": `"backend": "sglang", "total_throughput": 9`,
		"b.json": `"backend": "vllm", "total_token_throughput": 9`,
	} {
		text := `{"completed": 4, "duration": 2, "mean_tpot_ms": 20, "mean_itl_ms": 20, ` + fields + `}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	paths = append(paths, filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"))
	runs, _, err := Load(t.Context(), columnar.Files(), paths, result.SLO{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := New(runs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range table.Rows {
		if want := row.Metric == "mean_itl_ms"; row.Cells[1].Apart != want {
			t.Errorf("%s: not comparable: %v", row.Metric, row.Cells[1].Apart)
		}
	}
	notes := strings.Join(table.Notes, "\n")
	if want := "ITL is measured in different ways. A: " + string(result.ByToken) + ". B: " +
		string(result.ByChunk); !strings.Contains(notes, want) || strings.Contains(notes, "TPOT is measured") {
		t.Errorf("notes:\n%s", notes)
	}
}
