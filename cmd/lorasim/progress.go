package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress shows how far a run is, with its ETA, if stderr is a terminal.
type progress struct {
	mu     sync.Mutex
	box    *mpb.Progress
	bar    *mpb.Bar
	what   string
	detail string
}

func newProgress(w io.Writer) *progress {
	p := &progress{}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.box = mpb.New(mpb.WithOutput(w), mpb.WithWidth(50), mpb.WithRefreshRate(200*time.Millisecond))
	}
	return p
}

// set moves the bar of one phase; a total of 0 is unknown.
func (p *progress) set(what string, done, total int64, detail string) {
	if p.box == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil || p.what != what {
		p.drop()
		p.what = what
		p.bar = p.box.AddBar(0,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(what+" ")),
			mpb.AppendDecorators(
				decor.Percentage(decor.WC{W: 5}),
				decor.Any(func(decor.Statistics) string { p.mu.Lock(); defer p.mu.Unlock(); return " " + p.detail }),
				decor.Name(" ETA "), decor.AverageETA(decor.ET_STYLE_GO),
			))
	}
	p.detail = detail
	if total > 0 {
		p.bar.SetTotal(total, false)
	}
	p.bar.SetCurrent(done)
}

func (p *progress) reading(read, total int64) {
	p.set("reading", read, total, fmt.Sprintf("%.0f MB", float64(read)/1e6))
}

func (p *progress) running(done, total int64, now float64) {
	p.set("simulating", done, total, fmt.Sprintf("%d requests, %.0f s", done, now))
}

// drop removes the bar shown.
func (p *progress) drop() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar = nil
	}
}

// done removes the progress from the screen.
func (p *progress) done() {
	if p.box == nil {
		return
	}
	p.mu.Lock()
	p.drop()
	p.mu.Unlock()
	p.box.Wait()
}
