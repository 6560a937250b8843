package fleetpage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/fleetpage"
	"lorasim/internal/testbrowser"
)

// tab is a page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (b tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b tab) eval(js string) string {
	b.t.Helper()
	return testbrowser.Eval(b.t, b.ctx, js)
}

// wait waits until an expression holds.
func (b tab) wait(js string) {
	b.t.Helper()
	testbrowser.Wait(b.t, b.ctx, js, `document.getElementById('status').textContent`,
		`document.getElementById('run-words').textContent`)
}

// open opens a page. Errors in it, and requests for other addresses, are errors of the test.
func open(t *testing.T, ctx context.Context, address string) tab {
	t.Helper()
	testbrowser.Watch(t, ctx, address)
	b := tab{t, ctx}
	b.do(chromedp.Navigate(address))
	return b
}

// scenes serves the page with states that a test makes up, and returns its address.
func scenes(t *testing.T, state *atomic.Pointer[fleetpage.State]) string {
	t.Helper()
	mux := http.NewServeMux()
	fleetpage.New(nil, true).Handle(mux, "/")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/state" {
			mux.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(state.Load())
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/"
}

// scene makes up a fleet: workers that hold some of the adapters, requests, latencies and events.
func scene(workers, adapters, events int) *fleetpage.State {
	rng := rand.New(rand.NewPCG(1, uint64(workers)))
	now := time.Date(2026, 11, 23, 14, 30, 0, 0, time.UTC)
	s := &fleetpage.State{Started: true, At: now, Changes: true, Speed: 1, Events: []fleet.Event{}}
	s.Snapshot = fleet.Snapshot{Policy: "plan-and-route:interval=30,margin=0.05", Adapters: []string{},
		Workers: []fleet.WorkerHolds{}, Requests: []fleet.Drawn{}}
	for a := range adapters {
		s.Adapters = append(s.Adapters, fmt.Sprintf("customer-%03d-r%d", a, 8<<(a%4)))
	}
	for w := range workers {
		h := fleet.WorkerHolds{Slot: []int32{}, Host: []int32{}, Loading: []int32{}}
		h.WorkerState = fleet.WorkerState{Worker: w, URL: fmt.Sprintf("http://gpu%d.inference.example.com:30000", w),
			Up: true, KVUsed: rng.Int64N(90000)}
		h.Limits = fleet.Limits{MaxRunning: 64, Slots: 8, KVCapacity: 131072}
		h.Running, h.Queued = rng.IntN(70), rng.IntN(20)*rng.IntN(5)
		for i, a := range rng.Perm(adapters)[:min(adapters, 9+rng.IntN(90))] {
			switch {
			case i < 8:
				h.Slot = append(h.Slot, int32(a))
			case i == 8:
				h.Loading = append(h.Loading, int32(a))
			default:
				h.Host = append(h.Host, int32(a))
			}
		}
		for i := range min(h.Running, 60) + min(h.Queued, 60) {
			s.Requests = append(s.Requests, fleet.Drawn{ID: int64(1000*w + i), Worker: w,
				Adapter: int32(rng.IntN(adapters+1) - 1), Prompt: 200, Running: i < min(h.Running, 60)})
		}
		s.Workers = append(s.Workers, h)
		l := fleet.WorkerLatency{Worker: w, Requests: 40 + rng.IntN(40), Since: 31}
		l.TTFT, l.TPOT, l.E2E = latency(rng, 0.2), latency(rng, 0.02), latency(rng, 4)
		s.Latencies = append(s.Latencies, l)
	}
	kinds := []fleet.EventKind{fleet.EventPlan, fleet.EventLoad, fleet.EventUnload, fleet.EventMove, fleet.EventDrain,
		fleet.EventEjected, fleet.EventReturned, fleet.EventDropped}
	for i := range events {
		at := now.Add(time.Duration(i-events) * time.Second)
		e := fleet.Event{ID: int64(i + 1), At: at, Kind: kinds[i%len(kinds)]}
		e.Text = "customer-017-r16 loaded in 12.3 ms"
		if e.Kind == fleet.EventPlan {
			e.Text = "customer-017-r16 is popular on worker 1; loads customer-017-r16 on worker 0; 3 requests to move"
		}
		if workers > 0 {
			e.Workers = []int{rng.IntN(workers)}
		}
		s.Events = append(s.Events, e)
	}
	return s
}

func latency(rng *rand.Rand, around float64) *fleet.Percentiles {
	f := around * (0.8 + 0.4*rng.Float64())
	return &fleet.Percentiles{P50: f, P90: 2.2 * f, P99: 5 * f}
}

// ejectedScene has a worker that is ejected, one that is down, one on trial, and one that drains.
func ejectedScene() *fleetpage.State {
	s := scene(4, 12, 20)
	w := s.Workers
	w[0].Ejected, w[0].Reason, w[0].EjectedFor = true, fleet.ConsecutiveFailures, 7.2
	w[0].Ejections = map[fleet.Reason]int64{fleet.ConsecutiveFailures: 2, fleet.FailedTrial: 1}
	w[1].Up, w[1].Slot, w[1].Host, w[1].Loading = false, []int32{}, []int32{}, []int32{}
	w[2].Trial, w[2].Reason, w[2].EjectedAdapters = true, fleet.Stalled, []string{"customer-003-r64"}
	w[3].Draining, w[3].Deferred, w[3].Pending = true, 2, 1
	return s
}

