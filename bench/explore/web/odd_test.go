package web_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"lorasim/bench/explore"
	"lorasim/internal/testbrowser"
)

// notNumbers finds attributes of pictures that are no numbers: the browser reports some of them, and draws none.
const notNumbers = `[...new Set([...document.querySelectorAll('svg, svg *')].flatMap(e => [...e.attributes].filter(a => /NaN|Infinity|undefined|null/.test(a.value)).map(a => e.tagName + ' ' + a.name + '=' + a.value.slice(0, 80))))].join(', ')`

// TestOddNumbers draws charts of numbers at the edge of what an axis shows: every picture has numbers alone.
func TestOddNumbers(t *testing.T) {
	q := explore.DefaultPreset().Query
	q.Settings["workload.num_prompts"], q.Seeds, q.SLO = "20", "1", ""
	b := open(t, testbrowser.Start(t), serve(t, q))
	b.settled()
	type spec struct {
		name, js string
		parts    string // what the picture has: lines, circles, bands
	}
	const head = `label: 'odd', snap: true, y: { label: 'y', log: LOG }, x: { label: 'x', log: LOG }`
	for _, s := range []spec{
		{"nothing", `{HEAD, lines: []}`, "0 circles, 0 bands, 0 marks"},
		{"a line without points", `{HEAD, lines: [{name: 'a', points: []}]}`, "0 circles, 0 bands, 0 marks"},
		{"one point", `{HEAD, lines: [{name: 'a', points: [[1, 1]]}]}`, "1 circles, 0 bands, 0 marks"},
		{"one point with an interval of no width", `{HEAD, lines: [{name: 'a', points: [[1, 1, 1, 1]]}]}`,
			"1 circles, 0 bands, 0 marks"},
		{"rounding alone", `{HEAD, lines: [{name: 'a', points: [[1e6, 3], [1e6 + 1.2e-10, 3 + 5e-16]]}]}`,
			"2 circles, 0 bands, 0 marks"},
		{"unknown values", `{HEAD, lines: [{name: 'a', points: [[1, null], [2, NaN], [3, 5, null, null]]}]}`,
			"1 circles, 0 bands, 0 marks"},
		{"a mark whose interval begins below 0",
			`{HEAD, lines: [{name: 'a', points: [[2, 1], [9, 2]]}], marks: [{x: 4, low: -3, high: 11, color: 'red'}]}`,
			"2 circles, 1 bands, 1 marks"},
		{"a mark at the edge, one outside, and one without an interval",
			`{HEAD, lines: [{name: 'a', points: [[2, 1], [9, 2]]}], marks: [{x: 9, low: 0, high: 0, color: 'red'}, {x: 20, low: 15, high: 25, color: 'red'}, {x: 3, color: 'red'}, {x: -1, low: -2, high: -0.5, color: 'red'}]}`,
			"2 circles, 2 bands, 2 marks"},
	} {
		for _, log := range []string{"false", "true"} {
			t.Run(s.name+", log "+log, func(t *testing.T) {
				odd := tab{t, b.ctx}
				odd.draw("chart.js", "lineChart", head, log, s.js)
				const parts = `(h => [h.querySelectorAll('circle').length + ' circles', h.querySelectorAll('.band').length + ' bands', h.querySelectorAll('path[stroke-dasharray="2 3"]').length + ' marks'].join(', '))(document.getElementById('odd-chart'))`
				if got := odd.eval(parts); got != s.parts {
					t.Errorf("%s, expected %s", got, s.parts)
				}
			})
		}
	}
	t.Run("0 and below on a log axis are no points", func(t *testing.T) {
		odd := tab{t, b.ctx}
		odd.draw("chart.js", "lineChart", head, "true",
			`{HEAD, rules: [{y: 0, text: 'none'}], lines: [{name: 'a', points: [[0, 1], [-1, 2], [1, 0], [2, 3, -4, 9], [4, 5, 0, 7]]}]}`)
		if got := odd.eval(`document.querySelectorAll('#odd-chart circle').length`); got != "2" {
			t.Errorf("%s points, expected 2", got)
		}
	})
	for name, values := range map[string]string{
		"no bars": "", "bars of nothing": "[0, 0], [null, 0]", "one bar": "[3, 0]",
	} {
		t.Run(name, func(t *testing.T) {
			tab{t, b.ctx}.draw("bars.js", "barChart", "", "", `{label: 'odd', x: {label: 'x'}, parts: [{name: 'p', color: 'red'}, {name: 'q', color: 'blue'}], bars: [`+
				values+`].map((values, i) => ({name: 'b' + i, values}))}`)
		})
	}
}

