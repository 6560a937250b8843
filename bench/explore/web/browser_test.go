package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"lorasim/bench/explore"
	"lorasim/bench/explore/web"
	"lorasim/internal/testbrowser"
	"lorasim/scenarios"
	"lorasim/trace"
)

// serve serves the page of a query, and returns its address.
func serve(t *testing.T, q explore.Query) string {
	t.Helper()
	presets, err := explore.Presets(scenarios.Files)
	if err != nil {
		t.Fatal(err)
	}
	page := web.New(web.Config{Explorer: explore.New(explore.Limits{}, trace.Files{}), Presets: presets, Query: q})
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
	return testbrowser.Eval(b.t, b.ctx, js)
}

// wait waits until an expression holds.
func (b tab) wait(js string) {
	b.t.Helper()
	testbrowser.Wait(b.t, b.ctx, js, `document.getElementById('status').textContent`, `location.hash`,
		`[...document.querySelectorAll('.fault:not(:empty)')].map(e => e.textContent).join('|')`)
}

// settled waits until all parts of the answer are there.
func (b tab) settled() {
	b.t.Helper()
	b.wait(`!document.body.dataset.busy && document.getElementById('status').textContent !== ''`)
}

const answers = `Number(document.body.dataset.answers || 0)`

// set types a value into a field, and waits for the whole answer.
func (b tab) set(key, value string) {
	b.t.Helper()
	text, _ := json.Marshal(value)
	before := b.eval(answers)
	b.eval(fmt.Sprintf(`(f => { f.value = %s; f.dispatchEvent(new Event(f.tagName === 'SELECT' ? 'change' : 'input')); })(document.getElementById('f-%s'))`,
		text, key))
	b.wait(answers + ` > ` + before)
}

// open opens a page; errors in it, and requests for anything beside it, are errors of the test.
func open(t *testing.T, ctx context.Context, address string) tab {
	t.Helper()
	testbrowser.Watch(t, ctx, address)
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
	const cards = `[...document.querySelectorAll('#cards .card')].map(c => c.textContent).join('|')`
	if text := b.eval(cards); strings.Count(text, "Requests within the SLO (TTFT ≤ 1000 ms, TPOT ≤ 50 ms)") != 3 ||
		strings.Count(text, " requests/s, mean of 5 seeds") != 3 {
		t.Errorf("the SLO, and the rate up to which each policy holds it: %q", text)
	}
	if text := b.eval(`document.getElementById('breaks').textContent`); strings.Contains(text, "within the SLO") {
		t.Errorf("a second answer beside the means over the seeds: %q", text)
	}
	rows := b.eval(`[...document.querySelectorAll('#breaks-table tbody tr')].map(r => r.textContent).join('|')`)
	if bands := b.eval(`document.querySelectorAll('#rate-chart .band').length`); bands != "3" ||
		strings.Count(rows, " to ") != 5 || !strings.Contains(rows, "baseline") {
		t.Errorf("intervals of the breaks: %s bands, table %q", bands, rows)
	}
	before := b.eval(`document.getElementById('cards').textContent`)
	b.set("workload.request_rate", "14")
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

// cutTexts finds texts of figures that leave the figure, overlap each other, or are crossed by a line or a point.
const cutTexts = `[...document.querySelectorAll('.chart > svg')].flatMap(s => {
	const box = s.getBoundingClientRect(), found = [], all = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
	const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
	const drawn = [...s.querySelectorAll('circle, path.overloaded, path.transient')].map(e => e.getBoundingClientRect());
	for (const l of s.querySelectorAll('path[stroke-linejoin]')) {
		const m = l.getScreenCTM();
		for (let at = 0; at <= l.getTotalLength(); at += 4) {
			const p = l.getPointAtLength(at).matrixTransform(m);
			drawn.push({ left: p.x - 2, right: p.x + 2, top: p.y - 2, bottom: p.y + 2 });
		}
	}
	all.forEach(([text, r], i) => {
		if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1) found.push('outside: ' + text);
		for (const [other, o] of all.slice(i + 1)) if (meet(r, o)) found.push(text + ' over ' + other);
		if (drawn.some(o => meet(r, o))) found.push('crossed: ' + text);
	});
	return found.map(f => s.parentElement.id + ' ' + f);
}).join(', ')`

// TestWidths: nothing is wider than the screen, from a telephone to a wide screen, in both themes.
func TestWidths(t *testing.T) {
	ctx := testbrowser.Start(t)
	b := open(t, ctx, serve(t, explore.DefaultPreset().Query))
	b.settled()
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 1280, 1920} {
			b.run("resize", chromedp.EmulateViewport(width, 900))
			b.eval(fmt.Sprintf(`document.documentElement.dataset.theme = %q`, theme))
			b.eval(`dispatchEvent(new Event('resize'))`)
			// tables take the form that fits in the frames after the event
			b.eval(`(delete document.body.dataset.drawn,
				requestAnimationFrame(() => requestAnimationFrame(() => document.body.dataset.drawn = 1)))`)
			b.wait(`document.body.dataset.drawn === '1'`)
			const outside = `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre') && !e.closest('.skip') && !e.closest('.sr')).map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 5).join(' ')`
			if wide := b.eval(outside); wide != "" {
				t.Errorf("wider than %d px: %s", width, wide)
			}
			if cut := b.eval(cutTexts); cut != "" {
				t.Errorf("at %d px texts are cut, or cross others: %s", width, cut)
			}
			testbrowser.Look(t, ctx, fmt.Sprintf("explore-%d-%s", width, theme))
		}
	}
}

