package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/accuracy/eppcases"
	"lorasim/bench/accuracy/recorded"
	"lorasim/bench/accuracy/steps"
	"lorasim/bench/accuracy/validate"
	"lorasim/bench/accuracy/vllmruns"
	"lorasim/internal/atomicfile"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// tableFlags name a table of measured runs and its further files.
type tableFlags struct {
	runs, histograms, groups string
	seeds                    int
	seed                     uint64
}

// add adds the flags. further flags are listed after the histograms.
func (f *tableFlags) add(cmd *cobra.Command, seeds int, runsHelp string, further ...option) {
	flags(cmd, tableHeading,
		opt(&f.runs, "runs", "", runsHelp),
		opt(&f.histograms, "histograms", "", "Invocations per adapter by stride, JSON `file`"))
	flags(cmd, tableHeading, further...)
	flags(cmd, tableHeading,
		opt(&f.groups, "groups", "", "Settings of the table's groups of runs, YAML `file` (default: built in)"),
		opt(&f.seeds, "seeds", seeds, "Number of draws of the lengths", ">=1 <=1e6"),
		opt(&f.seed, "seed", 1, "First seed", ">=0"))
}

// validateFlags are the arguments of the validate command.
type validateFlags struct {
	table                    tableFlags
	use, logs, profile, plot string
	vllmSteps, sglangBatches string
	vllmRuns, tables         string
	recorded                 recordedFlags
	eppCases                 string
	slora                    sloraFlags
	intervals                bool
}

const vllmRunsHelp = "Table of measured hours of vLLM, CSV `file`"

