package records

import (
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace/columnar"
)

func saved(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if filepath.Ext(name) != ".gz" {
		_, err = f.WriteString(text)
	} else {
		z := gzip.NewWriter(f)
		if _, err = z.Write([]byte(text)); err == nil {
			err = z.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Latencies stand for times, and a request without a finish failed.
func TestLatenciesForTimes(t *testing.T) {
	path := saved(t, "run.csv.gz", `id,tenant,arrival_s,sent_s,prompt_tokens,output_tokens,ttft_s,e2e_s
0,A,0.5,0.75,1010,128,0.25,1.5
1,B,1,1,987,0,,
`)
	got, _, err := ReadAll(t.Context(), columnar.Files(), path)
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	want := []record.Request{
		{Adapter: -1, Arrival: 0.5, Sent: 0.75, FirstToken: 1, Finish: 2.25, Prompt: 1010, Output: 128,
			WorkerFirst: -1, WorkerLast: -1},
		{ID: 1, Adapter: -1, Arrival: 1, Sent: 1, FirstToken: nan, Finish: nan, Prompt: 987, Status: record.Failed,
			WorkerFirst: -1, WorkerLast: -1},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A trace of blis observe: absolute times in us, arrivals from the start. The first
// request was sent 1 ms after its arrival, the second at its own: that is time 0.
func TestObservedTrace(t *testing.T) {
	path := saved(t, "trace.csv", `request_id,tenant_id,input_tokens,server_input_tokens,output_tokens,arrival_time_us,`+
		`send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message
1,A,8,12,3,2000000,1700000002000000,1700000002500000,1700000003000000,4,ok,
0,A,8,0,3,1000000,1700000001001000,1700000001501000,1700000002001000,4,ok,
2,A,8,12,0,2500000,1700000002500000,0,0,0,error,timed out
`)
	got, _, err := ReadAll(t.Context(), columnar.Files(), path)
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	want := []record.Request{
		{Adapter: -1, Arrival: 1, Sent: 1.001, FirstToken: 1.501, Finish: 2.001, Prompt: 8, Output: 3, WorkerFirst: -1,
			WorkerLast: -1},
		{ID: 1, Adapter: -1, Arrival: 2, Sent: 2, FirstToken: 2.5, Finish: 3, Prompt: 12, Output: 3, WorkerFirst: -1,
			WorkerLast: -1},
		{ID: 2, Adapter: -1, Arrival: 2.5, Sent: 2.5, FirstToken: nan, Prompt: 12, Status: record.Failed,
			Error: "timed out", WorkerFirst: -1, WorkerLast: -1},
	}
	near := cmpopts.EquateApprox(0, 1e-6)
	got[2].Finish = 0
	if d := cmp.Diff(want, got, cmpopts.EquateNaNs(), near); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestForeignFaults(t *testing.T) {
	const own = "id,arrival_s,sent_s,prompt_tokens,output_tokens"
	for text, want := range map[string]string{
		own + "\n1,0,0,5,5\n":                              `column "first_token_s": is missing, and so is ttft_s`,
		own + ",ttft_s\n1,0,0,5,5,1\n":                     `column "finish_s": is missing, and so is e2e_s`,
		own + ",ttft_s,e2e_s,status\n1,0,0,5,5,1,2,fine\n": `unknown status "fine"`,
		observedHeader + "x,1,1":                           "trace.csv:2",
		observedHeader:                                     "holds no request",
	} {
		_, _, err := ReadAll(t.Context(), columnar.Files(), saved(t, "trace.csv", text))
		testutil.ExpectError(t, err, want)
	}
}

const observedHeader = "request_id,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,output_tokens\n"

// No file makes the reader of traces panic.
func FuzzObserved(f *testing.F) {
	f.Add([]byte(observedHeader + "0,1,2,3,4,5\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "trace.csv")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		rs, _, err := ReadAll(t.Context(), columnar.Files(), path)
		if err == nil && isObserved(t.Context(), columnar.Files(), path) && len(rs) == 0 {
			t.Error("no request and no error")
		}
	})
}
