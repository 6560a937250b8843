package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/study/sweep"
	"lorasim/internal/format"
	"lorasim/trace/columnar"
)

func newSweep() *cobra.Command {
	var grid gridFlags
	var run sweepRunFlags
	var out sweepTableFlags
	var dir string
	cmd := &cobra.Command{
		Use:   "sweep [SWEEP.yaml] -o DIR",
		Short: "Run a grid of settings, policies and seeds, with intervals",
		Long: `Sweep runs a scenario for every combination of settings, policies and seeds, on
all cores, and prints a table of means with 95 % confidence intervals and of the
differences between policies, paired by seed. The grid comes from a file, from
flags, or from both (flags win). Any setting of a scenario can be varied.

DIR gets a manifest, one Parquet file per run, and the tables cells.* (one row per
run) and table.* (one row per combination and metric) as CSV, JSONL and Parquet.
A sweep that was interrupted goes on where it stopped when it is called again;
one called with further policies, seeds or values runs what they add.
The subcommands do the same in steps, on one machine or many.`,
		Example: `  lorasim sweep -o out --set request_rate=4,8,16 --policies static,affinity-spill --seeds 10
  lorasim sweep -o out --set num_workers=2:8:2 --set max_loras_per_batch=4:32:x2
  lorasim sweep scenarios/skew.yaml -o out
  lorasim sweep status out
  lorasim sweep plan scenarios/skew.yaml -o out && lorasim sweep emit slurm out --shards 16 > job.sh`,
		Args: cobra.MaximumNArgs(1),
	}
	flags(cmd, outputHeading, opt(&dir, "output,o", "", "Write the sweep into `folder`"))
	grid.add(cmd)
	run.add(cmd, false)
	out.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.Flags().Changed("output") && !grid.given(cmd) {
			return usage(errors.New("nothing to run: give SWEEP.yaml, or --set, --policies or --seeds, and -o DIR " +
				"(see lorasim sweep --help)"))
		}
		d, err := grid.create(cmd, args, dir, func(m *sweep.Manifest) error { return out.check(m) })
		if err != nil {
			return err
		}
		if err := d.CheckBaseline(out.baseline); err != nil {
			return usage(fmt.Errorf("--baseline: %w", err))
		}
		sum, err := run.run(cmd, d, true)
		if err != nil {
			return err
		}
		if n := len(sum.Failed); n > 0 && n == sum.Ran && sum.Kept == 0 { // there is no table, but there are reasons
			return failed(cmd, d, sum)
		}
		if err := out.write(cmd, d, len(sum.Failed) > 0); err != nil {
			return err
		}
		return failed(cmd, d, sum)
	}
	cmd.AddCommand(newSweepPlan(), newSweepRun(), newSweepMerge(), newSweepStatus(), newSweepEmit())
	return cmd
}

func newSweepPlan() *cobra.Command {
	var grid gridFlags
	var dir string
	cmd := &cobra.Command{
		Use:     "plan [SWEEP.yaml] -o DIR",
		Short:   "Write the manifest of a sweep, without running it",
		Example: "  lorasim sweep plan scenarios/skew.yaml -o out\n  lorasim sweep plan -o out --set num_workers=2,4 --seeds 10",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := grid.create(cmd, args, dir, nil)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d cells%s, hash %.16s\n", d.Path, len(d.Cells),
				sharedText(d.Shared()), d.Hash)
			return err
		},
	}
	flags(cmd, outputHeading, opt(&dir, "output,o", "", "Write the sweep into `folder`"))
	grid.add(cmd)
	return cmd
}

// ofDir makes a subcommand call work with the folder of a sweep.
func ofDir(cmd *cobra.Command, work func(cmd *cobra.Command, d *sweep.Dir) error) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := sweep.Open(columnar.Files(), args[0])
		if err != nil {
			return err
		}
		return work(cmd, d)
	}
	return cmd
}

