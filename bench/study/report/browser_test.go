package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lorasim/internal/testbrowser"
)

// The page in a real browser: it loads nothing, reports no error, every figure
// has data, and what is to be touched responds.
func TestPageInBrowser(t *testing.T) {
	ctx := testbrowser.Start(t)
	url := "file://" + writePage(t)
	testbrowser.Watch(t, ctx, url)
	run := func(what string, actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	eval := func(js string) string {
		t.Helper()
		return testbrowser.Eval(t, ctx, js)
	}
	run("open", chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#blocks")))
	testbrowser.Look(t, ctx, "light")

	for _, id := range []string{"sweep-chart", "cdf-chart", "adapters-chart", "workers-total", "placement-chart"} {
		if n := eval(fmt.Sprintf("+document.getElementById(%q).dataset.points", id)); n == "0" || n == "<nil>" {
			t.Errorf("figure %s has no data: %s", id, n)
		}
	}
	for what, js := range map[string]string{
		"lines of the distribution": `document.querySelectorAll('#cdf-chart svg path[fill=none][stroke^="var(--c"]').length`,
		"charts of single workers":  `[...document.querySelectorAll('#workers-grid .chart')].filter(c => +c.dataset.points > 0).length`,
		"rows of the plans":         `document.querySelectorAll('#plans-table tbody tr').length`,
		"rows of the overview":      `document.querySelectorAll('#overview tbody tr').length`,
		"states of the runs":        `[...document.querySelectorAll('#overview-states td')].filter(c => /steady|transient|OVERLOADED/.test(c.textContent)).length`,
		"marks of unsteady points":  `document.querySelectorAll('#sweep-chart svg path.transient, #sweep-chart svg path.overloaded').length`,
		"result blocks":             `document.querySelectorAll('#blocks pre').length`,
		"bands of the sweep":        `document.querySelectorAll('#sweep-chart svg path[opacity="0.18"]').length`,
		"coloured pixels of a canvas": `(() => { const c = document.querySelector('#placement-chart canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
			const seen = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size - 2; })()`,
	} {
		if n := eval(js); n == "0" || strings.HasPrefix(n, "-") {
			t.Errorf("%s: %s", what, n)
		}
	}

	if title := eval(`document.querySelector('#overview h2').textContent`); title != "Runs at migration_interval = 5" {
		t.Errorf("the runs are at %q", title)
	}
	if note := eval(`document.getElementById('placement-note').textContent`); note != "" {
		t.Errorf("the first picture of the placement tells nothing: %s", note)
	}

	// what is to be touched responds
	lines := `document.querySelectorAll('#cdf-chart svg path[fill=none][stroke^="var(--c"]').length`
	before := eval(lines)
	run("hide a run", chromedp.Click(chromedp.CSS("#cdf .legend button")))
	if after := eval(lines); after == before {
		t.Errorf("a run is still shown after a click on its name: %s lines", after)
	}
	run("show it again", chromedp.Click(chromedp.CSS("#cdf .legend button")))
	if after := eval(lines); after != before {
		t.Errorf("a run does not come back: %s of %s lines", after, before)
	}
	label := `document.querySelector('#cdf-chart').getAttribute('aria-label')`
	before = eval(label)
	run("other latency", chromedp.SetValue(chromedp.CSS("#cdf select"), "ttft"),
		chromedp.Evaluate[chromedp.Void](`document.querySelector('#cdf select').dispatchEvent(new Event('change'))`))
	if after := eval(label); after == before || !strings.Contains(after, "first token") {
		t.Errorf("the choice of a latency changes nothing: %s", after)
	}
	for _, chart := range []string{
		"#cdf-chart", "#sweep-chart", "#placement-chart", "#adapters-chart", "#workers-total",
	} {
		run("cursor", chromedp.Focus(chromedp.CSS(chart)),
			chromedp.SendKeys(chromedp.CSS(chart), kb.ArrowRight+kb.ArrowRight+kb.ArrowRight))
		tip := fmt.Sprintf(`(t => t.hidden ? '' : t.innerText)(document.querySelector('%s .tip'))`, chart)
		if text := eval(tip); text == "" {
			t.Errorf("%s: the arrow keys show nothing", chart)
		}
		if text := eval(fmt.Sprintf(`document.querySelector('%s [aria-live]').textContent`, chart)); text == "" {
			t.Errorf("%s: nothing is read out", chart)
		}
		run("escape", chromedp.SendKeys(chromedp.CSS(chart), kb.Escape))
		if hidden := eval(fmt.Sprintf(`document.querySelector('%s .tip').hidden`, chart)); hidden != "true" {
			t.Errorf("%s: escape does not hide the cursor", chart)
		}
	}
	// the same numbers as a table
	run("table", chromedp.Click(chromedp.CSS("#cdf-chart + .as-table summary")),
		chromedp.WaitVisible(chromedp.CSS("#cdf-chart + .as-table tbody tr")))
	if n := eval(`document.querySelectorAll('#cdf-chart + .as-table tbody tr').length`); n != "40" {
		t.Errorf("the table of the distribution has %s rows", n)
	}
	run("all plans",
		chromedp.Evaluate[chromedp.Void](`window.n = document.querySelectorAll('#plans-table tbody tr').length`),
		chromedp.Click(chromedp.CSS("#plans input[type=checkbox]")))
	if eval(`document.querySelectorAll('#plans-table tbody tr').length >= window.n`) != "true" {
		t.Error("showing all plans shows fewer")
	}
	background := `getComputedStyle(document.body).backgroundColor`
	before = eval(background)
	run("theme", chromedp.Click(chromedp.CSS("#theme")))
	if after := eval(background); after == before {
		t.Error("the theme does not change")
	}
	testbrowser.Look(t, ctx, "dark")

	// no column is cut, whatever the width: a table that does not fit stacks its cells
	for _, width := range []int64{1920, 1280, 420} {
		run("resize", chromedp.EmulateViewport(width, 900), chromedp.Navigate(url),
			chromedp.WaitVisible(chromedp.CSS("#blocks")))
		for _, table := range []string{"overview-table", "plans-table"} {
			cut := eval(
				fmt.Sprintf(
					`(t => { const right = t.closest('section').getBoundingClientRect().right; const cells = [...t.querySelectorAll('th, td')];
				return cells.length < 8 ? 'empty' : cells.filter(c => c.getBoundingClientRect().right > right || c.scrollWidth > c.clientWidth + 1).map(c => c.textContent).slice(0, 3).join('; '); })(document.getElementById(%q))`, table))
			if cut != "" {
				t.Errorf("%s at %d px: cut: %s", table, width, cut)
			}
		}
		testbrowser.Look(t, ctx, fmt.Sprintf("width-%d", width))
	}
	if stacked := eval(`document.getElementById('plans-table').classList.contains('stacked')`); stacked != "true" {
		t.Error("eight columns side by side on 420 px")
	}
	// units, and an axis from the data
	labels := eval(
		`[...document.querySelectorAll('#sweep-chart .label, #workers-total .label, #plans-table thead th')].map(e => e.textContent).join('|')`)
	for _, want := range []string{
		"migration_interval (s)", "Mean E2E Latency (ms)", "requests on all workers", "Gap (%)", "Solved in (s)",
	} {
		if !strings.Contains(labels, want) {
			t.Errorf("no %q among %s", want, labels)
		}
	}
	if eval(`document.querySelector('#sweep-chart svg text[text-anchor=end]').textContent`) == "0" {
		t.Error("the axis begins at 0, far from the data")
	}

	// a telephone: nothing is wider than the screen
	run("phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Navigate(url),
		chromedp.WaitVisible(chromedp.CSS("#blocks")))
	const outside = `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre') && !e.closest('.skip')).map(e => e.tagName + '#' + e.id + '.' + e.className).slice(0, 5).join(' ')`
	if wide := eval(outside); wide != "" {
		t.Errorf("wider than a telephone: %s", wide)
	}
	testbrowser.Look(t, ctx, "phone")
}

// Everything that can be focused has a name, and pictures have a description.
func TestPageIsAccessible(t *testing.T) {
	ctx := testbrowser.Start(t)
	err := chromedp.Do(ctx, chromedp.Navigate("file://"+writePage(t)), chromedp.WaitVisible(chromedp.CSS("#blocks")))
	if err != nil {
		t.Fatal(err)
	}
	nameless, err := chromedp.Run(ctx,
		chromedp.Evaluate[string](
			`[...document.querySelectorAll('button, select, input, a, [role=img], [role=region]')].filter(e =>
		!(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length && e.labels[0].textContent.trim()))).map(e => e.outerHTML.slice(0, 80)).join('; ')`))
	if err != nil {
		t.Fatal(err)
	}
	if nameless != "" {
		t.Errorf("without a name: %s", nameless)
	}
}