// wrong are values that no setting of a kind takes, by its type; others are in wrongTexts.
var wrong = map[string]string{"int": "many", "float": "1e"}

// wrongTexts are those of settings that are texts. Settings that are not in it take any text.
var wrongTexts = map[string]string{
	"workload.lora_names": "a,a", "workload.file": "/nowhere.csv", "workload.trace_path": "/nowhere.csv",
	"cluster.profile": "gpu9000", "workload.trace_histogram": "a,b", "workload.trace_name": "",
}

// TestFaultsAreBesideFields types a wrong value into each field: its message appears beside it, and goes when the
// value is mended.
func TestFaultsAreBesideFields(t *testing.T) {
	ctx := testbrowser.Start(t)
	q := explore.DefaultPreset().Query
	q.Settings["workload.num_prompts"], q.Seeds, q.SLO = "100", "1", ""
	b := open(t, ctx, serve(t, q))
	b.settled()
	type field struct{ key, value string }
	fields := []field{{"policy.0", "fastest"}, {"policy.2", "static:x=1"}, {"slo", "soon"}, {"price", "cheap"},
		{"seeds", "0"}}
	for _, k := range explore.Knobs() {
		value, ok := wrong[k.Type]
		if text, known := wrongTexts[k.Key]; known {
			value, ok = text, text != ""
		} else if k.Type == "string" && k.Choices == nil {
			value, ok = "\u00a7:?", true
		}
		if ok && k.Choices == nil {
			fields = append(fields, field{k.Key, value})
		}
	}
	if len(fields) < 60 {
		t.Fatalf("%d fields", len(fields))
	}
	for _, f := range fields {
		id := "f-" + f.key
		before := b.eval(fmt.Sprintf(`document.getElementById(%q).value`, id))
		b.set(f.key, f.value)
		got := b.eval(fmt.Sprintf(`[document.getElementById('%s-fault').textContent, document.getElementById('%s').getAttribute('aria-invalid'), document.querySelectorAll('.knob .fault:not(:empty)').length].join('|')`, id, id))
		if parts := strings.Split(got, "|"); len(parts) < 3 || parts[0] == "" || parts[len(parts)-2] != "true" ||
			parts[len(parts)-1] != "1" {
			t.Errorf("%s = %q: %q", f.key, f.value, got)
		}
		b.set(f.key, before)
		if left := b.eval(`[...document.querySelectorAll('.fault:not(:empty)')].map(e => e.id + ': ' + e.textContent).join('|')`); left != "" {
			t.Fatalf("%s is mended, but: %s", f.key, left)
		}
	}
}

// TestLinkReproduces: another browser window with the link shows the same, and a preset replaces everything.
func TestLinkReproduces(t *testing.T) {
	ctx := testbrowser.Start(t)
	q := explore.DefaultPreset().Query
	q.Settings["workload.num_prompts"] = "300"
	address := serve(t, q)
	b := open(t, ctx, address)
	b.settled()
	b.set("workload.popularity", "zipf:1.3")
	b.set("slo", "ttft:300 attain:95%")
	b.set("policy.1", "affinity-spill:threshold=3")
	const shown = `JSON.stringify([document.getElementById('cards').textContent, document.getElementById('compare-table').textContent, document.getElementById('yaml').textContent, document.getElementById('breaks').textContent])`
	want, link := b.eval(shown), b.eval(`location.href`)
	b.run("leave", chromedp.Navigate("about:blank"), chromedp.Navigate(link),
		chromedp.WaitVisible(chromedp.CSS("#cards .card")))
	b.settled()
	if got := b.eval(shown); got != want {
		t.Errorf("the link shows %s\nexpected %s", got, want)
	}
	b.eval(`(s => { s.value = [...s.options].find(o => o.textContent === 'sessions').value; s.dispatchEvent(new Event('change')); })(document.getElementById('preset'))`)
	b.wait(`document.getElementById('yaml').textContent.includes('sessions: "zipf:m=2"')`)
	if got := b.eval(`document.getElementById('yaml').textContent`); strings.Contains(got, "zipf:1.3") {
		t.Errorf("a preset keeps settings: %s", got)
	}
}

