// Package testbrowser runs pages in a real Chromium for tests. [Start] starts the browser; [Watch] reports the errors
// of a page.
package testbrowser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Start starts a headless Chromium for at most 8 minutes. It skips the test if Chromium is not installed.
func Start(t testing.TB) context.Context {
	t.Helper()
	return StartFor(t, 8*time.Minute)
}

// StartFor is Start with another time limit.
func StartFor(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	path := find(t)
	for try := 1; ; try++ {
		ctx, stop, err := start(t.Context(), path, limit)
		if err == nil {
			t.Cleanup(stop)
			return ctx
		}
		stop()
		if try == 3 {
			t.Fatalf("%s does not start: %v", path, err)
		}
		t.Logf("%s does not start, another try: %v", path, err) // a process may fail on a busy machine
	}
}

// find returns the path of Chromium.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell",
	} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("no Chromium is installed (Debian: chromium); the page is not tested in a browser")
	return ""
}

// start starts a browser. Call stop in any case.
func start(ctx context.Context, path string, limit time.Duration) (_ context.Context, stop func(), _ error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1200, 900),
		chromedp.WSURLReadTimeout(limit)) // on a busy machine the browser may take more than 20 s to start
	ctx, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, endBrowser := chromedp.NewContext(ctx)
	ctx, endTime := context.WithTimeout(ctx, limit)
	return ctx, func() { endTime(); endBrowser(); endAllocator() }, chromedp.Do(ctx)
}

// longestWait limits [Wait]. It is for pages that hang: nothing that a test waits for takes so long.
const longestWait = 3 * time.Minute

// Wait waits until an expression holds on the page. If it does not, the error has the values of the expressions show.
func Wait(t testing.TB, ctx context.Context, js string, show ...string) {
	t.Helper()
	end := time.Now().Add(longestWait)
	if limit, ok := ctx.Deadline(); ok && limit.Add(-10*time.Second).Before(end) {
		end = limit.Add(-10 * time.Second) // there is time to look at the page
	}
	for Eval(t, ctx, js) != "true" {
		if time.Now().After(end) {
			var seen []string
			for _, s := range show {
				seen = append(seen, fmt.Sprintf("%s: %q", s, Eval(t, ctx, s)))
			}
			t.Fatalf("still not %s; %s", js, strings.Join(seen, ", "))
		}
		time.Sleep(10 * time.Millisecond) // the browser has no clock of ours
	}
}

// Eval returns the value of a JavaScript expression on the page, as text.
func Eval(t testing.TB, ctx context.Context, js string) string {
	t.Helper()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+js+")"))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return out
}

// attacks are seven ways in which a page may try to use another one: read its data, with and without CORS; change
// something by a request of JSON and by a plain one; run its script; use its style; show it in a frame.
const attacks = `((async ({ page, data, change, script, style }) => {
	const load = (tag, set) => new Promise((yes, no) => {
		const s = document.createElement(tag);
		set(s);
		s.onload = () => yes('loaded');
		s.onerror = no;
		document.head.append(s);
	});
	const post = async headers => (await fetch(page + change, { method: 'POST', headers, body: '{}' })).text();
	const tries = {
		read: async () => (await fetch(page + data)).text(),
		blind: async () => {
			const r = await fetch(page + data, { mode: 'no-cors' });
			return r.type === 'opaque' ? Promise.reject('opaque') : r.type;
		},
		change: () => post({ 'Content-Type': 'application/json' }),
		simple: () => post({}),
		script: () => load('script', s => { s.type = 'module'; s.src = page + script; }),
		style: () => load('link', s => { s.rel = 'stylesheet'; s.href = page + style; }),
		frame: () => new Promise((yes, no) => {
			const f = document.createElement('iframe');
			f.src = page;
			f.onload = () => { try { yes(f.contentDocument.title || no()); } catch (e) { no(e); } };
			document.body.append(f);
		}),
	};
	const out = [];
	for (const [name, f] of Object.entries(tries)) {
		await f().then(v => out.push(name + ' got ' + String(v).slice(0, 60)), () => out.push(name + ' refused'));
	}
	window.attacked = out.join(', ');
})(%s), '')`

// A Target names a page by its address, which ends in a slash, and parts of it by relative paths.
type Target struct {
	Page   string `json:"page"`
	Data   string `json:"data"`   // data that the page reads
	Change string `json:"change"` // takes a POST
	Script string `json:"script"` // a module
	Style  string `json:"style"`
}

// Attack opens pages of other origins, which know the address of a page, and has them try to use it in seven ways. A
// way that succeeds is an error of the test.
func Attack(t testing.TB, ctx context.Context, target Target) {
	t.Helper()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>other</title>")
	}))
	defer other.Close()
	text, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	// localhost is another origin than 127.0.0.1
	for _, from := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} {
		if err := chromedp.Do(ctx, chromedp.Navigate(from)); err != nil {
			t.Fatal(err)
		}
		Eval(t, ctx, fmt.Sprintf(attacks, text))
		done := chromedp.Poll[bool]("Boolean(window.attacked)", chromedp.WithPollingTimeout(time.Minute))
		if _, err := chromedp.Run(ctx, done); err != nil {
			t.Fatal(err)
		}
		got := Eval(t, ctx, "window.attacked")
		if strings.Contains(got, " got ") || strings.Count(got, " refused") != 7 {
			t.Errorf("from %s: %s", from, got)
		}
	}
}

// Watch collects the errors of the page in ctx: messages on the console, exceptions, and requests to addresses that do
// not begin with page. They are errors of the test, which are reported at its end.
func Watch(t testing.TB, ctx context.Context, page string) {
	t.Helper()
	tr := &trouble{}
	if err := tr.watch(ctx, page); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.report(t) })
}

// trouble collects the errors of a page.
type trouble struct {
	mu   sync.Mutex
	seen []string
}

func (tr *trouble) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.seen = append(tr.seen, fmt.Sprintf(format, args...))
}

func (tr *trouble) watch(ctx context.Context, page string) error {
	return chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventConsoleAPICalled:
			switch e.Type {
			case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning,
				runtime.ConsoleAPICalledTypeAssert:
				var texts []string
				for _, a := range e.Args {
					texts = append(texts, string(a.Value)+a.Description)
				}
				tr.add("console %s: %s", e.Type, strings.Join(texts, " "))
			}
		case *runtime.EventExceptionThrown:
			tr.add("exception: %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				tr.add("log: %s", e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, page) && !strings.HasPrefix(u, "data:") &&
				!strings.HasPrefix(u, "blob:") {
				tr.add("request: %s", u)
			}
		}
	})
}

func (tr *trouble) report(t testing.TB) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, s := range tr.seen {
		t.Error(s)
	}
}

// Look saves a screenshot of the page in the folder $LORASIM_SCREENSHOTS, if set.
func Look(t testing.TB, ctx context.Context, name string) {
	dir := os.Getenv("LORASIM_SCREENSHOTS")
	if dir == "" {
		return
	}
	if shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)); err != nil {
		t.Error(err)
	} else if err := os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644); err != nil {
		t.Error(err)
	}
}