func newSweepRun() *cobra.Command {
	var run sweepRunFlags
	cmd := ofDir(&cobra.Command{
		Use:   "run DIR",
		Short: "Run what is left of a planned sweep, or of one shard of it",
		Example: `  lorasim sweep run out
  lorasim sweep run out --shard 0/8
  lorasim sweep run out --shard auto/8    # index from SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX
  lorasim sweep run out --retry           # failed cells again`,
	}, func(cmd *cobra.Command, d *sweep.Dir) error {
		sum, err := run.run(cmd, d, true)
		if err == nil {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d cells run, %d done before, %d failed%s\n", d.Path, sum.Ran,
				sum.Kept, len(sum.Failed), sharedText(sum.Shared))
		}
		if err != nil {
			return err
		}
		return failed(cmd, d, sum)
	})
	run.add(cmd, true)
	return cmd
}

func newSweepMerge() *cobra.Command {
	var out sweepTableFlags
	var partial bool
	cmd := ofDir(&cobra.Command{
		Use:     "merge DIR",
		Short:   "Sum up a sweep whose cells are done",
		Example: "  lorasim sweep merge out\n  lorasim sweep merge out --baseline p2c --metrics p99_ttft_ms,goodput.share\n  lorasim sweep merge out --partial --json",
	}, func(cmd *cobra.Command, d *sweep.Dir) error { return out.write(cmd, d, partial) })
	out.add(cmd)
	flags(cmd, outputHeading, opt(&partial, "partial", false, "Leave out cells that are missing or failed"))
	return cmd
}

func newSweepStatus() *cobra.Command {
	cmd := ofDir(&cobra.Command{
		Use:     "status DIR",
		Short:   "Show the progress of a sweep and its failed cells",
		Example: "  lorasim sweep status out\n  lorasim sweep status out --json",
	}, func(cmd *cobra.Command, d *sweep.Dir) error {
		s := d.Status()
		text := fmt.Sprintf("%s: %d cells, %d done, %d missing, %d failed", d.Path, s.Cells, s.Done, s.Missing,
			len(s.Failed))
		if n := len(s.Broken); n > 0 {
			text += fmt.Sprintf(", %d broken", n)
		}
		text += sharedText(s.Shared)
		for _, f := range append(s.Failed, s.Broken...) {
			text += fmt.Sprintf("\n  cell %d (%s): %s", f.Index, f.What, f.Error)
		}
		return show(cmd, func(w io.Writer) error { _, err := fmt.Fprintln(w, text); return err }, inJSON(s, " "))
	})
	jsonFlag(cmd, "Print as one JSON object")
	return cmd
}

// sharedText returns a text with the number of cells that share the result of another one.
func sharedText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d share the run of another cell)", n)
}

func newSweepEmit() *cobra.Command {
	var job sweep.Job
	cmd := &cobra.Command{
		Use:   "emit slurm|kubernetes|parallel DIR",
		Short: "Print a job file that runs a planned sweep in shards",
		Long: `Emit prints a Slurm array job, a Kubernetes Indexed Job or a script for GNU
parallel. DIR is the folder as the machines that run the shards see it.`,
		Example: `  lorasim sweep emit slurm out --shards 16 --time 0:30:00 > job.sh && sbatch job.sh
  lorasim sweep emit kubernetes /sweeps/out --shards 16 --image registry.local/lorasim | kubectl apply -f -
  lorasim sweep emit parallel out --shards 8 | sh`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			job.Dir = args[1]
			if job.Name == "" && sweep.IsDir(job.Dir) {
				d, err := sweep.Open(columnar.Files(), job.Dir)
				if err != nil {
					return err
				}
				job.Name = d.Name
			}
			return usage(job.Emit(cmd.OutOrStdout(), args[0]))
		},
	}
	flags(cmd, "",
		opt(&job.Shards, "shards", 8, "Number of jobs", ">=1 <=1e6"),
		opt(&job.Jobs, "jobs", 1, "Number of cells that run at a time in one job", ">=1 <=1e6"),
		opt(&job.Program, "program", "lorasim", "Name or path of lorasim on the machines of the jobs"),
		opt(&job.Name, "name", "", "Name of the job (default: that of the sweep)"),
		opt(&job.Time, "time", "", "slurm: time limit of one job, as in 0:30:00"),
		opt(&job.Memory, "memory", "", "Memory limit of one job, as in 2G (slurm) or 2Gi (kubernetes)"),
		opt(&job.Queue, "partition", "", "slurm: partition"),
		opt(&job.Image, "image", "lorasim:latest", "kubernetes: image that has lorasim"),
		opt(&job.Claim, "claim", "sweeps", "kubernetes: persistent volume claim that holds the folder"),
		opt(&job.Mount, "mount", "", "kubernetes: where the claim is mounted (default: the folder above DIR)"))
	return cmd
}

