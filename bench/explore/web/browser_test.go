package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"lorasim/bench/explore"
	"lorasim/bench/explore/web"
	"lorasim/internal/testbrowser"
	"lorasim/scenarios"
)

// serve serves the page of a query, and returns its address.
func serve(t *testing.T, q explore.Query) string {
	t.Helper()
	presets, err := explore.Presets(scenarios.Files)
	if err != nil {
		t.Fatal(err)
	}
	page := web.New(web.Config{Explorer: explore.New(explore.Limits{}), Presets: presets, Query: q})
	srv := httptest.NewServer(page)
	t.Cleanup(srv.Close)
	return srv.URL + page.Path()
}

// tab is the page in a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (b tab) run(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b tab) eval(js string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+js+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return out
}

// wait waits until an expression holds.
func (b tab) wait(js string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); b.eval(js) != "true"; {
		if time.Now().After(deadline) {
			b.t.Fatalf("after a minute still not %s; status %q, faults %q", js,
				b.eval(`document.getElementById('status').textContent`),
				b.eval(`[...document.querySelectorAll('.fault')].map(e => e.textContent).join('|')`))
		}
		time.Sleep(10 * time.Millisecond) // the browser has no clock of ours
	}
}

// settled waits until all parts of the answer are there.
func (b tab) settled() {
	b.t.Helper()
	b.wait(`!document.body.dataset.busy && document.getElementById('status').textContent !== ''`)
}

// set types a value into a field.
func (b tab) set(key, value string) {
	b.t.Helper()
	text, _ := json.Marshal(value)
	b.eval(fmt.Sprintf(`(f => { f.value = %s; f.dispatchEvent(new Event(f.tagName === 'SELECT' ? 'change' : 'input')); })(document.getElementById('f-%s'))`,
		text, key))
	b.wait(`document.body.dataset.busy === 'true'`)
}

// open opens a page; errors in it, and requests for anything beside it, are errors of the test.
func open(t *testing.T, ctx context.Context, address string) tab {
	t.Helper()
	tr := &testbrowser.Trouble{}
	if err := tr.Watch(ctx, address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Report(t) })
	b := tab{t, ctx}
	b.run("open", chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#cards .card")))
	return b
}

// TestPageFollowsKnobs: results are there, follow the knobs, and give a way back.
func TestPageFollowsKnobs(t *testing.T) {
	ctx := testbrowser.Start(t)
	b := open(t, ctx, serve(t, explore.DefaultPreset().Query))
	b.settled()
	for _, id := range []string{"ttft-chart", "e2e-chart", "rate-chart", "waits-chart"} {
		if n := b.eval(fmt.Sprintf(`document.getElementById(%q).dataset.points`, id)); n == "0" || n == "undefined" {
			t.Errorf("%s has no points: %s", id, n)
		}
	}
	if n := b.eval(`document.querySelectorAll('#compare-table tbody tr').length`); n == "0" {
		t.Error("the comparison is empty")
	}
	if text := b.eval(`document.getElementById('breaks').textContent`); strings.Count(text, "within the SLO") != 3 {
		t.Errorf("the break of each policy: %q", text)
	}
	before := b.eval(`document.getElementById('cards').textContent`)
	b.set("workload.request_rate", "14")
	b.settled()
	if b.eval(`document.getElementById('cards').textContent`) == before {
		t.Error("another rate changes nothing")
	}
	for what, js := range map[string]string{
		"the link":     `location.hash`,
		"the YAML":     `document.getElementById('yaml').textContent`,
		"the commands": `document.getElementById('commands').textContent`,
	} {
		if text := b.eval(js); !strings.Contains(strings.NewReplacer("_", "-", "=", " ", ": ", " ").Replace(text),
			"request-rate 14") {
			t.Errorf("%s: %q", what, text)
		}
	}
	t.Logf("first results %s ms after the knob (2000 requests, 3 policies)", b.eval(`document.body.dataset.picture`))
	testbrowser.Look(t, ctx, "explore")
}