func newValidate() *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Compare the simulator's predictions with measured runs",
		Long: `Validate simulates measured runs and prints the error of each metric: the runs
of a table (--runs, whose arrivals follow from --histograms), the closed-loop
blocks of serving-benchmark logs (--logs), or runs of which every request was
recorded (--records).

The lengths of the requests of a table's runs were not recorded. They are drawn
for several seeds, and the prediction is the mean over the seeds. Runs whose
offered load is within 15 % of the workers' capacity are marked: there, small
differences in speed decide whether a queue builds up.

With --vllm-runs the table holds measured hours of vLLM with many adapters: Poisson
arrivals for an hour, of which only the completed requests count. Tables of the
servers' KV caches and adapter loads are in the same folder (--tables).

With --records each run is replayed with its own arrivals and lengths, behind the
client's limit of requests in flight. The report has duration, TTFT, TPOT and E2E of
each run, the median and the largest error over the runs, and the median error of
single requests.

With --slora-runs the table holds the published runs of S-LoRA. The requests of each
are generated exactly; only means were measured. Runs of other systems are counted and
skipped.

The rules of the engines' schedulers need no times: --vllm-steps compares every step
of the simulated scheduler with recorded steps of vLLM. --sglang-batches does so for
every batch of sglang; --overlap-schedule says that the server ran with the overlap
schedule. --epp-cases compares the policy epp with recorded decisions of endpoint
pickers of Kubernetes gateways. The command fails if a case differs.`,
		Example: `  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --use validation
  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --json
  lorasim validate --runs mine.csv --histograms mine.json --profile mine.yaml --plot fit.svg
  lorasim validate --logs logs/
  lorasim validate --records low.csv.gz high.csv.gz --profile mine.yaml --max-concurrency 256 --plot fit.svg
  lorasim validate --vllm-runs vllm_lora/runs.csv --use validation
  lorasim validate --slora-runs slora_runs/runs.csv --use validation
  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --intervals
  lorasim validate --vllm-steps vllm_steps/ --json
  lorasim validate --epp-cases epp_cases/`,
	}
	f.table.add(cmd, 64, "Table of measured runs, CSV `file`",
		opt(&f.use, "use", "", "Only the runs of this use: calibration or validation (--vllm-runs, --slora-runs: or held)"))
	flags(cmd, "Logs", opt(&f.logs, "logs", "", "Logs of serving benchmarks in place of a table: `folder` or file"))
	f.recorded.add(cmd, "Records")
	flags(cmd, outputHeading,
		opt(&f.profile, "profile", "", "Worker profile, a name or a file; default: that of the table, the log or the model; --vllm-runs also takes MODEL=PROFILE,...; needed with --records"),
		opt(&f.plot, "plot", "", "Draw predicted against measured into an SVG `file`"))
	writes(cmd, []string{".svg"}, "plot")
	flags(cmd, vllmHeading,
		opt(&f.vllmRuns, "vllm-runs", "", vllmRunsHelp),
		opt(&f.tables, "tables", "", "`Folder` of kv_capacity.csv, load_times.csv and sharegpt_hist.csv (default: that of the table)"))
	f.slora.add(cmd)
	flags(cmd, outputHeading, opt(&f.intervals, "intervals", false,
		"--runs, --vllm-runs, --records: print prediction intervals from held-out runs, and their coverage"))
	flags(cmd, "Steps of an engine's scheduler",
		opt(&f.vllmSteps, "vllm-steps", "",
			"Steps of vLLM's scheduler, `folder` with NAME.case.json and NAME.steps.jsonl"),
		opt(&f.sglangBatches, "sglang-batches", "", "Batches of sglang's scheduler, `folder` with NAME.json"))
	flags(cmd, "Decisions of an endpoint picker", opt(&f.eppCases, "epp-cases", "",
		"Recorded decisions, `folder` with NAME.jsonl[.gz] and configs/"))
	flags(cmd, outputHeading, opt(new(bool), "json", false, "Print one JSON object"))
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := f.recorded.take(args); err != nil {
			return err
		}
		if err := onlyOne("expected one of --records, --runs with --histograms, --logs, --vllm-runs, --vllm-steps, "+
			"--sglang-batches, --epp-cases, --slora-runs", f.recorded.given(), f.table.runs, f.logs, f.vllmRuns,
			f.vllmSteps, f.sglangBatches, f.eppCases, f.slora.runs); err != nil {
			return err
		}
		if f.intervals && f.table.runs == "" && f.vllmRuns == "" && f.recorded.given() == "" {
			return usage(errors.New("--intervals needs --runs, --vllm-runs or --records"))
		}
		var report interface {
			WriteText(io.Writer) error
			Plot(io.Writer) error
			Intervals() *validate.IntervalReport
		}
		switch {
		case f.vllmSteps != "" || f.sglangBatches != "":
			return f.steps(cmd)
		case f.eppCases != "":
			return f.decisions(cmd)
		case f.slora.runs != "":
			return f.slora.validate(cmd, f.profile, f.use, f.plot)
		case f.vllmRuns != "":
			report, err = f.vllmReport(cmd)
		case f.recorded.given() != "":
			report, err = f.recordedReport(cmd)
		default:
			report, err = f.report(cmd)
		}
		if err != nil {
			return err
		}
		if f.plot != "" {
			if err := atomicfile.Write(f.plot, func(w *atomicfile.File) error { return report.Plot(w) }); err != nil {
				return err
			}
		}
		if f.intervals {
			in := report.Intervals()
			if len(in.Profiles) == 0 {
				return errors.New("--intervals: all runs are of use calibration, or were not predicted")
			}
			return show(cmd, in.WriteText, inJSON(in, "  "))
		}
		return show(cmd, report.WriteText, inJSON(report, "  "))
	}
	return cmd
}

// recordedReport compares a profile with recorded runs.
func (f *validateFlags) recordedReport(cmd *cobra.Command) (*recorded.Report, error) {
	if f.profile == "" {
		return nil, usage(errors.New("--records needs --profile"))
	}
	p, err := loadAny(cmd, f.profile)
	if err != nil {
		return nil, err
	}
	if err := f.recorded.override(cmd, p); err != nil {
		return nil, err
	}
	runs, err := f.recorded.read(cmd)
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.done()
	return recorded.Compare(cmd.Context(), runs, p, bar.runs)
}

