package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/trace"
)

// Shard is a part of a sweep: part Index of Count, from 0.
type Shard struct{ Index, Count int }

// ParseShard reads "I/N" with 0 <= I < N. "auto/N" takes the index of a job in
// its array from the environment, as Slurm and Kubernetes' Indexed Jobs give it.
func ParseShard(text string, getenv func(string) string) (Shard, error) {
	index, count, _ := strings.Cut(text, "/")
	if index == "auto" {
		const slurm, kubernetes = "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"
		if index = cmp.Or(getenv(slurm), getenv(kubernetes)); index == "" {
			return Shard{}, fmt.Errorf("shard %q: none of %s, %s is set", text, slurm, kubernetes)
		}
		text = index + "/" + count
	}
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("shard %s: expected I/N with 0 <= I < N, such as 0/8, or auto/N", text)
	}
	return Shard{i, n}, nil
}

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
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d.share(ctx, todo)
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		mu     sync.Mutex
		failed int
	)
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(todo)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			c := todo[i].cell
			reason, err := d.runCell(ctx, &todo[i])
			if err != nil {
				stop(err)
				return
			}
			mu.Lock()
			if sum.Ran++; reason != nil {
				failed++
				sum.Failed = append(sum.Failed, FailedCell{c.Index, d.Describe(c), reason.Error()})
			}
			if o.Progress != nil {
				o.Progress(sum.Ran, failed, len(todo))
			}
			mu.Unlock()
		}
	}
	for range min(jobs, len(todo)) {
		wg.Go(work)
	}
	wg.Wait()
	slices.SortFunc(sum.Failed, func(a, b FailedCell) int { return a.Index - b.Index })
	return sum, context.Cause(ctx)
}

// job is a cell to run.
type job struct {
	cell     *Cell
	workload int // its number
	// collect reads the workload that this cell shares with others, for all of
	// them; nil: the cell opens its own.
	collect func() (*scenario.Collected, error)
}

// todo returns the shard's cells that are to run; those with the same workload
// stand together, so that they can share it.
func (d *Dir) todo(o RunOptions, sum *Summary) ([]job, error) {
	order, err := d.byWorkload()
	if err != nil {
		return nil, err
	}
	if n := o.Shard.Count; n > 0 {
		order = order[o.Shard.Index*len(order)/n : (o.Shard.Index+1)*len(order)/n]
	}
	var todo []job
	for _, j := range order {
		r, failed, broken := d.look(j.cell)
		switch {
		case r != nil:
			sum.Kept++
		case failed != nil && !broken && !o.Retry:
			sum.Failed = append(sum.Failed, *failed)
		default:
			if todo = append(todo, j); broken && o.Warn != nil {
				o.Warn(fmt.Sprintf("cell %d (%s) runs again: %s", failed.Index, failed.What, failed.Error))
			}
		}
	}
	return todo, nil
}

// workloadKey is the same for cells that have the same workload: all that it
// depends on is the section of the scenario and the seed.
func workloadKey(sc *scenario.Scenario) string { return fmt.Sprintf("%d %#v", sc.Seed, sc.Workload) }

// byWorkload orders the cells so that those with the same workload stand
// together, in the order in which the workloads first appear.
func (m *Manifest) byWorkload() ([]job, error) {
	numbers := map[string]int{}
	order := make([]job, len(m.Cells))
	for i := range m.Cells {
		sc, err := m.ScenarioOf(&m.Cells[i])
		if err != nil {
			return nil, err
		}
		key := workloadKey(sc)
		if _, ok := numbers[key]; !ok {
			numbers[key] = len(numbers)
		}
		order[i] = job{cell: &m.Cells[i], workload: numbers[key]}
	}
	slices.SortStableFunc(order, func(a, b job) int { return a.workload - b.workload })
	return order, nil
}

// share has neighbours with the same workload read it together.
func (d *Dir) share(ctx context.Context, todo []job) {
	for i := 1; i < len(todo); i++ {
		j, last := &todo[i], &todo[i-1]
		if j.workload != last.workload {
			continue
		}
		if last.collect == nil {
			last.collect = sync.OnceValues(func() (*scenario.Collected, error) {
				sc, err := d.ScenarioOf(last.cell)
				if err != nil {
					return nil, err
				}
				return sc.Collect(ctx)
			})
		}
		j.collect = last.collect
	}
}

// runCell runs one cell and writes its file, or that of its failure, which it
// returns. Its error is one that stops the sweep.
func (d *Dir) runCell(ctx context.Context, j *job) (failed, err error) {
	res, lat, failed := d.simulate(ctx, j)
	j.collect = nil // the workload goes with the last cell that needs it
	if err := ctx.Err(); err != nil {
		return nil, err // not the cell's fault
	}
	if failed != nil {
		return failed, d.writeFailure(j.cell, failed)
	}
	if err := d.writeCell(j.cell, res, lat); err != nil {
		return nil, err
	}
	if err := os.Remove(d.failurePath(j.cell)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return nil, nil
}

// simulate runs a cell's scenario. A panic is the failure of this cell alone.
func (m *Manifest) simulate(ctx context.Context, j *job) (res *result.Result, lat *series.Latencies, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	sc, err := m.ScenarioOf(j.cell)
	if err != nil {
		return nil, nil, err
	}
	lat = series.NewLatencies()
	o := scenario.RunOptions{SLO: m.SLO(), Oracle: m.Oracle, Watch: func([]trace.Adapter) any { return lat }}
	if j.collect != nil {
		c, err := j.collect()
		if err != nil {
			return nil, nil, err
		}
		if c != nil {
			o.Input = c.Input()
		}
	}
	res, err = sc.Simulate(ctx, o)
	return res, lat, err
}
