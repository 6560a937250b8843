// Command measured writes docs/measured.md: the project's measured runs with their predictions.
//
//	go run ./measured [--data DATA] [--slow] [--only NAME,...] [--page FILE] [--kept DIR]
//
// It builds lorasim, runs its profile, sim and sweep commands over the folder of
// measured runs, and writes the page. It takes about one CPU minute. A source without data, and a
// slow one without --slow, is skipped with a message. The page keeps the rows of a skipped source.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"lorasim/internal/atomicfile"
	"lorasim/internal/shareddata"
	"lorasim/lab/internal/repo"
)

// again is the command that the page prints.
const again = "cd lab && go run ./measured --slow      # 7 CPU minutes; without --slow one, and rows of slow sources stay"

type options struct {
	data, page, kept, lorasim string
	only                      []string
	slow                      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measured:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := pflag.NewFlagSet("measured", pflag.ContinueOnError)
	f.StringVar(&o.data, "data", shareddata.Dir(), "folder of measured runs")
	f.StringVar(&o.page, "page", filepath.Join("docs", "measured.md"), "page to write")
	f.StringSliceVar(&o.only, "only", nil, "sources to run: "+strings.Join(names(), ", ")+" (default: all)")
	f.BoolVar(&o.slow, "slow", false, "run slow sources, too")
	f.StringVar(&o.lorasim, "lorasim", "", "program to run (default: built from this repository)")
	f.StringVar(&o.kept, "kept", "", "folder for the output of commands; what is there is read instead of run again")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("--only: no source %q, expected %s", name, strings.Join(names(), ", "))
		}
	}
	return o, nil
}

// command is the program; log gets its messages.
func command(ctx context.Context, args []string, log io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	return repo.InFolder(ctx, "measured", o.lorasim, func(scratch, lorasim string) error {
		r := &runner{lorasim: lorasim, scratch: scratch, kept: o.kept}
		if r.data, err = filepath.Abs(o.data); err != nil {
			return err
		}
		if r.root, err = repo.Root(ctx); err != nil {
			return err
		}
		old, err := load(o.page)
		if err != nil {
			return err
		}
		p, err := update(ctx, r, old, o, log)
		if err != nil {
			return err
		}
		return atomicfile.Write(o.page, func(w *atomicfile.File) error { return p.write(w, again) })
	})
}

// load reads the page of an earlier call. A missing page is not an error.
func load(path string) (*page, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return &page{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := readPage(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// update returns the sections of all sources: fresh ones, or those of the old page for skipped
// sources.
func update(ctx context.Context, r *runner, old *page, o options, log io.Writer) (*page, error) {
	p := &page{}
	for _, s := range sources {
		begin := time.Now()
		fresh, err := freshSection(ctx, r, s, o)
		switch {
		case err == nil:
			p.sections = append(p.sections, *fresh)
			fmt.Fprintf(log, "%s: %d rows, %.1f s\n", s.name, len(fresh.rows), time.Since(begin).Seconds())
		case errors.Is(err, errNoData) || errors.Is(err, errSkipped):
			kept := old.find(s.name)
			if kept != nil {
				p.sections = append(p.sections, *kept)
			}
			fmt.Fprintf(log, "%s: skipped, %v; %s\n", s.name, err, keptText(kept))
		default:
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return p, nil
}

// errSkipped is the reason to skip a source that has data.
var errSkipped = errors.New("not asked for")

func keptText(kept *section) string {
	if kept == nil {
		return "the page has no rows of it"
	}
	return fmt.Sprintf("the page keeps its %d rows", len(kept.rows))
}

// freshSection returns the section of a source.
func freshSection(ctx context.Context, r *runner, s source, o options) (*section, error) {
	if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
		return nil, errSkipped
	}
	if s.slow && !o.slow {
		return nil, fmt.Errorf("%w: slow, see --slow", errSkipped)
	}
	if err := r.need(s.needs...); err != nil {
		return nil, err
	}
	out := &section{name: s.name, title: s.title, about: s.about, commands: s.commands}
	if err := s.make(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}