// failed returns an error that names the failed cells.
func failed(cmd *cobra.Command, d *sweep.Dir, sum *sweep.Summary) error {
	if len(sum.Failed) == 0 {
		return nil
	}
	const most = 10
	for i, f := range sum.Failed {
		if i == most {
			say(cmd, "and %d more, see lorasim sweep status %s", len(sum.Failed)-most, d.Path)
			break
		}
		say(cmd, "cell %d (%s) failed: %s", f.Index, f.What, f.Error)
	}
	return fmt.Errorf("%d cells failed; --retry runs them again", len(sum.Failed))
}

// sweepRunFlags configure the runs of the cells.
type sweepRunFlags struct {
	sweep.RunOptions
	shard string
}

func (r *sweepRunFlags) add(cmd *cobra.Command, shards bool) {
	r.addTo(cmd, runHeading)
	if shards {
		flags(cmd, runHeading, opt(&r.shard, "shard", "",
			"Run part `I/N` alone, 0 <= I < N; auto/N: I from the batch system"))
	}
}

// addTo adds the flags of all runs under a heading.
func (r *sweepRunFlags) addTo(cmd *cobra.Command, heading string) {
	flags(cmd, heading,
		opt(&r.Jobs, "jobs", 0, "Number of cells that run at a time (default: number of cores)", ">=0 <=1e5"),
		opt(&r.Retry, "retry", false, "Run cells again that failed"))
}

// run runs the cells. kept says that their folder outlives the command.
func (r *sweepRunFlags) run(cmd *cobra.Command, d *sweep.Dir, kept bool) (*sweep.Summary, error) {
	o := r.RunOptions
	if r.shard != "" {
		var err error
		if o.Shard, err = sweep.ParseShard(r.shard, os.Getenv); err != nil {
			return nil, usage(fmt.Errorf("--shard: %w", err))
		}
	}
	o.Warn = func(message string) { warn(cmd, message) }
	p := newProgress(cmd.ErrOrStderr())
	o.Progress = func(done, failed, total int) {
		p.set("sweep", int64(done), int64(total), fmt.Sprintf("%d of %d cells, %d failed", done, total, failed))
	}
	o.Progress(0, 0, len(d.Cells))
	sum, err := d.Run(cmd.Context(), o)
	p.done()
	if errors.Is(err, context.Canceled) && sum != nil && kept {
		say(cmd, "%d cells done; the same command goes on from there", sum.Ran+sum.Kept)
	}
	return sum, err
}

// sweepTableFlags configure the printed tables.
type sweepTableFlags struct {
	baseline string
	metrics  []string
	wide     bool
}

func (o *sweepTableFlags) add(cmd *cobra.Command) {
	flags(cmd, outputHeading,
		opt(&o.baseline, "baseline", "", "Policy that the others are compared with (default: the first)"),
		opt(&o.metrics, "metrics", result.SweepDefaults(), "Metrics of the printed table; the files have all"),
		opt(&o.wide, "wide", false, "Print all columns side by side (default: tables of at most 100 columns)"),
		opt(new(bool), "json", false, "Print all metrics, and verdicts by those of --metrics, as one JSON object"))
}

// check returns an error for values that cannot be printed, before the runs or after them.
func (o *sweepTableFlags) check(of interface{ CheckMetrics([]string) error }) error {
	if err := of.CheckMetrics(o.metrics); err != nil {
		return usage(fmt.Errorf("--metrics: %w", err))
	}
	return nil
}

