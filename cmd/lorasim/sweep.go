package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lorasim/bench/sweep"
)

const (
	gridHeading = "Grid"
	runHeading  = "Run"
)

func newSweep() *cobra.Command {
	var (
		grid gridFlags
		run  sweepRunFlags
		out  sweepTableFlags
		dir  string
	)
	cmd := &cobra.Command{
		Use:   "sweep [SWEEP.yaml] -o DIR",
		Short: "Run a grid of settings, policies and seeds, and sum it up with confidence intervals",
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
	cmd.Flags().StringVarP(&dir, "output", "o", "", "`folder` for the sweep")
	grid.add(cmd)
	run.add(cmd, false)
	out.add(cmd)
	group(cmd, outputHeading, "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.Flags().Changed("output") && !grid.given(cmd) {
			return cmd.Help()
		}
		d, err := grid.create(cmd, args, dir, out.check)
		if err != nil {
			return err
		}
		if err := d.CheckBaseline(out.baseline); err != nil {
			return usage(fmt.Errorf("--baseline: %w", err))
		}
		sum, err := run.run(cmd, d)
		if err != nil {
			return err
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
	var (
		grid gridFlags
		dir  string
	)
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d cells, hash %.16s\n", d.Path, len(d.Cells), d.Hash)
			return err
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "`folder` for the sweep")
	grid.add(cmd)
	group(cmd, outputHeading, "output")
	return cmd
}

func newSweepRun() *cobra.Command {
	var run sweepRunFlags
	cmd := &cobra.Command{
		Use:   "run DIR",
		Short: "Run what is left of a planned sweep, or of one shard of it",
		Example: `  lorasim sweep run out
  lorasim sweep run out --shard 0/8
  lorasim sweep run out --shard auto/8    # index from SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX
  lorasim sweep run out --retry           # failed cells again`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := sweep.Open(args[0])
			if err != nil {
				return err
			}
			sum, err := run.run(cmd, d)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d cells run, %d done before, %d failed\n", d.Path, sum.Ran, sum.Kept, len(sum.Failed)); err != nil {
				return err
			}
			return failed(cmd, d, sum)
		},
	}
	run.add(cmd, true)
	return cmd
}

func newSweepMerge() *cobra.Command {
	var out sweepTableFlags
	var partial bool
	cmd := &cobra.Command{
		Use:     "merge DIR",
		Short:   "Sum up a sweep whose cells are done",
		Example: "  lorasim sweep merge out\n  lorasim sweep merge out --baseline p2c --metrics p99_ttft_ms,goodput.share\n  lorasim sweep merge out --partial --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := sweep.Open(args[0])
			if err != nil {
				return err
			}
			return out.write(cmd, d, partial)
		},
	}
	out.add(cmd)
	cmd.Flags().BoolVar(&partial, "partial", false, "leave out cells that are missing or failed")
	group(cmd, outputHeading, "partial")
	return cmd
}

func newSweepStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status DIR",
		Short:   "Tell how far a sweep is, and which cells failed",
		Example: "  lorasim sweep status out\n  lorasim sweep status out --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := sweep.Open(args[0])
			if err != nil {
				return err
			}
			s := d.Status()
			w := cmd.OutOrStdout()
			if asJSON {
				return writeJSON(w, s)
			}
			fmt.Fprintf(w, "%s: %d cells, %d done, %d missing, %d failed", d.Path, s.Cells, s.Done, s.Missing, len(s.Failed))
			if n := len(s.Broken); n > 0 {
				fmt.Fprintf(w, ", %d broken", n)
			}
			fmt.Fprintln(w)
			for _, f := range append(s.Failed, s.Broken...) {
				fmt.Fprintf(w, "  cell %d (%s): %s\n", f.Index, f.What, f.Error)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as one JSON object")
	return cmd
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
				d, err := sweep.Open(job.Dir)
				if err != nil {
					return err
				}
				job.Name = d.Name
			}
			return usage(job.Emit(cmd.OutOrStdout(), args[0]))
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&job.Shards, "shards", 8, "number of jobs")
	fs.IntVar(&job.Jobs, "jobs", 1, "cells at a time in one job, so cores of a job")
	within(cmd, ">=1 <=1e6", "shards", "jobs")
	fs.StringVar(&job.Program, "program", "lorasim", "how lorasim is called on those machines")
	fs.StringVar(&job.Name, "name", "", "name of the job (default: that of the sweep)")
	fs.StringVar(&job.Time, "time", "", "slurm: time limit of one job, as in 0:30:00")
	fs.StringVar(&job.Memory, "memory", "", "memory limit of one job, as in 2G (slurm) or 2Gi (kubernetes)")
	fs.StringVar(&job.Queue, "partition", "", "slurm: partition")
	fs.StringVar(&job.Image, "image", "lorasim:latest", "kubernetes: image that has lorasim")
	fs.StringVar(&job.Claim, "claim", "sweeps", "kubernetes: persistent volume claim that holds the folder")
	fs.StringVar(&job.Mount, "mount", "", "kubernetes: where the claim is mounted (default: the folder above DIR)")
	return cmd
}

