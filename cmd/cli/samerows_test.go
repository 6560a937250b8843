package cli

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/explore"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace/columnar"
)

// importedLog writes a log and what import makes of it in every format. It returns the names of the files, which are in
// the working directory.
func importedLog(t *testing.T) []string {
	t.Helper()
	t.Chdir(t.TempDir())
	log := "timestamp,adapter,prompt_tokens,completion_tokens\n"
	for i := range 24 {
		adapter := []string{"acme", "42", "zoo", ""}[i%4]
		log += fmt.Sprintf("2024-05-16T09:00:%02d.5Z,%s,%d,%d\n", i, adapter, 20+i, 3+i%5)
	}
	if err := os.WriteFile("log.csv", []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []string{"log.csv"}
	for _, format := range []string{"csv", "jsonl", "parquet", "arrow"} {
		file := "w." + format
		lorasim(t, "trace", "import", "log.csv", "-o", file)
		files = append(files, file)
	}
	return files
}

// bench sends the same requests to real workers, whatever the format of the workload.
func TestSameRowsInBench(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	worker, err := emulate.New(emulate.Config{Costs: p.Compile(), API: httpapi.SGLang, Speed: 200, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(worker)
	defer worker.Close()
	defer srv.Close()
	var want [][]string
	for _, file := range importedLog(t) {
		text := lorasim(t, "bench", srv.URL, "--workload", file, "--rate-scale", "100", "--max-concurrency", "1",
			"--worker-time-scale", "200", "--policy", "round-robin", "--records", "r.csv")
		if waits := lookLine(text, "Waits"); !strings.HasPrefix(waits, "requests wait for ") {
			t.Errorf("%s: requests wait for %q\n%s", file, waits, text)
		}
		rows := pickColumns(t, "r.csv", "id", "adapter_name", "rank", "prompt_tokens", "output_tokens", "status",
			"worker_last")
		if len(rows) != 25 { // with the head
			t.Fatalf("%s: %d rows", file, len(rows))
		}
		if want == nil {
			want = rows
		} else if !slices.EqualFunc(rows, want, slices.Equal) {
			t.Errorf("%s: %v, expected %v", file, rows, want)
		}
	}
}

// The explorer gives the same runs, whatever the format of the workload.
func TestSameRowsInExplore(t *testing.T) {
	var want [][]byte
	for _, file := range importedLog(t) {
		x := explore.New(explore.Limits{}, columnar.Files())
		var results [][]byte
		q := explore.Query{Settings: map[string]string{"workload.file": file}, Policies: []string{"static", "p2c"},
			SLO: "ttft:1000", Seeds: "1"}
		err := x.Run(t.Context(), q, func(e explore.Event) {
			if runs, ok := e.Data.([]explore.Run); ok && e.Kind == explore.KindRuns {
				results = nil
				for _, r := range runs {
					results = append(results, bytes.ReplaceAll(r.Result, []byte(file), []byte("FILE")))
				}
			}
		})
		if err != nil || len(results) != 2 {
			t.Fatalf("%s: %d results, %v", file, len(results), err)
		}
		if want == nil {
			want = results
		} else if !slices.EqualFunc(results, want, bytes.Equal) {
			t.Errorf("%s: %s, expected %s", file, results, want)
		}
	}
}

// pickColumns returns some columns of a CSV file, sorted by the first one.
func pickColumns(t *testing.T, file string, names ...string) [][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatal(len(rows), err)
	}
	var out [][]string
	for _, row := range rows {
		var kept []string
		for _, name := range names {
			i := slices.Index(rows[0], name)
			if i < 0 {
				t.Fatalf("%s has no column %s: %v", file, name, rows[0])
			}
			kept = append(kept, row[i])
		}
		out = append(out, kept)
	}
	slices.SortFunc(out[1:], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return out
}
