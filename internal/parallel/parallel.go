// Package parallel runs independent pieces of work on all processors.
package parallel

import (
	"cmp"
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Do calls f for 0 to n-1 on all processors, until ctx ends. It returns the error of the lowest number, so that the
// same work fails with the same error. If progress is not nil, Do calls it with the number of finished calls, one
// call at a time.
func Do(ctx context.Context, n int, f func(int) error, progress func(done, total int64)) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	done := int64(0)
	errs := make([]error, n)
	for k := 0; k < n && ctx.Err() == nil; k++ {
		group.Go(func() error {
			errs[k] = f(k)
			mu.Lock()
			defer mu.Unlock()
			if done++; progress != nil {
				progress(done, int64(n))
			}
			return nil
		})
	}
	return cmp.Or(group.Wait(), ctx.Err(), cmp.Or(errs...))
}