// failed names the cells that failed; the work as a whole is then not done.
func failed(cmd *cobra.Command, d *sweep.Dir, sum *sweep.Summary) error {
	if len(sum.Failed) == 0 {
		return nil
	}
	const most = 10
	for i, f := range sum.Failed {
		if i == most {
			fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: and %d more, see lorasim sweep status %s\n", len(sum.Failed)-most, d.Path)
			break
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: cell %d (%s) failed: %s\n", f.Index, f.What, f.Error)
	}
	return fmt.Errorf("%d cells failed; --retry runs them again", len(sum.Failed))
}

// sweepRunFlags say how the cells are run.
type sweepRunFlags struct {
	jobs  int
	retry bool
	shard string
}

func (r *sweepRunFlags) add(cmd *cobra.Command, shards bool) {
	fs := cmd.Flags()
	fs.IntVar(&r.jobs, "jobs", 0, "cells at a time (default: as many as there are cores)")
	fs.BoolVar(&r.retry, "retry", false, "run cells again that failed")
	within(cmd, ">=0 <=1e5", "jobs")
	group(cmd, runHeading, "jobs", "retry")
	if shards {
		fs.StringVar(&r.shard, "shard", "", "run part `I/N` alone, 0 <= I < N; auto/N: I from the batch system")
		group(cmd, runHeading, "shard")
	}
}

func (r *sweepRunFlags) run(cmd *cobra.Command, d *sweep.Dir) (*sweep.Summary, error) {
	o := sweep.RunOptions{Jobs: r.jobs, Retry: r.retry}
	if r.shard != "" {
		var err error
		if o.Shard, err = sweep.ParseShard(r.shard, os.Getenv); err != nil {
			return nil, usage(fmt.Errorf("--shard: %w", err))
		}
	}
	o.Warn = func(message string) { fmt.Fprintln(cmd.ErrOrStderr(), "lorasim: warning:", message) }
	p := newProgress(cmd.ErrOrStderr())
	o.Progress = func(done, failed, total int) {
		p.set("sweep", int64(done), int64(total), fmt.Sprintf("%d of %d cells, %d failed", done, total, failed))
	}
	o.Progress(0, 0, len(d.Cells))
	sum, err := d.Run(cmd.Context(), o)
	p.done()
	if errors.Is(err, context.Canceled) && sum != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: %d cells done; the same command goes on from there\n", sum.Ran+sum.Kept)
	}
	return sum, err
}

// sweepTableFlags say how the tables are printed.
type sweepTableFlags struct {
	json     bool
	baseline string
	metrics  []string
}

func (o *sweepTableFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.baseline, "baseline", "", "policy that the others are compared with (default: the first)")
	fs.StringSliceVar(&o.metrics, "metrics", sweep.DefaultMetrics, "metrics of the printed table; the files have all")
	fs.BoolVar(&o.json, "json", false, "print all metrics as one JSON object")
	group(cmd, outputHeading, "baseline", "metrics", "json")
}

// check finds what cannot be printed, before anything has run.
func (o *sweepTableFlags) check(m *sweep.Manifest) error {
	if err := m.CheckMetrics(o.metrics); err != nil {
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
		fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: note: %d of %d cells are left out\n", t.Left, len(d.Cells))
	}
	if o.json {
		return d.WriteJSON(cmd.OutOrStdout(), t)
	}
	if err := t.CheckMetrics(o.metrics); err != nil {
		return usage(fmt.Errorf("--metrics: %w", err))
	}
	return d.WriteText(cmd.OutOrStdout(), t, o.metrics)
}