// steps compares the simulated schedulers with the steps of an engine.
func (f *validateFlags) steps(cmd *cobra.Command) error {
	compare, dir := steps.VLLM, f.vllmSteps
	if f.sglangBatches != "" {
		compare, dir = steps.SGLang, f.sglangBatches
		if cmd.Flags().Lookup("overlap-schedule").Value.String() == "true" {
			compare = steps.SGLangOverlap
		}
	}
	report, err := compare(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if err := show(cmd, report.WriteText, inJSON(report, "  ")); err != nil {
		return err
	}
	return report.Err()
}

// decisions compares endpoint picker configurations with recorded decisions.
func (f *validateFlags) decisions(cmd *cobra.Command) error {
	report, err := eppcases.Compare(cmd.Context(), f.eppCases)
	if err != nil {
		return err
	}
	if err := show(cmd, report.WriteText, inJSON(report, "  ")); err != nil {
		return err
	}
	return report.Err()
}

func (f *validateFlags) report(cmd *cobra.Command) (*validate.Report, error) {
	name := f.profile
	if f.table.runs != "" {
		name = cmp.Or(name, "llama-2-7b-rtx-4090-sglang-0.5")
	}
	var p *profile.Profile
	if name != "" {
		var err error
		if p, err = profile.Load(cmd.Context(), name); err != nil {
			return nil, err
		}
	}
	if f.logs != "" {
		blocks, err := validate.ReadLogs(cmd.Context(), f.logs)
		if err != nil {
			return nil, err
		}
		return validate.CompareBlocks(cmd.Context(), blocks, p)
	}
	runs, hists, groups, err := f.table.read(cmd.Context(), f.use)
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr())
	rows, err := validate.Simulate(cmd.Context(), runs, hists, validate.Options{
		Profile: p, Groups: groups, Seeds: f.table.seeds, FirstSeed: f.table.seed,
		Progress: bar.runs,
	})
	bar.done()
	if err != nil {
		return nil, err
	}
	report := validate.NewReport(rows)
	report.Profile, report.Seeds = p.Name, f.table.seeds
	if f.use != "" {
		report.Use = f.use
	}
	return report, nil
}

// read reads the files. If a use is given, it returns only the table's runs of that use.
func (f *tableFlags) read(ctx context.Context, use string) (runs []validate.Run, hists validate.Histograms,
	groups *validate.Groups, err error) {
	if f.histograms == "" {
		return nil, nil, nil, usage(errors.New("--runs needs --histograms: the runs' arrivals follow from them"))
	}
	groups = validate.DefaultGroups()
	if f.groups != "" {
		if groups, err = textfile.Read(ctx, f.groups, validate.ReadGroups); err != nil {
			return nil, nil, nil, err
		}
	}
	if runs, err = textfile.Read(ctx, f.runs, validate.ReadRuns); err != nil {
		return nil, nil, nil, err
	}
	if runs, err = ofUse(runs, f.runs, use, func(r validate.Run) string { return r.Use }, validate.Calibration,
		validate.Validation); err != nil {
		return nil, nil, nil, err
	}
	hists, err = textfile.Read(ctx, f.histograms, validate.ReadHistograms)
	return runs, hists, groups, err
}

// ofUse returns the runs of a table with the given use; "": all. uses are the allowed uses.
func ofUse[Run any](runs []Run, table, use string, of func(Run) string, uses ...string) ([]Run, error) {
	if use == "" {
		return runs, nil
	}
	if err := oneOf("use", "use", use, uses); err != nil {
		return nil, err
	}
	runs = slices.DeleteFunc(runs, func(r Run) bool { return of(r) != use })
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no run has use %s", table, use)
	}
	return runs, nil
}

// vllmReport compares the simulator with a table of measured hours of vLLM.
func (f *validateFlags) vllmReport(cmd *cobra.Command) (*vllmruns.Report, error) {
	profiles, err := profilesOf(cmd.Context(), f.profile)
	if err != nil {
		return nil, err
	}
	runs, err := textfile.Read(cmd.Context(), f.vllmRuns, vllmruns.Read)
	if err != nil {
		return nil, err
	}
	runs, err = ofUse(runs, f.vllmRuns, f.use, func(r vllmruns.Run) string { return r.Use }, validate.Calibration,
		validate.Validation, vllmruns.Held)
	if err != nil {
		return nil, err
	}
	tables, err := vllmruns.ReadTables(cmd.Context(), cmp.Or(f.tables, filepath.Dir(f.vllmRuns)))
	if err != nil {
		return nil, fmt.Errorf("the tables beside the runs (see --tables): %w", err)
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.done()
	rows, err := vllmruns.Simulate(cmd.Context(), runs, tables, vllmruns.Options{Profiles: profiles,
		Progress: bar.runs})
	if err != nil {
		return nil, err
	}
	return vllmruns.NewReport(rows, f.use), nil
}

// profilesOf parses MODEL=PROFILE,... of --profile with --vllm-runs.
func profilesOf(ctx context.Context, list string) (map[string]*profile.Profile, error) {
	if list == "" {
		return nil, nil
	}
	ps := map[string]*profile.Profile{}
	for pair := range strings.SplitSeq(list, ",") {
		model, name, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage(errors.New("--profile: with --vllm-runs expected MODEL=PROFILE for each model, separated by commas"))
		}
		p, err := profile.Load(ctx, name)
		if err != nil {
			return nil, err
		}
		ps[model] = p
	}
	return ps, nil
}
