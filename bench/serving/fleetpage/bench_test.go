package fleetpage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/fleetpage"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/internal/testbrowser"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/trace/settings"
)

const speed = 10 // of the workers

// held stops a response after its first tokens, until the test has seen the run.
type held struct {
	http.ResponseWriter
	seen <-chan struct{}
}

func (h held) Flush() {
	h.ResponseWriter.(http.Flusher).Flush()
	<-h.seen
}

// bench is a benchmark of three emulated workers that holds the page's server. Two requests of each worker, after the
// warm-up, run until the test has seen the run.
func bench(t *testing.T, s *fleetpage.Server, requests int, seen <-chan struct{}) {
	t.Helper()
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](int64(requests))
	sc.Workload.NumAdapters = settings.Some(12)
	sc.Workload.RequestRate = 6
	testutil.Set(t, &sc, "popularity", "zipf:1", "policy", "plan-and-route:interval=5")
	sc.Cluster.Engine.MaxLorasPerBatch = 4
	var urls []string
	var done atomic.Int64
	for range 3 {
		profiles, err := sc.Profiles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := *profiles[0]
		p.Engine.MaxLorasPerBatch = 4
		w, err := emulate.New(emulate.Config{Costs: p.Compile(), API: httpapi.SGLang, Speed: speed, Home: router.Disk})
		if err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/generate" && done.Load() > 0 && sent.Add(1) <= 2 {
				rw = held{rw, seen}
			}
			w.ServeHTTP(rw, r)
		}))
		t.Cleanup(func() { srv.Close(); w.Close() })
		urls = append(urls, srv.URL)
	}
	o := live.Options{Watch: s.Watch, Workers: fleet.Config{Speed: speed, Poll: 100 * time.Millisecond}}
	o.Workers.URLs, o.Workers.Client = urls, live.NewHTTPClient(&http.Transport{})
	o.Workers.Log = func(format string, args ...any) { t.Logf(format, args...) }
	o.Backend, o.Vocabulary, o.Grace, o.Idle = live.SGLang, 32000, time.Second, 10*time.Minute
	o.Progress = func(q live.Progress) {
		done.Store(int64(q.Done))
		s.Progress(q.Done, q.Failed, q.InFlight, q.Requests, q.Now)
	}
	res, st, err := live.Bench(t.Context(), &sc, o)
	if err != nil || st.Stopped {
		t.Fatalf("%+v, %v", st, err)
	}
	var text strings.Builder
	if err := res.WriteExtra(&text); err != nil {
		t.Fatal(err)
	}
	s.End("The run has ended", text.String())
}

// TestBenchPage follows a benchmark in a browser: before it begins, while requests run, and after its end. What the
// page shows at the end is the state of the fleet, and nothing on the page changes workers.
func TestBenchPage(t *testing.T) {
	ctx := testbrowser.Start(t)
	s := fleetpage.NewServer(bearer.Keys{}, nil)
	address := serve(t, s)
	b := open(t, ctx, address)
	b.wait(`document.getElementById('status').textContent === 'the run has not begun'`)
	if b.eval(`document.getElementById('workers').hidden`) != "true" {
		t.Error("workers are shown before there is a fleet")
	}
	const requests = 800
	ended, seen := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); bench(t, s, requests, seen) }()
	end := sync.OnceFunc(func() { close(seen) })
	t.Cleanup(end)
	b.wait(`document.querySelectorAll('#columns .worker').length === 3`)
	b.wait(`document.querySelectorAll('[data-place="running"] .dot').length > 0`)
	b.wait(`document.querySelectorAll('[data-place="slots"] .chip').length > 0`)
	b.wait(`Number(document.getElementById('run-bar').value) > 0`)
	b.wait(`document.querySelectorAll('#latency-table tbody tr').length === 3`)
	text := b.eval(`document.getElementById('run-words').textContent`)
	if !strings.Contains(text, "of 800 requests done") {
		t.Errorf("during the run: %q", text)
	}
	if n := b.eval(`document.querySelectorAll('#columns button').length`); n != "0" {
		t.Errorf("%s buttons offer changes during a benchmark", n)
	}
	testbrowser.Look(t, ctx, "bench-running")
	end()
	<-ended
	b.wait(`document.getElementById('run-title').textContent === 'Result'`)
	words := b.eval(`document.getElementById('run-words').textContent`)
	if !strings.HasPrefix(words, "The run has ended: 800 of 800 requests done, 0 failed") {
		t.Errorf("after the end: %q", words)
	}
	if text := b.eval(`document.getElementById('result').textContent`); !strings.Contains(text, "Adapters loaded") {
		t.Errorf("the result is %q", text)
	}
	_, text = ask(t, http.MethodGet, address+"state")
	var last fleetpage.State
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		t.Fatal(err)
	}
	if len(last.Requests) > 0 || len(last.Events) == 0 || len(last.Latencies) != 3 {
		t.Errorf("at the end: %d requests, %d events, latencies of %d workers", len(last.Requests), len(last.Events),
			len(last.Latencies))
	}
	for i, w := range last.Workers {
		shown := b.eval(fmt.Sprintf(`[...document.querySelectorAll('[data-worker="%d"] [data-place="slots"] .chip')].map(c => c.textContent).join()`, i))
		var names []string
		for _, a := range w.Slot {
			names = append(names, last.Adapters[a])
		}
		if want := strings.Join(names, ","); shown != want || len(names) == 0 {
			t.Errorf("worker %d: the page shows %s in slots, the fleet has %s", i, shown, want)
		}
		if l := last.Latencies[i]; l.Requests == 0 || l.TTFT == nil {
			t.Errorf("worker %d: %+v", i, l)
		}
	}
	events := b.eval(`(document.querySelector('#events button').click(), document.querySelectorAll('#event-table tbody tr').length)`)
	if events != fmt.Sprint(len(last.Events)) {
		t.Errorf("the page lists %s events, the fleet has %d", events, len(last.Events))
	}
	testbrowser.Look(t, ctx, "bench-ended")
}
