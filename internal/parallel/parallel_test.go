package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"lorasim/internal/parallel"
)

func TestDo(t *testing.T) {
	const n = 100
	var squares [n]int
	last := int64(0)
	err := parallel.Do(t.Context(), n, func(i int) error {
		squares[i] = i * i
		return nil
	}, func(done, total int64) {
		if done != last+1 || total != n {
			t.Errorf("%d of %d are done after %d", done, total, last)
		}
		last = done
	})
	if err != nil || last != n {
		t.Errorf("%d calls, %v", last, err)
	}
	for i, x := range squares {
		if x != i*i {
			t.Errorf("call %d gave %d", i, x)
		}
	}
}

// All calls are made whatever fails, and the error is that of the lowest number.
func TestDoErrors(t *testing.T) {
	var calls atomic.Int64
	err := parallel.Do(t.Context(), 50, func(i int) error {
		calls.Add(1)
		if i%20 == 19 {
			return fmt.Errorf("call %d", i)
		}
		return nil
	}, nil)
	if err == nil || err.Error() != "call 19" || calls.Load() != 50 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// Nothing new starts once the context has ended, and no more runs at a time than
// there are processors.
func TestDoEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running, calls atomic.Int64
	err := parallel.Do(ctx, 1000, func(i int) error {
		if now := running.Add(1); now > int64(runtime.GOMAXPROCS(0)) {
			t.Errorf("%d run at a time", now)
		}
		defer running.Add(-1)
		if calls.Add(1) == 10 {
			cancel()
		}
		return nil
	}, nil)
	if !errors.Is(err, context.Canceled) || calls.Load() > 10+int64(runtime.GOMAXPROCS(0))+1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}
