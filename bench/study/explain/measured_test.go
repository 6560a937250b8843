package explain

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// readCSV reads a CSV file as rows by column.
func readCSV(t *testing.T, path string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := csv.NewReader(f)
	if filepath.Ext(path) == ".gz" {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		in = csv.NewReader(z)
	}
	all, err := in.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// measuredRuns returns the mean TTFT of the runs of the baseline, ms, by their names.
func measuredRuns(t *testing.T, dir string) map[string]float64 {
	t.Helper()
	runs := map[string]float64{}
	for _, r := range readCSV(t, filepath.Join(dir, "runs.csv")) {
		if r["mode"] != "baseline" {
			continue // its workers have merged weights
		}
		mean, err := strconv.ParseFloat(r["mean_ttft_ms"], 64)
		if err != nil {
			t.Fatal(err)
		}
		runs[r["run"]] = mean
	}
	if len(runs) == 0 {
		t.Fatal("no runs")
	}
	return runs
}

// slotsOf returns the number of slots of a run, by its name.
func slotsOf(t *testing.T, run string) int {
	t.Helper()
	m := regexp.MustCompile(`slots(\d)`).FindStringSubmatch(run)
	if m == nil {
		t.Fatalf("%s states no slots", run)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// requestsOf returns the requests of a run as a workload.
func requestsOf(t *testing.T, dir, run string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	columns := []string{"id", "arrival_s", "adapter", "prompt_tokens", "output_tokens"}
	for i, r := range readCSV(t, filepath.Join(dir, "requests.csv.gz")) {
		if i == 0 {
			_ = w.Write(columns)
		}
		if r["run"] != run {
			continue
		}
		row := make([]string, len(columns))
		for k, name := range columns {
			row[k] = r[name]
		}
		_ = w.Write(row)
	}
	w.Flush()
	return b.Bytes()
}
