package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		mu     sync.Mutex
		failed int
		loads  = newWorkloads(todo)
	)
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(todo)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			reason, err := d.runCell(ctx, todo[i], loads)
			if err != nil {
				stop(err)
				return
			}
			mu.Lock()
			if sum.Ran++; reason != nil {
				c := todo[i].cell
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

// job is a cell to run and the number of its workload.
type job struct {
	cell     *Cell
	workload int
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
		c := j.cell
		state, _, message := d.look(c)
		switch {
		case state == stateDone:
			sum.Kept++
		case state == stateFailed && !o.Retry:
			sum.Failed = append(sum.Failed, FailedCell{c.Index, d.Describe(c), message})
		default:
			if todo = append(todo, j); state == stateBroken && o.Warn != nil {
				o.Warn(fmt.Sprintf("cell %d (%s) runs again: %s", c.Index, d.Describe(c), message))
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
		order[i] = job{&m.Cells[i], numbers[key]}
	}
	slices.SortStableFunc(order, func(a, b job) int { return a.workload - b.workload })
	return order, nil
}

// runCell runs one cell and writes its file, or that of its failure, which it
// returns. Its error is one that stops the sweep.
func (d *Dir) runCell(ctx context.Context, j job, w *workloads) (failed, err error) {
	res, lat, failed := d.simulateShared(ctx, j, w)
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

// simulateShared runs a cell with its share of the workload. A panic is the
// failure of this cell alone.
func (d *Dir) simulateShared(ctx context.Context, j job, w *workloads) (res *result.Result, lat *series.Latencies, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	sc, err := d.ScenarioOf(j.cell)
	if err != nil {
		return nil, nil, err
	}
	in, err := w.input(ctx, j, sc)
	if err != nil {
		return nil, nil, err
	}
	return d.simulate(ctx, sc, in)
}

// simulate runs a cell's scenario. in is its workload, nil: it opens its own.
func (m *Manifest) simulate(ctx context.Context, sc *scenario.Scenario, in *scenario.Input) (*result.Result, *series.Latencies, error) {
	lat := series.NewLatencies()
	res, err := sc.Simulate(ctx, scenario.RunOptions{SLO: m.SLO(), Input: in, Watch: func([]trace.Adapter) any { return lat }})
	return res, lat, err
}

// maxShared is the number of requests up to which the workload of several cells
// is held in memory; beyond, each cell reads its own.
const maxShared = 4 << 20

// workloads holds those that cells under way share, by number, each as long as a
// cell still needs it.
type workloads struct {
	mu sync.Mutex
	by map[int]*shared
}

type shared struct {
	cells   int  // that still are to begin
	several bool // from the start
	once    sync.Once
	w       *trace.Workload // nil: each cell opens its own
	dataset string
	err     error
}

func newWorkloads(todo []job) *workloads {
	ws := &workloads{by: map[int]*shared{}}
	for _, j := range todo {
		s := ws.by[j.workload]
		if s == nil {
			s = &shared{}
			ws.by[j.workload] = s
		}
		s.cells++
		s.several = s.cells > 1
	}
	return ws
}

// input is the workload of a cell where others share it, else nil.
func (ws *workloads) input(ctx context.Context, j job, sc *scenario.Scenario) (*scenario.Input, error) {
	ws.mu.Lock()
	s := ws.by[j.workload]
	if s.cells--; s.cells == 0 {
		delete(ws.by, j.workload)
	}
	ws.mu.Unlock()
	if s.several {
		s.once.Do(func() { s.w, s.dataset, s.err = collect(ctx, sc) })
	}
	if s.w == nil {
		return nil, s.err
	}
	return &scenario.Input{Source: s.w.Source(), Dataset: s.dataset}, nil
}

// collect reads the workload into memory, unless it is too large.
func collect(ctx context.Context, sc *scenario.Scenario) (*trace.Workload, string, error) {
	in, err := sc.OpenWorkload(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	w := &trace.Workload{Adapters: in.Adapters()}
	src := trace.Watch(in, func(int64) error { return ctx.Err() })
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return w, in.Dataset, nil
		}
		if err != nil || len(w.Requests) == maxShared {
			return nil, "", err
		}
		w.Requests = append(w.Requests, r)
	}
}
