package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What is known of an adapter's use on a worker comes from the fleet's own books
// and, as others may send requests there too, from the worker.
//
// vLLM 0.32 dies if a name is loaded again while requests of its former load go
// on: the new load gets another number, the requests of both count as one adapter
// where its batch is made ready, and once the former's weights have left their
// slot a lookup fails (KeyError in convert_mapping). Its unload does not wait, so
// the fleet does, before an unload and before a load. sglang waits by itself, but
// loads nothing meanwhile.

const (
	// certain is the number of looks in a row that must find an adapter unused. An
	// engine tells of an abort before its last step with the request is over, and
	// of a request only from its first token on.
	certain = 3
	between = 20 * time.Millisecond // looks
)

var errUntold = errors.New("it does not tell which adapters its requests use")

// posted is how many of the fleet's requests a worker may have, those of an
// adapter alone or of all; called with mu held.
func (k *worker) posted() int {
	n := len(k.acct.requests)
	for _, outside := range k.outside {
		n -= outside
	}
	return n
}

func (f *Fleet) postedOf(w int, a int32) int {
	st := &f.view.Workers[w].Adapters[a]
	return int(st.Running+st.Queued) - f.workers[w].outside[a]
}

// awaitIdle looks at a worker until so many looks in a row have found no request
// of an adapter, or until wanted, called with mu held, is false.
func (f *Fleet) awaitIdle(ctx context.Context, w int, a int32, looks int, wanted func() bool) error {
	k, name := f.workers[w], f.nameOf(a)
	var last float64
	for idle := 0; ; {
		l, err := k.end.loads(ctx)
		if err != nil {
			return err
		}
		if l.Busy == nil && k.end.kind() == VLLM {
			return errUntold
		}
		f.mu.Lock()
		others, stop := l.Running+l.Queued-k.posted(), !wanted()
		f.mu.Unlock()
		// those of others that have had no token, or whose engine names none, may use it
		hidden := others > 0 && (l.Queued > 0 || l.Busy == nil)
		switch {
		case stop:
			return nil
		case l.Busy[name] || hidden:
			idle = 0
		case l.Busy == nil || l.At > last || l.Running+l.Queued == 0:
			idle++
		}
		if idle >= looks {
			return nil
		}
		last = l.At
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return fmt.Errorf("requests of others use it, or may: %w", context.Cause(ctx))
		}
	}
}

// beforeLoad waits until a load can do no harm: until the requests of a former
// load of the same name have ended, the fleet's own and others'.
func (f *Fleet) beforeLoad(ctx context.Context, w int, a int32) error {
	k := f.workers[w]
	if k.end.kind() != VLLM {
		return nil
	}
	looks := 1
	for {
		f.mu.Lock()
		n, wait := f.postedOf(w, a), k.drained.wait()
		if k.lost[a] {
			looks = certain
		}
		f.mu.Unlock()
		if n <= 0 {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := f.awaitIdle(ctx, w, a, looks, func() bool { return true })
	if errors.Is(err, errUntold) {
		return nil
	}
	return err
}
