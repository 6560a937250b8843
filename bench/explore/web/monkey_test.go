package web_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"lorasim/bench/explore"
	"lorasim/internal/testbrowser"
)

// monkeyTurns is the number of turns where LORASIM_MONKEY sets no time. It is a number of turns, so that the same knobs
// are turned on every machine.
const monkeyTurns = 200

// monkeyTime is how long the monkey turns knobs: LORASIM_MONKEY=10m makes it the check of a release. 0: monkeyTurns.
func monkeyTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("LORASIM_MONKEY"), "0s"))
	if err != nil {
		t.Fatalf("LORASIM_MONKEY: %v, expected a duration such as 10m", err)
	}
	return d
}

// monkeySeed is the seed of its turns: LORASIM_MONKEY_SEED, else 7.
func monkeySeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("LORASIM_MONKEY_SEED"), "7"), 10, 64)
	if err != nil {
		t.Fatalf("LORASIM_MONKEY_SEED: %v, expected a number", err)
	}
	return seed
}

// memory is what page and server hold after a collection, bytes.
type memory struct{ page, server float64 }

func (b tab) memory() (m memory) {
	b.t.Helper()
	b.settled()
	if _, err := chromedp.Call(b.ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		b.t.Fatal(err)
	}
	heap, err := chromedp.Call(b.ctx, cdpruntime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	m.page = heap.UsedSize + heap.EmbedderHeapUsedSize
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.server = float64(s.HeapAlloc)
	return m
}

// monkey turns knobs at random, the same for the same seed.
type monkey struct {
	tab
	r     *rand.Rand
	knobs []explore.Knob
}

// turn changes something on the page, often before the answer to the last change is there.
func (m *monkey) turn() (what string) {
	switch m.r.IntN(12) {
	case 0:
		return m.eval(fmt.Sprintf(`(s => { s.value = %d; s.dispatchEvent(new Event('change')); return 'preset ' + s.value; })(document.getElementById('preset'))`,
			m.r.IntN(10)))
	case 1:
		return m.eval(`(b => b ? (b.click(), 'one policy more') : 'no further policy')(document.getElementById('add-policy'))`)
	case 2:
		return m.eval(`(b => b ? (b.click(), 'one policy less') : 'no policy less')(document.querySelector('#policies button[aria-label^=Remove]'))`)
	case 3:
		names := explore.Policies()
		return m.typed(fmt.Sprintf("policy.%d", m.r.IntN(3)), names[m.r.IntN(len(names))].Name)
	case 4:
		list := []string{"", "ttft:500", "ttft:1000 tpot:50", "e2e:20000 attain:90%", "soon"}
		return m.typed("slo", list[m.r.IntN(len(list))])
	case 5:
		m.eval(`(document.getElementById('theme').click(), [...document.querySelectorAll('.legend button')].at(-1).click())`)
		return "theme and a legend"
	case 6:
		return m.eval(fmt.Sprintf(`(all => { const s = all[%d %% all.length]; s.value = %d; s.dispatchEvent(new Event('input')); return s.ariaLabel; })([...document.querySelectorAll('input[type=range]')])`,
			m.r.IntN(100), m.r.IntN(700)))
	case 7:
		return m.eval(fmt.Sprintf(`(d => { const e = d[%d %% d.length]; e.open = !e.open; return 'details'; })([...document.querySelectorAll('main details')])`,
			m.r.IntN(100)))
	}
	k := m.knobs[m.r.IntN(len(m.knobs))]
	return m.typed(k.Key, m.value(k))
}

// value is one that the setting takes, or one that it does not.
func (m *monkey) value(k explore.Knob) string {
	list := append(append([]string{k.Default, k.Default, "", "x"}, k.Choices...), k.Suggest...)
	if k.Type == "int" || k.Type == "float" {
		list = append(list, "-1", strconv.Itoa(1+m.r.IntN(8)), strconv.Itoa(1+m.r.IntN(64)))
	}
	return list[m.r.IntN(len(list))]
}

func (m *monkey) typed(key, value string) string {
	return m.eval(fmt.Sprintf(`(f => { if (!f) return 'no field'; if (f.type === 'checkbox') f.click(); else { f.value = %q; f.dispatchEvent(new Event(f.tagName === 'SELECT' ? 'change' : 'input')); } return f.id + ' = ' + f.value; })(document.getElementById('f-%s'))`,
		value, key))
}

// TestMonkey turns knobs at random: no error on the console, and memory stays where it was.
func TestMonkey(t *testing.T) {
	limit := monkeyTime(t)
	ctx := testbrowser.StartFor(t, limit+8*time.Minute)
	q := explore.DefaultPreset().Query
	q.Settings["workload.num_prompts"] = "300"
	q.Seeds = "2"
	m := &monkey{open(t, ctx, serve(t, q)), rand.New(rand.NewPCG(monkeySeed(t), 11)), explore.Knobs()}
	var before memory
	turns, start := 0, time.Now()
	done := func() float64 { // share of all turns
		if limit > 0 {
			return float64(time.Since(start)) / float64(limit)
		}
		return float64(turns) / monkeyTurns
	}
	for done() < 1 {
		if before == (memory{}) && done() > 0.25 {
			before = m.memory() // what is kept for good is there by now
		}
		what := m.turn()
		turns++
		if testing.Verbose() && turns%100 == 0 {
			t.Logf("turn %d: %s", turns, what)
		}
		// 300 requests, whatever the presets say: the monkey is in a hurry
		m.typed("workload.num_prompts", "300")
		if bad := m.eval(notNumbers); bad != "" {
			t.Fatalf("turn %d, %s: no numbers: %s; query %s", turns, what, bad, m.eval(`location.hash`))
		}
		if m.r.IntN(4) == 0 {
			m.settled()
		}
	}
	after := m.memory()
	t.Logf("%d turns in %v; page %.1f to %.1f MB, server %.1f to %.1f MB", turns, time.Since(start), before.page/1e6,
		after.page/1e6, before.server/1e6, after.server/1e6)
	if after.page > 2*before.page+20e6 || after.server > 2*before.server+100e6 {
		t.Errorf("memory grows: %+v to %+v", before, after)
	}
	m.run("still there", chromedp.WaitVisible(chromedp.CSS("#cards .card")))
}