// endedScene is the last state of a benchmark.
func endedScene() *fleetpage.State {
	s := scene(2, 12, 12)
	s.Changes = false
	s.Run = &fleetpage.Run{Done: 2000, Requests: 2000, Now: 250.31, Ended: true, Outcome: "The run has ended",
		Result: "============ Serving Benchmark Result ============\nSuccessful requests:                     2000      \n"}
	return s
}

// TestLooks: nothing is wider than the screen, and every text has the contrast of WCAG AA, from a telephone to a wide
// screen, in both themes, for small and large fleets and those in trouble. $LORASIM_SCREENSHOTS keeps the pictures.
func TestLooks(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	state.Store(scene(2, 12, 0))
	address := scenes(t, &state)
	ctx := testbrowser.Start(t)
	before := scene(2, 12, 0) // the first plan
	before.Latencies = nil
	for _, s := range []struct {
		name  string
		state *fleetpage.State
	}{{"2", scene(2, 12, 30)}, {"8", scene(8, 200, 60)}, {"32", scene(32, 200, 300)}, {"ejected", ejectedScene()},
		{"empty", scene(0, 0, 0)}, {"before", before}, {"ended", endedScene()}} {
		state.Store(s.state)
		b := open(t, ctx, address)
		b.wait(`document.getElementById('summary').textContent !== ''`)
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{390, 1280, 1920} {
				b.do(chromedp.EmulateViewport(width, 900))
				b.eval(fmt.Sprintf(`(t => { if (document.documentElement.dataset.theme !== t) { document.documentElement.dataset.theme = t; } })(%q)`, theme))
				b.eval(`(delete document.body.dataset.drawn,
					requestAnimationFrame(() => requestAnimationFrame(() => document.body.dataset.drawn = 1)))`)
				b.wait(`document.body.dataset.drawn === '1' && document.getAnimations().length === 0`)
				const outside = `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre, .scroll, .skip, .sr, .unseen, svg')).map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 5).join(' ')`
				if wide := b.eval(outside); wide != "" {
					t.Errorf("%s: wider than %d px: %s", s.name, width, wide)
				}
				if n := testbrowser.Contrast(t, ctx); n < 10 {
					t.Errorf("%s: %d texts, expected dozens", s.name, n)
				}
				testbrowser.Look(t, ctx, fmt.Sprintf("fleet-%s-%d-%s", s.name, width, theme))
			}
		}
	}
}

// TestReducedMotion: without a wish for less motion requests fly to their new worker; with it nothing moves.
func TestReducedMotion(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	first, second := scene(3, 6, 0), scene(3, 6, 0)
	for i := range second.Requests {
		second.Requests[i].Worker = (second.Requests[i].Worker + 1) % 3
	}
	ctx := testbrowser.Start(t)
	address := scenes(t, &state)
	for wish, flies := range map[string]bool{"no-preference": true, "reduce": false} {
		state.Store(first)
		b := open(t, ctx, address)
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: wish}}})
			return err
		}))
		b.wait(`document.querySelectorAll('#columns .dot').length > 0`)
		b.eval(`(window.flown = 0, window.animate = Element.prototype.animate,
			Element.prototype.animate = function (...a) { window.flown++; return window.animate.apply(this, a); })`)
		state.Store(second)
		id := second.Requests[0].ID
		b.wait(fmt.Sprintf(`document.querySelector('[data-worker="1"] [data-request="%d"]') !== null`, id))
		if got := b.eval(`window.flown`) != "0"; got != flies {
			t.Errorf("prefers-reduced-motion: %s: %s animations", wish, b.eval(`window.flown`))
		}
	}
}

// TestEventFilters: the table and the time line show the events of the chosen worker and kind.
func TestEventFilters(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	s := scene(3, 6, 90)
	state.Store(s)
	b := open(t, testbrowser.Start(t), scenes(t, &state))
	b.wait(`document.querySelectorAll('#event-table tbody tr').length === 40`)
	choose := func(label, value string) {
		b.eval(fmt.Sprintf(`(s => { s.value = %q; s.dispatchEvent(new Event('change')); })([...document.querySelectorAll('#events label')].find(l => l.textContent.startsWith(%q)).querySelector('select'))`,
			value, label))
	}
	rows := func() string { return b.eval(`document.querySelectorAll('#event-table tbody tr').length`) }
	b.eval(`[...document.querySelectorAll('#events button')].find(b => b.textContent === 'Show all 90 events').click()`)
	if n := rows(); n != "90" {
		t.Errorf("%s rows of all events, expected 90", n)
	}
	choose("Worker", "1")
	want := 0
	for _, e := range s.Events {
		if len(e.Workers) == 0 || e.Workers[0] == 1 {
			want++
		}
	}
	if n := rows(); n != fmt.Sprint(want) {
		t.Errorf("%s rows on worker 1, expected %d", n, want)
	}
	choose("Kind", "1")
	want = 0
	for _, e := range s.Events {
		if len(e.Workers) > 0 && e.Workers[0] == 1 && (e.Kind == fleet.EventEjected || e.Kind == fleet.EventReturned) {
			want++
		}
	}
	if n, points := rows(), b.eval(`document.getElementById('event-chart').dataset.points`); n != fmt.Sprint(want) ||
		points != n {
		t.Errorf("%s rows and %s points of ejections on worker 1, expected %d", n, points, want)
	}
}

