package scenario_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/trace"
)

// TestFilesAreHandedIn: a scenario whose workload is in a file system in memory has the same requests as with the file
// on disk, for a log, a saved workload, a file of records and a client's result.
func TestFilesAreHandedIn(t *testing.T) {
	sent, err := os.ReadFile("../result/importer/testdata/aiperf.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"log.csv":     "time,model,prompt_tokens,completion_tokens\n1,a,10,5\n2.5,b,20,7\n",
		"log.jsonl":   `{"time":1,"model":"a","prompt_tokens":10,"completion_tokens":5}` + "\n",
		"log.csv.gz":  string(testutil.Gzip(t, "time,model,prompt_tokens,completion_tokens\n1,a,10,5\n2.5,b,20,7\n")),
		"saved.csv":   "id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,x,1,1\n1,1,y,2,2\n",
		"records.csv": "id,arrival_s,sent_s,ttft_s,e2e_s,prompt_tokens,output_tokens\n0,0,0,0.1,0.5,10,5\n",
		"run.jsonl":   string(sent),
	} {
		path := testutil.File(t, name, content)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		memory := scenario.Default()
		memory.Files.FS = fstest.MapFS{"mine/" + name: {Data: data}}
		memory.Workload.File = "mine/" + name
		disk := scenario.Default()
		disk.Workload.File = path
		got, want := requestsOf(t, &memory), requestsOf(t, &disk)
		if diff := cmp.Diff(want, got); diff != "" || len(want.Requests) == 0 {
			t.Errorf("%s: %d requests (-disk +memory):\n%s", name, len(want.Requests), diff)
		}
		memory.Workload.File = filepath.Base(name)
		if _, err := memory.OpenWorkload(t.Context(), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v for a file that is not there", name, err)
		}
	}
}

func requestsOf(t *testing.T, sc *scenario.Scenario) *trace.Workload {
	t.Helper()
	in, err := sc.OpenWorkload(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := trace.Collect(in)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestNoBinaryFormats: without the binary formats, the error for such a file says where they are.
func TestNoBinaryFormats(t *testing.T) {
	sc := scenario.Default()
	for _, name := range []string{"w.arrow", "w.parquet"} {
		sc.Workload.File = testutil.File(t, name, "PAR1")
		if _, err := sc.OpenWorkload(t.Context(), nil); err == nil ||
			!strings.Contains(err.Error(), "lorasim/trace/columnar") || strings.Count(err.Error(), name) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
