// Package testbrowser runs pages in a real Chromium for tests. [Start] starts the browser; [Trouble] collects the
// errors of a page.
package testbrowser

import (
	"context"
	"fmt"
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
	path := ""
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell",
	} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium is installed (Debian: chromium); the page is not tested in a browser")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1200, 900))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, limit)
	t.Cleanup(cancel)
	return ctx
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

// Trouble collects the errors of a page: messages on the console, exceptions, and requests to other addresses.
type Trouble struct {
	mu   sync.Mutex
	seen []string
}

func (tr *Trouble) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.seen = append(tr.seen, fmt.Sprintf(format, args...))
}

// Watch collects the errors of the page in ctx. Requests to addresses that begin with page are allowed.
func (tr *Trouble) Watch(ctx context.Context, page string) error {
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

// Report reports what was collected as errors of the test.
func (tr *Trouble) Report(t testing.TB) {
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