// TestTimeLine: the time line has round times of day around its events, also where all events have the same time.
func TestTimeLine(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	s := scene(3, 6, 4)
	for i := range s.Events {
		s.Events[i].At = s.At
	}
	state.Store(s)
	b := open(t, testbrowser.Start(t), scenes(t, &state))
	const labels = `[...document.querySelectorAll('#event-chart svg text')].map(e => e.textContent).filter(t => /:/.test(t)).join(' ')`
	b.wait(`document.querySelectorAll('#event-table tbody tr').length === 4`)
	if got := b.eval(labels); !regexp.MustCompile(`^\d+:\d\d:00 .*\d+:\d\d:10$`).MatchString(got) {
		t.Errorf("events at one time: the axis has %q, expected times within ten seconds", got)
	}
}

// TestRestart: the IDs of events of a restarted server begin again; the page shows them, and the old ones no more.
func TestRestart(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	s := scene(2, 6, 30)
	s.Instance = "first"
	state.Store(s)
	b := open(t, testbrowser.Start(t), scenes(t, &state))
	b.wait(`document.querySelectorAll('#event-table tbody tr').length === 30`)
	s = scene(2, 6, 3)
	s.Instance = "second"
	state.Store(s)
	b.wait(`document.querySelectorAll('#event-table tbody tr').length === 3`)
}

// TestKeyboard: all controls can be reached and have names, changes keep the focus, and numbers have units.
func TestKeyboard(t *testing.T) {
	var state atomic.Pointer[fleetpage.State]
	state.Store(scene(3, 6, 10))
	b := open(t, testbrowser.Start(t), scenes(t, &state))
	b.wait(`document.querySelectorAll('#columns .worker button').length === 9`)
	b.eval(`document.querySelector('button[aria-label="Load worker 1"]').focus()`)
	next := scene(3, 6, 10)
	next.Workers[1].Draining, next.Workers[1].Running = true, 1
	state.Store(next)
	b.wait(`document.querySelector('button[aria-label="Resume worker 1"]') !== null`)
	if label := b.eval(`document.activeElement.getAttribute('aria-label')`); label != "Load worker 1" {
		t.Errorf("a new state moves the focus to %q", label)
	}
	if nameless := b.eval(`[...document.querySelectorAll('input, select, button, summary, a, [tabindex="0"]')].filter(e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML.slice(0, 80)).join(' ')`); nameless != "" {
		t.Errorf("without a name: %s", nameless)
	}
	bare := b.eval(`[...document.querySelectorAll('#columns .count, #columns .small:not(.url), #latency-table tbody td, #summary')].filter(e => /\d/.test(e.textContent) && !/[a-zA-Z%×]/.test(e.textContent.replace(/http\S+/, ''))).map(e => e.textContent).join('|')`)
	requests := b.eval(`[...document.querySelectorAll('#latency-table tbody td:nth-child(2)')].map(e => e.textContent).join('|')`)
	if bare != requests { // their column is headed Requests
		t.Errorf("numbers without a unit: %s; requests: %s", bare, requests)
	}
	b.eval(`document.activeElement.click()`)
	b.wait(`document.getElementById('ask').open`)
	testbrowser.Contrast(t, b.ctx)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(`!document.getElementById('ask').open`)
	if label := b.eval(`document.activeElement.getAttribute('aria-label')`); label != "Load worker 1" {
		t.Errorf("after the dialog the focus is on %q", label)
	}
	b.eval(`document.getElementById('latency-chart').focus()`)
	b.eval(`document.getElementById('latency-chart').dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))`)
	tip := b.eval(`document.querySelector('#latency-chart .tip').textContent`)
	if !strings.Contains(tip, "P50") || strings.Count(tip, " ms") < 2 {
		t.Errorf("the cursor on the latencies says %q", tip)
	}
}

// TestPageOfAnotherOrigin: a page of another origin, which even knows the secret path, can neither read, change, frame
// nor include anything.
func TestPageOfAnotherOrigin(t *testing.T) {
	s := fleetpage.NewServer(bearer.Keys{}, nil)
	s.End("The run has ended", "secret result")
	testbrowser.Attack(t, testbrowser.Start(t), testbrowser.Target{Page: serve(t, s), Data: "state", Change: "result",
		Script: "fleet.js", Style: "fleet.css"})
}