func (o *sweepTableFlags) write(cmd *cobra.Command, d *sweep.Dir, partial bool) error {
	t, err := d.Merge(sweep.MergeOptions{Partial: partial, Baseline: o.baseline})
	if err != nil {
		return err
	}
	if t.Left > 0 {
		say(cmd, "note: %d of %d cells are left out", t.Left, len(d.Cells))
	}
	if err := o.check(t); err != nil {
		return err
	}
	var more sweep.JSONOptions
	if len(o.metrics) > 0 {
		metric := o.metrics[0]
		if more.Effects, err = d.Effects(cmd.Context(), t, metric); err != nil {
			return err
		}
		if more.Next, err = nextSweep(cmd, d, t, metric, more.Effects); err != nil {
			return err
		}
	}
	return show(cmd, func(w io.Writer) error { return o.writeText(w, d, t, more) },
		func(w io.Writer) error { return d.WriteJSON(w, t, o.metrics, more) })
}

// writeText prints the answer, the command that would decide what is open, the table, and the effects of axes.
func (o *sweepTableFlags) writeText(w io.Writer, d *sweep.Dir, t *sweep.Tables, more sweep.JSONOptions) error {
	width := format.Width
	if o.wide {
		width = 0
	}
	if len(o.metrics) > 0 {
		text := ""
		for _, line := range d.Answer(t, o.metrics[0], more.Effects) {
			text += format.Paragraph(line, width) + "\n"
		}
		if more.Next != "" {
			text += "Next: " + more.Next + "\n"
		}
		if text != "" {
			text += "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	err := d.WriteTable(w, t, sweep.TextOptions{Metrics: o.metrics, Wide: o.wide})
	if err != nil || more.Effects == nil {
		return err
	}
	return d.WriteEffects(w, more.Effects, width)
}

// leastGain is the difference that further seeds of a sweep are to show, as a share.
const leastGain = 0.02

// mostSeeds is the largest number of seeds that a sweep suggests.
const mostSeeds = 1000

// nextSweep returns the command that would give the verdicts that a sweep leaves open; "": there is none.
func nextSweep(
	cmd *cobra.Command, d *sweep.Dir, t *sweep.Tables, metric string, effects []sweep.AxisEffect,
) (string, error) {
	whole := cmd.Name() == "sweep" // the subcommands do not have the flags of the grid
	if needed, own := t.Needed(); needed > 0 && result.MetricOf(metric).NeedsSteady {
		sc, err := d.ScenarioOf(&d.Cells[0])
		if err != nil || sc.Workload.Ended(own) {
			return "", err
		}
		requests, folder := strconv.FormatInt(needed, 10), fmt.Sprintf("%s-%d", strings.TrimRight(d.Path, "/"), needed)
		if whole {
			return again(cmd, "num-prompts", requests, "output", folder), nil
		}
		return d.Command(folder, 0, func(sc *scenario.Scenario) error { return sc.Set("num_prompts", requests) })
	}
	n := d.MoreSeeds(t, metric, effects, leastGain)
	switch {
	case n == 0 || n > mostSeeds:
		return "", nil
	case whole:
		return again(cmd, "seeds", strconv.Itoa(n)), nil
	}
	return d.Command(d.Path, n, nil)
}

// gridFlags define a sweep, in addition to or instead of a sweep file.
type gridFlags struct {
	scenario *scenarioFlags
	set      repeated
	policies string
	seeds    int
	goodput  goodputFlags
	name     string
}

func (g *gridFlags) add(cmd *cobra.Command) {
	flags(cmd, gridHeading,
		opt(&g.set, "set", nil, "Vary a setting, `KEY=VALUES`, with VALUES as in 4,8,16, 2:8:2, 4:32:x2 or 8|8,64; repeatable"),
		opt(&g.policies, "policies", "", "Policies to compare: `A,B,...`; with commas in options A|B (default: the scenario's)"),
		opt(&g.seeds, "seeds", 0, "Number of seeds, from --seed on (default: 5)", ">=1 <=1e5"),
		opt(&g.name, "name", "", "Name of the sweep (default: that of the file, or of DIR)"))
	g.goodput.add(cmd, gridHeading, goodputHelp)
	g.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
}

// given reports whether a flag defines a sweep.
func (g *gridFlags) given(cmd *cobra.Command) bool {
	return len(g.set) > 0 || g.policies != "" || cmd.Flags().Changed("seeds") || g.scenario.file != ""
}

// spec returns the sweep of file and flags.
func (g *gridFlags) spec(cmd *cobra.Command, args []string) (spec *sweep.Spec, err error) {
	switch spec = (&sweep.Spec{}); {
	case len(args) > 0 && g.scenario.file != "":
		return nil, errors.New("a sweep file has its own scenario: --scenario cannot be given beside it")
	case len(args) > 0:
		if spec, err = sweep.LoadSpec(cmd.Context(), args[0]); err != nil {
			return nil, unknownSubcommand(cmd, args[0], err)
		}
		spec.Scenario.Files = columnar.Files()
		err = g.scenario.apply(cmd, &spec.Scenario)
	default:
		spec.Scenario, err = g.scenario.scenario(cmd)
	}
	if err != nil {
		return nil, err
	}
	add := func(flag, text string) {
		if err != nil {
			return
		}
		a, e := sweep.ParseSet(text)
		if e == nil {
			e = spec.Add(a)
		}
		if e != nil {
			err = fmt.Errorf("--%s: %w", flag, e)
		}
	}
	for _, text := range g.set {
		add("set", text)
	}
	if g.policies != "" {
		add("policies", "policy="+g.policies)
	}
	if cmd.Flags().Changed("seeds") {
		spec.Seeds, spec.SeedCount = nil, g.seeds
	}
	if err != nil {
		return nil, err
	}
	slo, err := result.ParseSLO(spec.Goodput)
	if err != nil {
		return nil, fmt.Errorf("goodput: %w", err)
	}
	slo, err = g.goodput.parse(slo)
	spec.Goodput, spec.Name = slo.String(), cmp.Or(g.name, spec.Name)
	return spec, err
}

// create plans the sweep in a folder, unless check, if not nil, returns an error.
func (g *gridFlags) create(cmd *cobra.Command, args []string, dir string,
	check func(*sweep.Manifest) error) (*sweep.Dir, error) {
	spec, err := g.spec(cmd, args)
	if err == nil && dir == "" {
		err = errors.New("-o DIR is missing: the folder for the sweep")
	}
	if err != nil {
		return nil, usage(err)
	}
	noteIgnored(cmd, &spec.Scenario)
	if spec.Name == "" && len(args) > 0 {
		spec.Name = strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0]))
	} else if spec.Name == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		spec.Name = filepath.Base(abs)
	}
	m, err := spec.Plan(cmd.Context())
	if err != nil {
		return nil, usage(err)
	}
	if check != nil {
		if err := check(m); err != nil {
			return nil, err
		}
	}
	asked := len(m.Cells)
	d, err := sweep.Create(dir, m)
	if err == nil && len(d.Cells) > asked {
		say(cmd, "note: %s also has %d cells of an earlier call", dir, len(d.Cells)-asked)
	}
	return d, err
}

// unknownSubcommand returns an error about an unknown subcommand, if name is no file but looks like
// a subcommand.
func unknownSubcommand(cmd *cobra.Command, name string, err error) error {
	if _, e := os.Stat(name); e != nil && !strings.ContainsAny(name, "./") && cmd.HasSubCommands() {
		return unknownCommand(cmd, name)
	}
	return err
}

// policyList reads --policies: A,B,..., or with commas in options A|B.
func policyList(text string) ([]string, error) { return policiesOf("--policies", text) }

// policiesOf is policyList for another flag.
func policiesOf(flag, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	a, err := sweep.ParseSet("policy=" + text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return a.Values, nil
}