// draw draws a figure of a module into a box of its own.
func (b tab) draw(module, function, head, log, spec string) {
	b.t.Helper()
	text, _ := json.Marshal([]string{module, function, head, log, spec})
	b.eval(`(async ([module, name, head, log, spec]) => {
		document.getElementById('odd')?.remove();
		const box = document.createElement('div'), host = document.createElement('div');
		box.id = 'odd';
		host.id = 'odd-chart';
		box.append(host);
		document.getElementById('main').append(box);
		const make = Function('return (' + spec.replaceAll('HEAD', head).replaceAll('LOG', log) + ')');
		try {
			(await import('./' + module))[name](host, make);
			host.dataset.drawn = 'drawn';
		} catch (err) {
			host.dataset.drawn = err.message;
		}
	})(` + string(text) + `) && ''`)
	b.wait(`Boolean(document.getElementById('odd-chart')?.dataset.drawn)`)
	if got := b.eval(`document.getElementById('odd-chart').dataset.drawn`); got != "drawn" {
		b.t.Errorf("not drawn: %s", got)
	}
	if bad := b.eval(notNumbers); bad != "" {
		b.t.Errorf("no numbers: %s", bad)
	}
	// the cursor goes over all of it
	b.eval(`(h => { h.focus(); for (const key of ['ArrowRight', 'ArrowRight', 'End', 'ArrowDown', 'ArrowDown', 'Home']) h.dispatchEvent(new KeyboardEvent('keydown', { key })); h.blur(); })(document.getElementById('odd-chart'))`)
	if bad := b.eval(notNumbers); bad != "" {
		b.t.Errorf("no numbers under the cursor: %s", bad)
	}
}

// TestOddScenarios shows scenarios whose results have little or nothing to show.
func TestOddScenarios(t *testing.T) {
	b := open(t, testbrowser.Start(t), serve(t, explore.DefaultPreset().Query))
	b.settled() // its answer counts no more
	for name, change := range map[string]func(q *explore.Query){
		"an interval of the break that begins below 0": func(q *explore.Query) {
			q.Settings["workload.ramp_up_strategy"] = "exponential"
			q.Settings["workload.ramp_up_start_rps"], q.Settings["workload.ramp_up_end_rps"] = "2", "20"
		},
		"one request":       func(q *explore.Query) { q.Settings["workload.num_prompts"] = "1" },
		"all at once":       func(q *explore.Query) { q.Settings["workload.request_rate"] = "inf" },
		"no request fits":   func(q *explore.Query) { q.Settings["cluster.engine.context_length"] = "10" },
		"one output token":  func(q *explore.Query) { q.Settings["workload.lengths"] = "constant:1,1" },
		"no attainment":     func(q *explore.Query) { q.SLO = "ttft:0.001" },
		"attained anywhere": func(q *explore.Query) { q.SLO = "ttft:1e9" },
		"hardly any load":   func(q *explore.Query) { q.Settings["workload.request_rate"] = "1e-3" },
	} {
		t.Run(name, func(t *testing.T) {
			odd := tab{t, b.ctx}
			q := explore.DefaultPreset().Query
			q.Settings["workload.num_prompts"], q.Seeds = "50", "2"
			change(&q)
			before := odd.eval(answers)
			link := url.Values{"policy": q.Policies, "slo": {q.SLO}, "seeds": {q.Seeds}}
			for key, value := range q.Settings {
				link.Set(key, value)
			}
			odd.eval(`(location.hash = '` + link.Encode() + `')`)
			odd.wait(answers + ` > ` + before)
			status := odd.eval(`document.getElementById('status').textContent`)
			if !strings.HasPrefix(status, "first results") {
				t.Errorf("status %q", status)
			}
			if bad := odd.eval(notNumbers); bad != "" {
				t.Errorf("no numbers: %s", bad)
			}
		})
	}
}
