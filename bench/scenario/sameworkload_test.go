package scenario

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog"
	"lorasim/trace/settings"
	"lorasim/trace/store"
)

// customers is a log of another program, unsorted, with a failed row, a row of the base model, and a name that is a
// number.
func customers() string {
	var b strings.Builder
	b.WriteString("timestamp,adapter,prompt_tokens,completion_tokens,status,rank\n")
	for i := range 60 {
		j := (i*7 + 3) % 60
		name := []string{"acme", "42", "zenith", "", "zoo"}[j%5]
		fmt.Fprintf(&b, "2024-05-16T09:%02d:%02d.%03dZ,%s,%d,%d,%d,\n", j/30, 2*j%60, j*7, name, 100+j*13, 5+j,
			map[bool]int{true: 500, false: 200}[j == 17])
	}
	return b.String()
}

// sameFiles writes the rows of a log in every format of a workload.
func sameFiles(t *testing.T, log string) []string {
	t.Helper()
	paths := []string{testutil.File(t, "log.csv", log)}
	w, _, err := ReadLog(t.Context(), paths, requestlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".csv", ".jsonl", ".parquet", ".arrow"} {
		path := filepath.Join(t.TempDir(), "w"+ext)
		if _, err := store.Write(path, w.Source(), store.WriteOptions{Names: true,
			Files: columnar.Files()}); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// The same rows give the same workload and the same bytes of result in every format, also with the adapters and ranks
// of a scenario.
func TestSameRows(t *testing.T) {
	paths := sameFiles(t, customers())
	for name, set := range map[string]string{
		"as in the file": "", "more adapters": "num_adapters=100 lora_ranks=8,16", "ranks": "lora_ranks=8,16",
	} {
		t.Run(name, func(t *testing.T) {
			var first string
			var want *trace.Workload
			for _, path := range paths {
				sc := Default()
				sc.Files, sc.Workload.File = columnar.Files(), path
				for s := range strings.FieldsSeq(set) {
					key, value, _ := strings.Cut(s, "=")
					if err := sc.Set(key, value); err != nil {
						t.Fatal(err)
					}
				}
				w := collected(t, &sc)
				if want == nil {
					want = w
				}
				if !reflect.DeepEqual(w, want) {
					t.Errorf("%s: another workload:\n%+v\n%+v", path, w.Adapters, want.Adapters)
				}
				if got := resultOf(t, &sc, path); first == "" {
					first = got
				} else if got != first {
					t.Errorf("%s: another result:\n%s\n%s", path, got, first)
				}
			}
		})
	}
}

func collected(t *testing.T, sc *Scenario) *trace.Workload {
	t.Helper()
	in, err := sc.OpenWorkload(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := trace.Collect(in.Source)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// resultOf is the result of a run as JSON, with the name of the workload's file replaced.
func resultOf(t *testing.T, sc *Scenario, path string) string {
	t.Helper()
	res, err := sc.Simulate(context.Background(), RunOptions{KeepRecords: true})
	if err != nil {
		t.Fatal(path, err)
	}
	var b bytes.Buffer
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(path, "FILE", filepath.Base(path), "FILE").Replace(b.String())
}

// Adapters of workload and scenario that contradict each other are an error.
func TestAdaptersDisagree(t *testing.T) {
	paths := sameFiles(t, customers())
	for _, path := range paths {
		for set, want := range map[string]string{
			"num_adapters=3": "num_adapters is 3, but " + path + " names 4 adapters",
			"num_adapters=0": "num_adapters is 0, but " + path + " names 4 adapters",
		} {
			sc := Default()
			sc.Files, sc.Workload.File = columnar.Files(), path
			for s := range strings.FieldsSeq(set) {
				key, value, _ := strings.Cut(s, "=")
				if err := sc.Set(key, value); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := sc.OpenWorkload(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, expected %q", set, err, want)
			}
		}
	}
}

// A log of which no column names the adapters does not run without adapters, unless the scenario says so.
func TestLogWithoutAdapter(t *testing.T) {
	sc := Default()
	sc.Workload.File = testutil.File(t, "log.csv", "timestamp,customer,prompt_tokens,output_tokens\n"+
		"2024-05-16T09:00:00Z,acme,10,20\n2024-05-16T09:00:02Z,zoo,10,20\n2024-05-16T09:00:04Z,acme,10,20\n")
	_, err := sc.OpenWorkload(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "no column names the adapters; columns that may: customer.") ||
		!strings.Contains(err.Error(), "--columns adapter=customer") {
		t.Errorf("%v", err)
	}
	sc.Workload.NumAdapters = settings.Some(0)
	told := 0
	sc.LogRead = func(path string, r *requestlog.Report) { told += len(r.Short(path)) }
	if w := collected(t, &sc); len(w.Adapters) != 0 || len(w.Requests) != 3 || told < 2 {
		t.Errorf("%+v, %d lines told", w, told)
	}
}
