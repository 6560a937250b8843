package sweep

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/scenario"
	"lorasim/internal/slots"
	"lorasim/internal/suggest"
	"lorasim/sim/record"
	"lorasim/trace"
)

// A Shard is part Index of Count parts of a sweep; Index begins at 0.
type Shard struct{ Index, Count int }

// ParseShard reads "I/N" with 0 <= I < N. For "auto/N", the index is that of the array job, from the environment
// variables of Slurm or of Kubernetes' Indexed Jobs.
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

// RunOptions are the options of running a sweep or a shard of it.
type RunOptions struct {
	Shard Shard // shard to run; zero: all cells
	Jobs  int   // concurrent cells; 0: one per core
	Retry bool  // run failed cells again
	// Progress is called with the numbers of cells of this run: done so far, failed among them, and all. Calls do not
	// overlap.
	Progress func(done, failed, total int)
	// Warn is called for each cell with a broken file, before any cell runs.
	Warn func(message string)
}

// A Summary counts the cells of one call of [Dir.Run].
type Summary struct {
	Ran    int // cells that ran in this call
	Kept   int // cells that had finished before
	Shared int // cells that take their result from another cell
	Failed []FailedCell
}

// Run runs the unfinished cells of the shard. A failed cell does not stop the others. Its error is kept in a file, and
// the cell does not run again unless o.Retry is set. Several processes may run different shards of one folder at the
// same time. An error means that the sweep cannot continue; finished cells stay finished.
func (d *Dir) Run(ctx context.Context, o RunOptions) (*Summary, error) {
	if err := errors.Join(d.checkInputs(), d.writable()); err != nil {
		return nil, err
	}
	sum := &Summary{}
	todo, err := d.todo(o, sum)
	if err != nil {
		return nil, err
	}
	g, running := errgroup.WithContext(ctx)
	if g.SetLimit(runtime.GOMAXPROCS(0)); o.Jobs > 0 {
		g.SetLimit(o.Jobs)
	}
	d.share(running, todo)
	var mu sync.Mutex
	before := len(sum.Failed)
	for i := range todo {
		g.Go(func() error {
			c := todo[i].cell
			reason, err := d.runCell(running, &todo[i])
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if sum.Ran++; reason != nil {
				sum.Failed = append(sum.Failed, FailedCell{c.Index, d.Describe(c), reason.Error()})
			}
			if o.Progress != nil {
				o.Progress(sum.Ran, len(sum.Failed)-before, len(todo))
			}
			return nil
		})
	}
	err = g.Wait()
	slices.SortFunc(sum.Failed, func(a, b FailedCell) int { return a.Index - b.Index })
	return sum, cmp.Or(context.Cause(ctx), err)
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
// stand together, so that they can share it. Of cells that must have the same
// result only the first one counts, so that no two shards run the same.
func (d *Dir) todo(o RunOptions, sum *Summary) ([]job, error) {
	order, err := d.byWorkload()
	if err != nil {
		return nil, err
	}
	order = slices.DeleteFunc(order, func(j job) bool { return d.Runs(j.cell) != j.cell.Index })
	if n := o.Shard.Count; n > 0 {
		order = order[o.Shard.Index*len(order)/n : (o.Shard.Index+1)*len(order)/n]
	}
	var todo []job
	for _, j := range order {
		sum.Shared += max(len(d.sharing(j.cell))-1, 0)
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

// runCell runs one cell and writes its file, or the file of its failure. It returns the failure as failed. err stops
// the sweep.
func (d *Dir) runCell(ctx context.Context, j *job) (failed, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	res, lat, failed := d.simulate(ctx, j)
	j.collect = nil // the workload goes with the last cell that needs it
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err() // not the cell's fault
	case failed != nil:
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
	o := scenario.RunOptions{SLO: m.SLO(), Oracle: m.Oracle,
		Watch: func([]trace.Adapter) record.Watcher { return record.WatchEnds(lat.Done) }}
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

// A Job describes how a batch system runs the shards of a sweep.
type Job struct {
	Name    string // name of the job; "": derived from the sweep's name
	Dir     string // folder of the sweep, as mounted on the nodes of the batch system
	Program string // command of lorasim on the nodes; "": lorasim
	Shards  int
	Jobs    int    // cells that one shard runs concurrently; 0: 1
	Time    string // Slurm: limit for one shard, as in 1:00:00
	Memory  string // limit for one shard, as in 2G or 2Gi
	Queue   string // Slurm: partition

	Image string // Kubernetes: image that contains lorasim
	Claim string // Kubernetes: persistent volume claim, mounted at Mount
	Mount string
}

// jobFiles are the job files with slots. Merging is a step of its own after the shards.
//
//go:embed jobs
var jobFiles embed.FS

// Emit writes a job file that runs the shards of a sweep. system is slurm, kubernetes or parallel.
func (j Job) Emit(w io.Writer, system string) error {
	if err := suggest.Among("batch system", system, []string{"slurm", "kubernetes", "parallel"}); err != nil {
		return err
	}
	if err := j.complete(system); err != nil {
		return err
	}
	text, err := jobFiles.ReadFile("jobs/" + system)
	if err != nil {
		return err
	}
	quote := shellQuote
	if system == "kubernetes" {
		quote = strconv.Quote
	}
	merge := shellQuote(j.Program) + " sweep merge " + shellQuote(j.Dir)
	_, err = io.WriteString(w, slots.Fill(string(text), map[string]string{
		"name": j.Name, "dir": j.Dir, "quoted dir": quote(j.Dir), "program": quote(j.Program),
		"shards": strconv.Itoa(j.Shards), "last": strconv.Itoa(j.Shards - 1), "jobs": strconv.Itoa(j.Jobs),
		"time": j.Time, "memory": j.Memory, "queue": j.Queue,
		"image": quote(j.Image), "claim": j.Claim, "mount": quote(j.Mount),
		"merge": merge, "quoted merge": shellQuote(merge),
		// parallel gives the words to a shell of its own
		"twice quoted program": shellQuote(shellQuote(j.Program)), "twice quoted dir": shellQuote(shellQuote(j.Dir)),
	}))
	return err
}

var (
	notLabel = regexp.MustCompile(`[^-a-z0-9]`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// what may stand in a line of #SBATCH, where nothing can be quoted
	plainWord  = regexp.MustCompile(`^[-A-Za-z0-9_.:,+]*$`)
	shellPlain = regexp.MustCompile(`^[-A-Za-z0-9_./:=,+@%]+$`)
)

// complete sets the defaults of the job and checks it.
func (j *Job) complete(system string) error {
	j.Program, j.Image, j.Claim = cmp.Or(j.Program, "lorasim"), cmp.Or(j.Image, "lorasim:latest"),
		cmp.Or(j.Claim, "sweeps")
	j.Mount = cmp.Or(j.Mount, path.Dir(j.Dir))
	j.Name = strings.Trim(notLabel.ReplaceAllString(strings.ToLower(cmp.Or(j.Name, "sweep")), "-"), "-")
	j.Jobs = max(j.Jobs, 1)
	kubernetes := system == "kubernetes"
	switch {
	case j.Shards < 1:
		return fmt.Errorf("shards is %d, expected >= 1", j.Shards)
	case !dnsLabel.MatchString(j.Name):
		return fmt.Errorf("job name %q: expected up to 63 letters, digits and hyphens", j.Name)
	case strings.ContainsAny(j.Dir+j.Program, "\n\r"):
		return fmt.Errorf("folder %q: a job file cannot hold a path with a line break", j.Dir)
	case kubernetes && !dnsLabel.MatchString(j.Claim):
		return fmt.Errorf("claim %q: expected lower-case letters, digits and hyphens", j.Claim)
	case kubernetes && !path.IsAbs(j.Dir):
		return fmt.Errorf("folder %q: Kubernetes needs the absolute path that the sweep has on the volume", j.Dir)
	case kubernetes && strings.ContainsAny(j.Image, " \n\""):
		return fmt.Errorf("image %q: expected NAME[:TAG]", j.Image)
	}
	for _, f := range []struct{ name, v string }{{"time", j.Time}, {"memory", j.Memory}, {"partition", j.Queue}} {
		if !plainWord.MatchString(f.v) {
			return fmt.Errorf("%s %q: expected letters, digits and -_.:,+", f.name, f.v)
		}
	}
	return nil
}

// shellQuote makes one word of the shell out of s.
func shellQuote(s string) string {
	if shellPlain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
