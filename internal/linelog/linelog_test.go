package linelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"lorasim/internal/linelog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stuck blocks until it is released, as a pipe that nobody reads does.
type stuck struct {
	release chan struct{}
	got     bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	return s.got.Write(p)
}

// All lines arrive whole and in the order of each author, also of authors that
// write at the same time.
func TestLines(t *testing.T) {
	var got bytes.Buffer
	w := linelog.New(&got)
	var wg sync.WaitGroup
	for a := range 4 {
		wg.Go(func() {
			for i := range 500 {
				fmt.Fprintf(w, "%d %d %s\n", a, i, strings.Repeat("x", i%70))
			}
		})
	}
	wg.Wait()
	if err := w.Close(time.Minute); err != nil || w.Dropped() != 0 {
		t.Fatal(err, w.Dropped())
	}
	var next [4]int
	for line := range strings.Lines(got.String()) {
		var a, i int
		if n, err := fmt.Sscanf(line, "%d %d ", &a, &i); n != 2 || err != nil || i != next[a] ||
			len(strings.TrimSpace(line[strings.LastIndex(line, " "):])) != i%70 {
			t.Fatalf("line %q, expected %d of %d: %v", line, next[a], a, err)
		}
		next[a]++
	}
	if next != [4]int{500, 500, 500, 500} {
		t.Errorf("lines %v, expected 500 each", next)
	}
	if w.Write([]byte("late\n")); w.Dropped() != 1 {
		t.Errorf("%d dropped after Close, expected 1", w.Dropped())
	}
}

// A destination that blocks delays nobody; what does not fit is counted, and
// Close gives up in time.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{release: make(chan struct{})}
		w := linelog.New(s)
		const line = 1000 // bytes
		text := []byte(strings.Repeat("x", line-1) + "\n")
		const lines = 10_000
		begun := time.Now()
		for range lines {
			w.Write(text)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("writing took %v", d)
		}
		dropped := w.Dropped()
		if kept := lines - dropped; kept < 4000 || kept > 9000 {
			t.Errorf("%d lines kept, expected some 4 or 8 MiB of them", kept)
		}
		if err := w.Close(time.Second); err == nil || time.Since(begun) != time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(begun))
		}
		close(s.release)
		synctest.Wait()
		if got := int64(s.got.Len() / line); got != lines-dropped || w.Dropped() != dropped || s.got.Len()%line != 0 {
			t.Errorf("%d lines written, %d dropped, %d bytes over", got, w.Dropped(), s.got.Len()%line)
		}
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Lines that a destination refuses are counted, and a new destination gets the
// further ones.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := linelog.New(failing{})
		w.Write([]byte("1\n2\n"))
		time.Sleep(time.Second)
		if w.Dropped() != 2 {
			t.Errorf("%d dropped, expected 2", w.Dropped())
		}
		var got bytes.Buffer
		w.Redirect(&got)
		w.Write([]byte("3\n"))
		w.Close(time.Second)
		if got.String() != "3\n" || w.Dropped() != 2 {
			t.Errorf("%q, %d dropped", got.String(), w.Dropped())
		}
	})
}

// What a full pipe holds when the program gives up consists of whole lines.
func TestPipe(t *testing.T) {
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := linelog.New(out)
	for i := range 5000 {
		fmt.Fprintf(w, "line %d %s\n", i, strings.Repeat("y", i%200))
	}
	if w.Close(10*time.Millisecond) == nil {
		t.Error("a pipe of 64 KiB took 500 KB")
	}
	var got bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); got.ReadFrom(r) }()
	w.Close(time.Minute)
	out.Close()
	<-read
	r.Close()
	if n := strings.Count(got.String(), "line "); n != 5000 || !strings.HasSuffix(got.String(), "\n") {
		t.Errorf("%d lines, expected 5000", n)
	}
}
