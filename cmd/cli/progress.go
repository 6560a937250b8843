package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"lorasim/internal/format"
	"lorasim/trace"
)

const (
	drawEvery = 100 * time.Millisecond
	clearLine = "\r\x1b[K"
)

// progress shows the progress of a run in one line of the terminal, if stderr is a terminal. It has
// no goroutine: calls that report progress draw the line now and then. Its methods are safe for
// concurrent use.
type progress struct {
	mu      sync.Mutex
	out     io.Writer  // nil without a terminal: nothing is shown
	columns func() int // current width of the terminal
	now     func() time.Time

	what  string    // current phase
	begun time.Time // start of the phase
	next  time.Time // earliest time to draw the line again
	shown bool

	read, size int64 // bytes of input
}

func newProgress(w io.Writer) *progress {
	p := &progress{now: time.Now}
	if s, ok := w.(*format.SafeWriter); ok {
		w = s.Unwrap() // the line belongs to the program itself
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		p.out = f
		p.columns = func() int {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
				return n
			}
			return 80
		}
	}
	return p
}

// set reports the progress of a phase; a total of 0 is unknown.
func (p *progress) set(what string, done, total int64, detail string) {
	p.draw(what, done, total, func() string { return detail })
}

func (p *progress) reading(read, total int64) {
	p.mu.Lock()
	p.read, p.size = read, total
	alone := p.what == "" || p.what == "reading" // else the input is read while it is used
	p.mu.Unlock()
	if alone {
		p.draw("reading", read, total, func() string { return fmt.Sprintf("%.0f MB", float64(read)/1e6) })
	}
}

// running shows the progress of a simulation. If the number of its requests is unknown, it shows
// the share of the input that was read.
func (p *progress) running(done, total int64, now float64) {
	p.draw("simulating", done, total, func() string { return fmt.Sprintf("%d requests, %.0f s", done, now) })
}

// runs shows the number of simulated runs of a table.
func (p *progress) runs(done, total int64) {
	p.set("simulating", done, total, fmt.Sprintf("%d of %d runs", done, total))
}

// until shows the elapsed share of a time limit, if there is one, until stop is called.
func (p *progress) until(limit time.Duration, what, detail string) (stop func()) {
	begin, ticker, done := time.Now(), time.NewTicker(2*drawEvery), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if limit > 0 {
					p.set(what, time.Since(begin).Milliseconds(), limit.Milliseconds(), detail)
				}
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		p.done()
	}
}

// watch shows the share of a source that was read. It ends with ctx.
func (p *progress) watch(ctx context.Context, what string, src trace.Source) trace.Source {
	total := max(src.Len(), 0)
	return trace.Watch(src, func(n int64) error {
		p.draw(what, n, total, func() string { return fmt.Sprintf("%d requests", n) })
		return ctx.Err()
	})
}

// draw draws the line if there is a terminal, unless it was drawn just now.
func (p *progress) draw(what string, done, total int64, detail func() string) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if total == 0 {
		done, total = p.read, p.size
	}
	now := p.now()
	if p.what != what {
		p.what, p.begun, p.next = what, now, now
	}
	if now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(drawEvery), true
	text := what
	if total > 0 {
		share := min(float64(done)/float64(total), 1)
		text += fmt.Sprintf(" %3.0f %%", 100*share)
		if took := now.Sub(p.begun); share > 0 && took >= time.Second {
			left := time.Duration(float64(took) * (1 - share) / share)
			text += " ETA " + left.Round(time.Second).String()
		}
	}
	if d := detail(); d != "" {
		text += " " + d
	}
	// In the last column some terminals wrap. Their echo of ^C must not wrap: the line above would
	// stay.
	if r, most := []rune(text), max(p.columns()-1-len("^C"), 0); len(r) > most {
		text = string(r[:most])
	}
	io.WriteString(p.out, clearLine+text)
}

// clear removes the line from the screen.
func (p *progress) clear() {
	if p.shown {
		io.WriteString(p.out, clearLine)
		p.shown = false
	}
}

// done removes the line from the screen; a later set shows it again.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.what = ""
}

// log returns a function that prints messages beside the progress. It prints only a few messages of
// a kind.
func (p *progress) log(w io.Writer) func(format string, args ...any) {
	seen := map[string]int{}
	return func(format string, args ...any) {
		const most = 20
		p.mu.Lock()
		defer p.mu.Unlock()
		if seen[format]++; seen[format] > most {
			return
		}
		p.clear()
		fmt.Fprintf(w, "lorasim: "+format+"\n", args...)
		if seen[format] == most {
			fmt.Fprintln(w, "lorasim: further messages of this kind are left out")
		}
	}
}
