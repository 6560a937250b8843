package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/fleetpage"
	"lorasim/internal/testutil"
)

// uiRun is a benchmark with a page.
type uiRun struct {
	page string // address
	out  strings.Builder
	code chan int
	stop context.CancelFunc
}

// startUI starts a benchmark with a page, and waits for its address.
func startUI(t *testing.T, args ...string) *uiRun {
	t.Helper()
	r := &uiRun{code: make(chan int, 1)}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	stderr, in := io.Pipe()
	go func() {
		r.code <- run(ctx, append([]string{"bench"}, args...), strings.NewReader(""), &r.out, in)
		in.Close()
	}()
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "lorasim: page at "); ok {
			r.page = address
			go io.Copy(io.Discard, stderr) // nobody reads the rest
			return r
		}
	}
	t.Fatalf("no address; exit code %d", <-r.code)
	return nil
}

// get fetches data of the page.
func (r *uiRun) get(t *testing.T, path string) (st fleetpage.State) {
	t.Helper()
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a connection of its own
	resp, err := fresh.Get(r.page + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
	}
	return st
}

// await asks for the result, as a page does, and returns once the server has accepted the connection.
func (r *uiRun) await(t *testing.T) <-chan fleetpage.State {
	t.Helper()
	result, sent := make(chan fleetpage.State, 1), make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.page+"result", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(result)
		own := &http.Transport{DisableKeepAlives: true} // a connection of its own
		resp, err := own.RoundTrip(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		var st fleetpage.State
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			t.Error(err)
		}
		result <- st
	}()
	<-sent
	r.get(t, "state") // accepted after the connection for the result
	return result
}

// TestBenchUI: during a run the page shows the workers. A page that waits for the result gets what the terminal gets,
// and the command ends although the page is connected.
func TestBenchUI(t *testing.T) {
	worker := newHeldWorker(t, "lora0", "lora1")
	r := startUI(t, worker.URL, "--num-adapters", "2", "--num-prompts", "6", "--request-rate", "inf",
		"--worker-time-scale", "20", "--ui", "--disable-ignore-eos=false")
	for st := r.get(t, "state"); !st.Started || st.Workers[0].Running < 1; st = r.get(t, "state") {
		if st.Run == nil || st.Run.Ended || st.Changes {
			t.Fatalf("%+v", st.Run)
		}
		time.Sleep(time.Millisecond) // the run has a clock of its own
	}
	result := r.await(t)
	close(worker.release)
	st := <-result
	if code := <-r.code; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if st.Run == nil || !st.Run.Ended || st.Run.Outcome != "The run has ended" || st.Run.Result != r.out.String() ||
		!strings.Contains(st.Run.Result, "Successful requests:                     6") || len(st.Workers) != 1 {
		t.Errorf("the page gets %+v, the terminal %s", st.Run, r.out.String())
	}
	if _, err := http.Get(r.page); err == nil {
		t.Error("the page is served after the end of the command")
	}
}

// TestBenchUIInterrupted: an interrupt ends the run, and the page shows what there is.
func TestBenchUIInterrupted(t *testing.T) {
	worker := newHeldWorker(t, "lora0")
	r := startUI(t, worker.URL, "--num-adapters", "1", "--num-prompts", "5", "--request-rate", "inf", "--grace", "0s",
		"--ui-listen", "127.0.0.1:0")
	for st := r.get(t, "state"); !st.Started || st.Workers[0].Running < 1; st = r.get(t, "state") {
		time.Sleep(time.Millisecond) // the run has a clock of its own
	}
	result := r.await(t)
	r.stop()
	if st := <-result; st.Run == nil || st.Run.Outcome != "The run was interrupted" || st.Run.Result == "" {
		t.Errorf("%+v", st.Run)
	}
	if code := <-r.code; code == exitOK {
		t.Error("an interrupted run ends with success")
	}
}

// TestBenchUIRefuses: other hosts reach the page with a key only, and wrong flags are errors before the run.
func TestBenchUIRefuses(t *testing.T) {
	keys := testutil.File(t, "k", "b\n")
	for says, args := range map[string][]string{
		"give --ui-key-file FILE, or --ui-insecure": {"--ui-listen", "0.0.0.0:0"},
		"--ui-key-file FILE":                        {"--ui", "--ui-listen", "[::]:0"},
		"--ui-host":                                 {"--ui", "--ui-host", "http://x"},
		"--ui-key and --ui-key-file":                {"--ui", "--ui-key", "a", "--ui-key-file", keys},
		"missing port":                              {"--ui-listen", "localhost"},
	} {
		var stderr strings.Builder
		args = append([]string{"bench", "localhost:1"}, args...)
		code := run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr)
		if code == exitOK || !strings.Contains(stderr.String(), says) || strings.Contains(stderr.String(), "page at") {
			t.Errorf("%v: %d %s, expected %q", args, code, stderr.String(), says)
		}
	}
}
