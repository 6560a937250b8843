package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

// Bodies of all sizes, read at the same time, never hold more memory than the limit;
// each is read whole or refused for want of memory, and gives all of it back.
func TestBodyMemory(t *testing.T) {
	const longest, limit = 4 * keep, 16 * keep
	all := bytes.Repeat([]byte("x"), longest)
	rapid.Check(t, func(t *rapid.T) {
		memory, err := newBodyMemory(limit, longest)
		if err != nil {
			t.Fatal(err)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(0, longest), 1, 30).Draw(t, "sizes")
		known := rapid.SliceOfN(rapid.Bool(), len(sizes), len(sizes)).Draw(t, "known")
		var mu sync.Mutex
		var held, peak int64
		var wg sync.WaitGroup
		for i, size := range sizes {
			wg.Go(func() {
				b := &requestBody{from: bytes.NewReader(all[:size]), length: -1, memory: memory}
				if known[i] {
					b.length = int64(size)
				}
				err := b.fill(keep)
				if err == nil && !b.whole {
					if err = b.reserve(t.Context(), longest); err == nil {
						err = b.fill(longest)
					}
				}
				mu.Lock()
				held += int64(cap(b.data))
				peak = max(peak, held)
				mu.Unlock()
				if err != nil && !errors.Is(err, errNoMemory) || err == nil && len(b.data) != size {
					t.Errorf("%d of %d bytes, %v", len(b.data), size, err)
				}
				if taken := b.small + b.large; taken < int64(cap(b.data)) {
					t.Errorf("%d bytes taken for a buffer of %d", taken, cap(b.data))
				}
				mu.Lock()
				held -= int64(cap(b.data))
				mu.Unlock()
				b.release()
			})
		}
		wg.Wait()
		if peak > limit {
			t.Errorf("%d bytes in use, more than %d", peak, limit)
		}
		if !memory.small.TryAcquire(limit/4) || !memory.large.TryAcquire(limit-limit/4) {
			t.Error("memory was not given back")
		}
	})
}

// What a client announces takes no memory: only what it sends does.
func TestAnnouncedBody(t *testing.T) {
	memory, err := newBodyMemory(16*keep, keep)
	if err != nil {
		t.Fatal(err)
	}
	b := &requestBody{from: io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), length: keep,
		memory: memory}
	if err := b.fill(keep); err == nil || b.small != firstBuffer {
		t.Errorf("%d bytes for one that came, %v", b.small, err)
	}
}

// A long body that gets no memory gives up with its context and keeps none.
func TestNoMemoryForLongBody(t *testing.T) {
	memory, err := newBodyMemory(8*keep, 2*keep)
	if err != nil {
		t.Fatal(err)
	}
	first := &requestBody{length: -1, memory: memory}
	if err := first.reserve(t.Context(), 2*keep); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	second := &requestBody{length: -1, memory: memory}
	if err := second.reserve(ctx, 2*keep); !errors.Is(err, errNoMemory) {
		t.Errorf("%v, expected %v", err, errNoMemory)
	}
	first.release()
	if err := second.reserve(t.Context(), 2*keep); err != nil {
		t.Error(err)
	}
	second.release()
	if _, err := newBodyMemory(8*keep, 4*keep); err == nil {
		t.Error("a body may need more than there is for long ones")
	}
}

// Many long bodies at once wait for their turn: none is refused.
func TestManyLongBodies(t *testing.T) {
	memory, err := newBodyMemory(16*keep, 4*keep)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"prompt": "` + strings.Repeat("x", 2*keep) + `", "model": "a"}`
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			q := newWant(true, int64(len(body)))
			q.memory = memory
			r := httptest.NewRequest("POST", "/v1/completions", iotest.HalfReader(strings.NewReader(body)))
			r.ContentLength = q.length
			if err := q.read(t.Context(), r, 4*keep); err != nil || len(q.names) != 1 {
				t.Errorf("%q, %v", q.names, err)
			}
			q.release()
		})
	}
	wg.Wait()
}
