package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"lorasim/internal/textfile"
)

// maxEndpoints bounds the workers of a file.
const maxEndpoints = 4096

// ReadEndpoints reads a list of workers, one base URL per line. It skips empty lines, repetitions, and comments, which
// begin with #. Errors name the file as where. A file without a worker is an error.
func ReadEndpoints(r io.Reader, where string) (list []string, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		u, err := ParseURL(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", where, n, err)
		}
		if !slices.Contains(list, u) {
			list = append(list, u)
		}
		if len(list) > maxEndpoints {
			return nil, fmt.Errorf("%s:%d: more than %d workers", where, n, maxEndpoints)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no worker, expected a URL in each line", where)
	}
	return list, nil
}

// Follow keeps the fleet in step with a file of workers until ctx ends. It reads the file at the given interval. It
// adds the workers that the file lists and removes those that it lists no longer; it leaves other workers alone. The
// argument listed has the workers that the file listed at the start.
//
// A file that cannot be read changes nothing. A new list takes effect only when the next read confirms it, because the
// file may have been half written.
func (f *Fleet) Follow(ctx context.Context, file string, every time.Duration, listed []string) {
	w := &fileWatch{fleet: f, file: file, listed: listed, seen: listed}
	for range Ticks(ctx, every) {
		w.look(ctx)
	}
}

// fileWatch is the state of [Fleet.Follow].
type fileWatch struct {
	fleet  *Fleet
	file   string
	listed []string // by the latest confirmed list
	seen   []string // by the latest read of the file
	said   string   // the latest error
}

func (w *fileWatch) look(ctx context.Context) {
	list, err := textfile.Read(ctx, w.file, ReadEndpoints)
	if err != nil {
		w.say(fmt.Errorf("workers stay as they are: %w", err))
		return
	}
	confirmed := slices.Equal(list, w.seen)
	if w.seen = list; confirmed && !slices.Equal(list, w.listed) {
		w.change(ctx, list)
	}
}

// say logs an error, unless the latest logged error was the same.
func (w *fileWatch) say(err error) {
	if text := err.Error(); text != w.said {
		w.said = text
		w.fleet.cfg.Log("%s", text)
	}
}

// change adds the workers that the file lists now and removes those that it does not list any more.
func (w *fileWatch) change(ctx context.Context, list []string) {
	var fresh []string
	for _, u := range list {
		if !slices.Contains(w.listed, u) {
			fresh = append(fresh, u)
		}
	}
	var failed []string // retried after the next read
	for i, err := range each(len(fresh), func(i int) error { _, err := w.fleet.Add(ctx, fresh[i]); return err }) {
		if err != nil && !errors.Is(err, ErrMember) {
			failed = append(failed, fresh[i])
			w.say(fmt.Errorf("%s: worker %s cannot join: %w", w.file, fresh[i], err))
		}
	}
	for _, u := range w.listed {
		if k := w.fleet.Find(u); k >= 0 && !slices.Contains(list, u) {
			if err := w.fleet.Remove(k, false); err != nil {
				w.fleet.cfg.Log("%s: worker %s cannot leave: %v", w.file, u, err)
			}
		}
	}
	w.listed = slices.DeleteFunc(slices.Clone(list), func(u string) bool { return slices.Contains(failed, u) })
}
