package gateway

import (
	"io"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"lorasim/bench/serving/bearer"
	"lorasim/internal/testbrowser"
)

// TestFleetPage: without the key the page shows nothing of the fleet. With it, workers and adapters are there; changes
// come after a confirmation, and not without one.
func TestFleetPage(t *testing.T) {
	answer := func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "{}") }
	s := startScriptedWith(t, 1, func(c *Config) { c.AdminKeys = bearer.New("secret") }, answer, answer)
	for path, want := range map[string]int{"/admin/": 200, "/admin/fleet.js": 200, "/admin/style.css": 200,
		"/admin/nothing.js": 401,
		"/admin/state":      401, "/admin/workers": 401, "/metrics": 401} {
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s without a key: status %d, expected %d", path, resp.StatusCode, want)
		}
	}
	ctx := testbrowser.Start(t)
	eval := func(js string) string {
		t.Helper()
		return testbrowser.Eval(t, ctx, js)
	}
	wait := func(js string) {
		t.Helper()
		testbrowser.Wait(t, ctx, js, `document.getElementById('status').textContent`)
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(s.URL+"/admin/")); err != nil {
		t.Fatal(err)
	}
	wait(`!document.getElementById('login').hidden`)
	if eval(`document.getElementById('workers').hidden`) != "true" {
		t.Error("workers are shown without a key")
	}
	eval(`(document.getElementById('key').value = 'secret', document.getElementById('enter').click())`)
	wait(`document.querySelectorAll('#columns .worker').length === 2`)

	if text := eval(`document.getElementById('status').textContent`); eval(`document.getElementById('login').hidden`) !=
		"true" {
		t.Errorf("the key is still asked for: %s", text)
	}

	const worker = `document.querySelectorAll('#columns .worker')`
	press := func(label, answer string) {
		t.Helper()
		eval(`document.querySelector('#columns button[aria-label="` + label + `"]').click()`)
		wait(`document.getElementById('ask').open`)
		eval(answer)
	}
	press("Drain worker 0", `document.getElementById('no').click()`)
	if s.fleet.Workers()[0].Draining {
		t.Error("worker 0 drains without a confirmation")
	}
	press("Drain worker 0", `document.getElementById('yes').click()`)
	wait(worker + `[0].querySelector('.state').textContent === 'draining'`)
	if w := s.fleet.Workers(); !w[0].Draining || w[1].Draining {
		t.Error("the page drains another worker than 0")
	}
	press("Load worker 1", `(document.getElementById('adapter').value = 'a', document.getElementById('yes').click())`)
	wait(worker + `[1].querySelector('.chip')?.textContent === 'a'`)
	if n := s.loads.Load(); n != 1 {
		t.Errorf("%d loads, expected 1", n)
	}
	press("Unload worker 1", `(document.getElementById('adapter').value = 'x', document.getElementById('yes').click())`)
	wait(`document.getElementById('outcome').textContent.includes(' unload on worker 1: ') &&
		!document.getElementById('outcome').textContent.endsWith('done')`)
	testbrowser.Look(t, ctx, "fleet")
}

// TestFleetPageOfAnotherOrigin: a page of another origin can neither read, change, frame nor include anything, though
// the listener needs no key.
func TestFleetPageOfAnotherOrigin(t *testing.T) {
	answer := func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "{}") }
	s := startScripted(t, 1, answer)
	testbrowser.Attack(t, testbrowser.Start(t), testbrowser.Target{Page: s.URL + "/admin/", Data: "state",
		Change: "drain", Script: "fleet.js", Style: "fleet.css"})
}
