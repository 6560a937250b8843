package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Shard is a part of a sweep: part Index of Count, from 0.
type Shard struct{ Index, Count int }

// ParseShard reads "I/N" with 0 <= I < N. "auto/N" takes the index from the
// first of the given environment variables of batch systems that is set: see
// ShardVariables.
func ParseShard(text string, getenv func(string) string) (Shard, error) {
	bad := fmt.Errorf("shard %q: expected I/N with 0 <= I < N, such as 0/8, or auto/N", text)
	index, count, ok := strings.Cut(text, "/")
	if !ok {
		return Shard{}, bad
	}
	if index == "auto" {
		index = ""
		for _, name := range ShardVariables {
			if v := getenv(name); v != "" && index == "" {
				index = v
			}
		}
		if index == "" {
			return Shard{}, fmt.Errorf("shard %q: none of %s is set", text, strings.Join(ShardVariables, ", "))
		}
	}
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("shard %s/%s: expected I/N with 0 <= I < N, such as 0/8, or auto/N", index, count)
	}
	return Shard{i, n}, nil
}

// ShardVariables are the environment variables that hold the index of a job in
// its array: of Slurm and of Kubernetes' Indexed Jobs.
var ShardVariables = []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"}

// RunOptions says how to run a sweep, or a part of it.
type RunOptions struct {
	Shard Shard // zero: all
	Jobs  int   // cells at a time; 0: one for each core
	Retry bool  // run failed cells again
	// Progress is told of the cells of this run: those done so far, those that
	// failed among them, and all. One call at a time.
	Progress func(done, failed, total int)
	// Warn is told of each cell whose file is broken, before any cell runs.
	Warn func(message string)
}

// Summary is what a run did.
type Summary struct {
	Ran    int // cells that ran now
	Kept   int // cells that were there already
	Failed []FailedCell
}

// Run runs the cells of the shard that are not done yet. A cell that fails does
// not stop the others: its reason is kept in a file, and it fails again without
// running until Retry is set. Any number of processes may run different shards
// of one folder at a time. An error means that the sweep cannot go on; what is
// done stays done.
func (d *Dir) Run(ctx context.Context, o RunOptions) (*Summary, error) {
	if err := errors.Join(d.checkInputs(), d.writable()); err != nil {
		return nil, err
	}
	sum := &Summary{}
	todo, err := d.todo(o, sum)
	if err != nil {
		return nil, err
	}
	jobs := o.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	r := &runner{dir: d, opt: o, sum: sum, workloads: newWorkloads(d.Manifest, todo), total: len(todo)}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queue := make(chan *Cell)
	var wg sync.WaitGroup
	for range min(jobs, len(todo)) {
		wg.Go(func() {
			for c := range queue {
				if err := r.cell(ctx, c); err != nil {
					r.stop(err)
					stop()
				}
			}
		})
	}
feed:
	for _, c := range todo {
		select {
		case queue <- c:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	wg.Wait()
	if r.err != nil {
		return sum, r.err
	}
	slices.SortFunc(sum.Failed, func(a, b FailedCell) int { return a.Index - b.Index })
	return sum, context.Cause(ctx)
}

// todo returns the shard's cells that are to run; those with the same workload
// stand together, so that they can share it.
func (d *Dir) todo(o RunOptions, sum *Summary) ([]*Cell, error) {
	order, err := d.byWorkload()
	if err != nil {
		return nil, err
	}
	if n := o.Shard.Count; n > 0 {
		order = order[o.Shard.Index*len(order)/n : (o.Shard.Index+1)*len(order)/n]
	}
	var todo []*Cell
	for _, i := range order {
		c := &d.Cells[i]
		state, _, message := d.look(c)
		switch {
		case state == Done:
			sum.Kept++
		case state == Failed && !o.Retry:
			sum.Failed = append(sum.Failed, FailedCell{i, d.Describe(c), message})
		case state == Broken:
			if todo = append(todo, c); o.Warn != nil {
				o.Warn(fmt.Sprintf("cell %d (%s) runs again: %s", i, d.Describe(c), message))
			}
		default:
			todo = append(todo, c)
		}
	}
	return todo, nil
}

type runner struct {
	dir       *Dir
	opt       RunOptions
	workloads *workloads
	total     int

	mu     sync.Mutex
	sum    *Summary
	done   int
	failed int
	err    error
}

func (r *runner) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// cell runs one cell and writes its file, or that of its failure. Its error is
// one that stops the sweep.
func (r *runner) cell(ctx context.Context, c *Cell) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, failed := r.simulate(ctx, c)
	if err := ctx.Err(); err != nil {
		return err // not the cell's fault
	}
	d := r.dir
	if failed != nil {
		if err := d.writeFailure(c, failed); err != nil {
			return err
		}
	} else {
		if err := f.WriteFile(d.cellPath(c)); err != nil {
			return err
		}
		if err := os.Remove(d.failurePath(c)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.sum.Ran++
	if failed != nil {
		r.failed++
		r.sum.Failed = append(r.sum.Failed, FailedCell{c.Index, d.Describe(c), failed.Error()})
	}
	if r.opt.Progress != nil {
		r.opt.Progress(r.done, r.failed, r.total)
	}
	return nil
}