// TestPicturesAndTables: each figure is a picture of its own and a table, and answers to the keyboard.
func TestPicturesAndTables(t *testing.T) {
	ctx := testbrowser.Start(t)
	q := explore.DefaultPreset().Query
	q.Settings["workload.num_prompts"] = "300"
	address := serve(t, q)
	b := open(t, ctx, address)
	b.settled()
	for _, id := range []string{"ttft-chart", "e2e-chart", "rate-chart", "waits-chart"} {
		b.eval(fmt.Sprintf(`import('./picture.js').then(async m => { const h = document.getElementById(%q); window.kept = [m.svgOf(h), (await m.pngOf(h)).size]; }) && ''`, id))
		b.wait(`Boolean(window.kept)`)
		got := b.eval(`(s => [new DOMParser().parseFromString(s, 'image/svg+xml').querySelector('parsererror') === null, s.includes('var(--'), s.includes('plan-and-route') || s.includes('own prefill step'), window.kept[1] > 5000].join())(window.kept[0])`)
		if got != "true,false,true,true" {
			t.Errorf("%s: well-formed, depends on the page, has a legend, PNG has a size: %s", id, got)
		}
		b.eval(`(delete window.kept)`)
		b.eval(fmt.Sprintf(`import('./picture.js').then(m => {
			const box = document.createElement('div');
			box.innerHTML = m.svgOf(document.getElementById('%s'));
			document.body.append(box);
			const title = box.querySelector('svg > text'), w = title.getBBox().width, all = +box.firstChild.getAttribute('width');
			window.kept = title.textContent + (w <= all ? ' fits' : ' has ' + w + ' of ' + all + ' px');
			box.remove();
		}) && ''`, id))
		b.wait(`Boolean(window.kept)`)
		wide := b.eval(`window.kept`)
		if !strings.HasSuffix(wide, " fits") {
			t.Errorf("the title of the picture: %s", wide)
		}
		if id == "rate-chart" && !strings.Contains(wide, "SLO (TTFT ≤ 1000 ms, TPOT ≤ 50 ms)") {
			t.Errorf("the picture does not name its SLO: %s", wide)
		}
		b.eval(`(delete window.kept)`)
		b.run("table", chromedp.Click(chromedp.CSS("#"+id+" + .as-table summary")),
			chromedp.WaitVisible(chromedp.CSS("#"+id+" + .as-table tbody tr")))
		head := b.eval(fmt.Sprintf(`[...document.querySelectorAll('#%s + .as-table th[scope=col]')].map(e => e.textContent).join('|')`, id))
		if !strings.Contains(head, "(ms)") && !strings.Contains(head, "(requests/s)") {
			t.Errorf("%s: no unit in the head of the table: %s", id, head)
		}
		b.eval(fmt.Sprintf(`(h => { h.focus(); h.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' })); })(document.getElementById(%q))`, id))
		if text := b.eval(fmt.Sprintf(`document.querySelector('#%s [aria-live]').textContent`, id)); text == "" {
			t.Errorf("%s: nothing is read out", id)
		}
	}
	nameless := b.eval(`[...document.querySelectorAll('input, select, button, summary, a')].filter(e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML.slice(0, 80)).join(' ')`)
	if nameless != "" {
		t.Errorf("without a name: %s", nameless)
	}
}

// TestPageOfAnotherOrigin: a page of another origin, which even knows the secret path, cannot read, start, frame or
// include anything.
func TestPageOfAnotherOrigin(t *testing.T) {
	testbrowser.Attack(t, testbrowser.Start(t), testbrowser.Target{Page: serve(t, explore.DefaultPreset().Query),
		Data: "api/start", Change: "api/run", Script: "explorer.js", Style: "explorer.css"})
}

// TestMyLog: a log that the user chooses is sent, and what it shows is its own requests.
func TestMyLog(t *testing.T) {
	ctx := testbrowser.Start(t)
	dir := t.TempDir()
	page := web.New(web.Config{Explorer: explore.New(explore.Limits{}, trace.Files{}),
		Query: explore.DefaultPreset().Query,
		Keep: func(name string, content io.Reader) (string, error) {
			data, err := io.ReadAll(content)
			if err != nil {
				return "", err
			}
			path := filepath.Join(dir, name)
			return path, os.WriteFile(path, data, 0o600)
		}})
	srv := httptest.NewServer(page)
	t.Cleanup(srv.Close)
	b := open(t, ctx, srv.URL+page.Path())
	b.settled()
	before := b.eval(answers)
	b.eval(`(input => {
		const rows = ['id,arrival_s,adapter,prompt_tokens,output_tokens'];
		for (let i = 0; i < 250; i++) rows.push([i, i / 5, i % 3, 200, 50].join());
		const files = new DataTransfer();
		files.items.add(new File([rows.join('\n') + '\n'], 'mine.csv'));
		input.files = files.files;
		input.dispatchEvent(new Event('change'));
	})(document.querySelector('input[type=file]'))`)
	b.wait(answers + ` > ` + before)
	for key, want := range map[string]string{"workload.num_prompts": "250", "workload.num_adapters": "3"} {
		if got := b.eval(fmt.Sprintf(`document.getElementById('f-%s').placeholder`, key)); got != want {
			t.Errorf("%s: %s, expected %s; faults %s", key, got, want,
				b.eval(`[...document.querySelectorAll('.fault:not(:empty)')].map(e => e.textContent).join('|')`))
		}
	}
	if got := b.eval(`document.getElementById('commands').textContent`); !strings.Contains(got, "--workload "+dir) {
		t.Errorf("the command lines: %s", got)
	}
}
