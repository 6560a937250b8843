package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/bench/pages"
	"lorasim/bench/scenario"
	"lorasim/internal/testbrowser"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/tick"
	"lorasim/trace/settings"
)

const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Replay</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><link rel="stylesheet" href="style.css"><link rel="stylesheet" href="workers.css">
<main><section><h2>Replay</h2><div id="replay"></div></section></main>
<script type="module">
import {mountReplay} from "/replay.js";
window.view = mountReplay(document.getElementById("replay"), await (await fetch("/data")).json());
</script>`

// read tells where the page shows adapters and requests.
const read = `(() => {
  const of = (box, place, key) =>
    [...box.querySelectorAll('[data-place=' + place + '] > li')].map(e => +e.dataset[key]);
  const all = document.querySelector('.replay');
  return JSON.stringify({
    workers: [...all.querySelectorAll('.worker')].map(w => ({
      slots: of(w, 'slots', 'adapter'), host: of(w, 'host', 'adapter'),
      running: of(w, 'running', 'request'), queue: of(w, 'queue', 'request'), state: w.dataset.state,
    })),
    moving: of(all, 'moving', 'request'), held: of(all, 'held', 'request'),
    plan: +(all.querySelector('.plan').dataset.plan ?? -1), reason: all.querySelector('.reason')?.textContent ?? '',
    more: all.querySelectorAll('.more').length, wide: document.documentElement.scrollWidth,
  });
})()`

// shown is what the page shows.
type shown struct {
	Workers []struct {
		Slots, Host    []int32
		Running, Queue []int64
		State          string
	}
	Moving, Held []int64
	Plan         int
	Reason       string
	Wide         int
}

// browser opens the page of a replay in a headless Chromium, or skips the test where there is none.
func browser(t *testing.T, r *Replay) context.Context {
	t.Helper()
	ctx := testbrowser.Start(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(page))
	})
	mux.Handle("GET /", pages.Explorer.Handler())
	mux.HandleFunc("GET /data", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.JSON(w); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	testbrowser.Watch(t, ctx, server.URL)
	opened := chromedp.WaitVisible(chromedp.CSS(".replay .worker"))
	if err := chromedp.Do(ctx, chromedp.Navigate(server.URL), opened); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// look reads the page.
func look(t *testing.T, ctx context.Context) (s shown) {
	t.Helper()
	if err := json.Unmarshal([]byte(testbrowser.Eval(t, ctx, read)), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// expected is what the page is to show of a state.
func (r *recorded) expected(s *State) (e shown) {
	ids := func(list []int32) (ids []int64) {
		for _, n := range list[:min(len(list), 60)] {
			ids = append(ids, r.replay.Requests[n].ID)
		}
		return ids
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		slots, host := r.replay.Holds(s, i, router.GPU), r.replay.Holds(s, i, router.Host)
		for _, slot := range []bool{true, false} {
			for _, l := range w.Loading {
				switch {
				case l.Slot != slot || slices.Contains(slots, l.Adapter):
				case slot:
					slots = append(slots, l.Adapter)
				case !slices.Contains(host, l.Adapter):
					host = append(host, l.Adapter)
				}
			}
		}
		host = slices.DeleteFunc(host, func(a int32) bool { return slices.Contains(slots, a) })
		state := [...]string{"on", "draining", "off", "starting"}[w.Power]
		if w.Down {
			state = "down"
		}
		e.Workers = append(e.Workers, struct {
			Slots, Host    []int32
			Running, Queue []int64
			State          string
		}{slots, host, ids(w.Running), ids(w.Queue), state})
	}
	var moving []int32
	for _, m := range s.Moving {
		moving = append(moving, m.Request)
	}
	e.Moving, e.Held, e.Plan = ids(moving), ids(s.Held), s.Plans-1
	if e.Plan >= 0 {
		e.Reason = r.replay.Plans[e.Plan].Plan.Reason
	}
	return e
}

// At 100 random times the page shows adapters and requests where the run's records say.
func TestViewEqualsRun(t *testing.T) {
	for _, seed := range []uint64{1, 4} {
		rng := rand.New(rand.NewPCG(seed, 9))
		sc := random(t, rng)
		sc.Routing.RequestMigration = "copy"
		testutil.Set(t, &sc, "policy", "plan-and-route:interval=1")
		r := run(t, &sc, DefaultLimits())
		ctx := browser(t, r.replay)
		for range 100 {
			at := r.quiet(rng)
			s := r.replay.StateAt(at)
			testbrowser.Eval(t, ctx, fmt.Sprintf("view.seek(%s)", strconv.FormatFloat(at.Seconds(), 'f', 6, 64)))
			got := look(t, ctx)
			got.Wide = 0
			if d := cmp.Diff(r.expected(s), got, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("seed %d at %v s (-run +page):\n%s", seed, at.Seconds(), d)
			}
			if err := r.compare(s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// quiet draws a time, in whole microseconds, next to which nothing happens: the page has no finer times.
func (r *recorded) quiet(rng *rand.Rand) tick.Ticks {
	for {
		at := tick.Ticks(rng.Int64N(micros(r.replay.End))) * tick.Microsecond
		loud := func(t tick.Ticks) bool { return near(t, at, 2*tick.Microsecond) }
		if !slices.ContainsFunc(r.replay.events, func(e event) bool {
			return loud(e.at) || e.load != nil && (loud(e.load.From) || loud(e.load.To))
		}) {
			return at
		}
	}
}

// Keys, buttons and playing move the time; steps go from plan to plan.
func TestViewControls(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](300)
	sc.Workload.RequestRate = 12
	sc.Cluster.NumWorkers = settings.Some(3)
	testutil.Set(t, &sc, "policy", "plan-and-route:interval=2")
	r := run(t, &sc, DefaultLimits())
	if len(r.replay.Plans) < 2 {
		t.Fatalf("%d plans, expected several", len(r.replay.Plans))
	}
	ctx := browser(t, r.replay)
	press := func(key string) string {
		return fmt.Sprintf(`(document.querySelector('.replay').dispatchEvent(
			new KeyboardEvent('keydown', {key: %q, bubbles: true})), view.time())`, key)
	}
	number := func(js string) float64 {
		x, err := strconv.ParseFloat(testbrowser.Eval(t, ctx, js), 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for i, p := range r.replay.Plans[:2] {
		if at := number(press("n")); at < p.Applied-1e-5 || at > p.Applied+1e-5 {
			t.Errorf("plan %d at %v s, expected %v", i, at, p.Applied)
		}
		if s := look(t, ctx); s.Plan != i || s.Reason != p.Plan.Reason {
			t.Errorf("plan %d with the reason %q, expected plan %d, %q", s.Plan, s.Reason, i, p.Plan.Reason)
		}
	}
	if at, want := number(press("p")), r.replay.Plans[0].Applied; at > want+1e-5 {
		t.Errorf("back at %v s, expected %v", at, want)
	}
	if at := number(press("Home")); at != 0 {
		t.Errorf("Home leads to %v s", at)
	}
	if at, end := number(press("End")), number("view.end"); at != end {
		t.Errorf("End leads to %v s, expected %v", at, end)
	}
	if right := number(press("Home") + "+" + press("ArrowRight")); right <= 0 {
		t.Errorf("an arrow leads to %v s", right)
	}
	testbrowser.Eval(t, ctx, press(" "))
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](`view.time() > 1`, chromedp.WithPollingTimeout(time.Minute)))
	text := testbrowser.Eval(t, ctx, `(view.pause(), document.querySelector('.play').textContent)`)
	if text != "Play" || err != nil {
		t.Errorf("after playing: %q, %v", text, err)
	}
	const told = `document.querySelector('[aria-live]').textContent`
	_, err = chromedp.Run(ctx, chromedp.Poll[bool](told+`.startsWith('At ')`, chromedp.WithPollingTimeout(time.Minute)))
	if live := testbrowser.Eval(t, ctx, told); !strings.Contains(live, "Worker 2") ||
		err != nil {
		t.Errorf("screen readers are told %q, %v", live, err)
	}
	pictures(t, ctx, r.replay.Plans[1].Applied)
	if testbrowser.Eval(t, ctx, `(view(), document.getElementById('replay').childElementCount)`) != "0" {
		t.Error("the view does not go")
	}
}

// pictures checks that nothing is wider than the window, in three widths and both themes. The pictures are kept where
// LORASIM_SCREENSHOTS names a folder.
func pictures(t *testing.T, ctx context.Context, at float64) {
	for _, width := range []int64{390, 1280, 1920} {
		for _, theme := range []string{"light", "dark"} {
			media := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
				_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
				return err
			})
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), media); err != nil {
				t.Fatal(err)
			}
			testbrowser.Eval(t, ctx, fmt.Sprintf("view.seek(%v)", at))
			if s := look(t, ctx); int64(s.Wide) > width {
				t.Errorf("%d px: the page is %d px wide", width, s.Wide)
			}
			if dir := os.Getenv("LORASIM_SCREENSHOTS"); dir != "" {
				shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("replay-%d-%s.png", width, theme)), shot, 0o644)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
}
