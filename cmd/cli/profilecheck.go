package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/decisions"
	"lorasim/bench/fidelity/measured"
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

// add adds the flags.
func (f *tableFlags) add(cmd *cobra.Command, seeds int) {
	flags(cmd, tableHeading,
		opt(&f.histograms, "histograms", "", "Invocations per adapter by stride, JSON `file`"),
		opt(&f.groups, "groups", "", "Settings of the table's groups of runs, YAML `file` (default: built in)"),
		opt(&f.seeds, "seeds", seeds, "Number of draws of the lengths", ">=1 <=1e6"),
		opt(&f.seed, "seed", 1, "First seed", ">=0"))
}

// checkFlags are the flags that the subcommands of profile check share. A subcommand has those that apply to its data.
type checkFlags struct {
	profile, use, plot string
	intervals          bool
}

const (
	checkProfileHelp = "Worker profile, a name or a file"
	tablesHelp       = "`Folder` of %s (default: that of the table)"
)

// addIntervals adds --intervals.
func (f *checkFlags) addIntervals(cmd *cobra.Command) {
	flags(cmd, outputHeading, opt(&f.intervals, "intervals", false,
		"Print prediction intervals from held-out runs, and their coverage"))
}

// addPlot adds --plot.
func (f *checkFlags) addPlot(cmd *cobra.Command) {
	flags(cmd, outputHeading, opt(&f.plot, "plot", "", "Draw predicted against measured into an SVG `file`"))
	writes(cmd, []string{".svg"}, "plot")
}

func newProfileCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare predictions with measured runs, and decisions with recorded ones",
		Long: `Check simulates measured runs and prints the error of each metric. It has one
subcommand for each kind of data.

Steps of schedulers and decisions of endpoint pickers need no times: the simulated
rules must give exactly what was recorded, else the command fails.`,
		Example: `  lorasim profile check records low.csv.gz high.csv.gz --profile mine.yaml --max-concurrency 256
  lorasim profile check logs logs/
  lorasim profile check runs lora_runs.csv --histograms seed_workload.json --use validation
  lorasim profile check vllm-steps vllm_steps/ --json`,
	}
	cmd.AddCommand(newCheckRecords(), newCheckLogs(), newCheckPoints(), newCheckRuns(), newCheckHours(),
		newCheckSteps(), newCheckBatches(), newCheckPicker())
	for _, c := range cmd.Commands() {
		jsonFlag(c, "Print one JSON object")
	}
	return cmd
}

func newCheckRecords() *cobra.Command {
	var f checkFlags
	var recorded recordedFlags
	cmd := &cobra.Command{
		Use:   "records FILE...",
		Short: "Check a profile with runs of which every request was recorded",
		Long: `Records replays each run with its own arrivals and lengths, behind the client's
limit of requests in flight. The report has duration, TTFT, TPOT and E2E of each run,
the median and the largest error over the runs, and the median error of single
requests. A file has the records of one run (` + recordsFormats + `).`,
		Example: `  lorasim profile check records run.csv --profile mine.yaml
  lorasim profile check records low.csv.gz high.csv.gz --profile mine.yaml --max-concurrency 256 --plot fit.svg`,
		Args: cobra.MinimumNArgs(1),
	}
	flags(cmd, "", opt(&f.profile, "profile", "", checkProfileHelp))
	recorded.add(cmd, "")
	f.addIntervals(cmd)
	f.addPlot(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.profile == "" {
			return usage(errors.New("--profile is missing: the profile to check"))
		}
		recorded.files = args
		report, err := f.recordedReport(cmd, &recorded)
		if err != nil {
			return err
		}
		return f.show(cmd, report)
	}
	return cmd
}

func newCheckLogs() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:     "logs PATH",
		Short:   "Check a profile with the closed-loop blocks of serving-benchmark logs",
		Example: "  lorasim profile check logs logs/\n  lorasim profile check logs bench.log --profile mine.yaml",
		Args:    cobra.ExactArgs(1),
	}
	flags(cmd, "", opt(&f.profile, "profile", "", checkProfileHelp+" (default: by model and server of the log)"))
	f.addPlot(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := loadOptional(cmd.Context(), f.profile)
		if err != nil {
			return err
		}
		blocks, err := measured.ReadLogs(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		report, err := check.Logs(cmd.Context(), blocks, p)
		if err != nil {
			return err
		}
		return f.show(cmd, report)
	}
	return cmd
}

func newCheckPoints() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "points TABLE.csv",
		Short: "Check computed profiles with a table of measured closed-loop points",
		Long: `Points simulates each point with the computed profile of its model, GPUs, bits and
engine, and prints the errors of each group. Columns are those of AIConfigurator's
systems/silicon_sample.csv. Points that no profile can express, that exceed the KV
cache or that are faster than the GPU are left out, with the reason.`,
		Example: "  lorasim profile check points silicon_sample.csv",
		Args:    cobra.ExactArgs(1),
	}
	f.addPlot(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		points, err := textfile.Read(cmd.Context(), args[0], measured.ReadPoints)
		if err != nil {
			return err
		}
		bar := newProgress(cmd.ErrOrStderr())
		report, err := check.Points(cmd.Context(), points, bar.runs)
		bar.done()
		if err != nil {
			return err
		}
		return f.show(cmd, report)
	}
	return cmd
}

// loadOptional loads a profile; nil if the name is empty.
func loadOptional(ctx context.Context, name string) (*profile.Profile, error) {
	if name == "" {
		return nil, nil
	}
	return profile.Load(ctx, name)
}

func newCheckRuns() *cobra.Command {
	var f checkFlags
	var table tableFlags
	cmd := &cobra.Command{
		Use:   "runs TABLE.csv --histograms FILE",
		Short: "Check a profile with a table of measured runs",
		Long: `Runs simulates the runs of a table, whose arrivals follow from --histograms. The
lengths of their requests were not recorded. They are drawn for several seeds, and
the prediction is the mean over the seeds. Runs whose offered load is within 15 % of
the workers' capacity are marked: there, small differences in speed decide whether a
queue builds up.`,
		Example: `  lorasim profile check runs lora_runs.csv --histograms seed_workload.json --use validation
  lorasim profile check runs mine.csv --histograms mine.json --profile mine.yaml --plot fit.svg`,
		Args: cobra.ExactArgs(1),
	}
	flags(cmd, "",
		opt(&f.profile, "profile", defaultStart, checkProfileHelp),
		opt(&f.use, "use", "", "Only the runs of this use: calibration or validation"))
	table.add(cmd, 64)
	f.addIntervals(cmd)
	f.addPlot(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		table.runs = args[0]
		report, err := f.runsReport(cmd, &table)
		if err != nil {
			return err
		}
		return f.show(cmd, report)
	}
	return cmd
}

func newCheckHours() *cobra.Command {
	var f checkFlags
	var tables string
	cmd := &cobra.Command{
		Use:   "vllm-runs TABLE.csv",
		Short: "Check profiles with measured hours of vLLM with many adapters",
		Long: `Vllm-runs simulates measured hours of vLLM: Poisson arrivals for an hour, of which
only the completed requests count. Tables of the servers' KV caches and adapter loads
are in the same folder, or in --tables.`,
		Example: "  lorasim profile check vllm-runs vllm_lora/runs.csv --use validation",
		Args:    cobra.ExactArgs(1),
	}
	flags(cmd, "",
		opt(&f.profile, "profile", "", "Profiles of the table's models, `MODEL=PROFILE,...` (default: the embedded ones)"),
		opt(&f.use, "use", "", "Only the runs of this use: calibration, validation or held"),
		opt(&tables, "tables", "", fmt.Sprintf(tablesHelp, "kv_capacity.csv, load_times.csv and sharegpt_hist.csv")))
	f.addIntervals(cmd)
	f.addPlot(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := f.vllmReport(cmd, args[0], tables)
		if err != nil {
			return err
		}
		return f.show(cmd, report)
	}
	return cmd
}

// newCheckDecisions returns a subcommand that compares simulated decisions with those that a folder has.
func newCheckDecisions(cmd cobra.Command, compare func(context.Context, string) (*decisions.Report,
	error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := compare(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if err := show(cmd, report.WriteText, inJSON(report, "  ")); err != nil {
			return err
		}
		return report.Err()
	}
	return &cmd
}

func newCheckSteps() *cobra.Command {
	return newCheckDecisions(cobra.Command{
		Use:   "vllm-steps FOLDER",
		Short: "Compare every step of the simulated scheduler with recorded steps of vLLM",
		Long:  "Vllm-steps reads NAME.case.json and NAME.steps.jsonl of a folder. It fails if a case differs.",
	}, decisions.VLLMSteps)
}

func newCheckBatches() *cobra.Command {
	var overlap bool
	cmd := newCheckDecisions(cobra.Command{
		Use:   "sglang-batches FOLDER",
		Short: "Compare every batch of the simulated scheduler with recorded batches of sglang",
		Long:  "Sglang-batches reads NAME.json of a folder. It fails if a case differs.",
	}, func(ctx context.Context, folder string) (*decisions.Report, error) {
		if overlap {
			return decisions.SGLangOverlapBatches(ctx, folder)
		}
		return decisions.SGLangBatches(ctx, folder)
	})
	flags(cmd, "", opt(&overlap, "overlap-schedule", false, "The server ran with the overlap schedule"))
	return cmd
}

func newCheckPicker() *cobra.Command {
	return newCheckDecisions(cobra.Command{
		Use:   "epp-cases FOLDER",
		Short: "Compare the policy epp with recorded decisions of endpoint pickers",
		Long: `Epp-cases reads decisions of endpoint pickers of Kubernetes gateways: NAME.jsonl[.gz]
and configs/ of a folder. It fails if a decision differs.`,
	}, decisions.Pickers)
}

// show prints a report, or its intervals, and draws it.
func (f *checkFlags) show(cmd *cobra.Command, report check.Report) error {
	if f.plot != "" {
		if err := atomicfile.Write(f.plot, func(w *atomicfile.File) error { return report.Plot(w) }); err != nil {
			return err
		}
	}
	if !f.intervals {
		return show(cmd, report.WriteText, inJSON(report, "  "))
	}
	in := report.Intervals()
	if len(in.Profiles) == 0 {
		return errors.New("--intervals: all runs are of use calibration, or were not predicted")
	}
	return show(cmd, in.WriteText, inJSON(in, "  "))
}

// recordedReport compares a profile with recorded runs.
func (f *checkFlags) recordedReport(cmd *cobra.Command, from *recordedFlags) (*check.RecordsReport, error) {
	p, err := loadAny(cmd, f.profile)
	if err != nil {
		return nil, err
	}
	if err := from.override(cmd, p); err != nil {
		return nil, err
	}
	if n, err := p.KVTokens(); err == nil && p.Uncalibrated && p.Memory.KVTokens == 0 && !from.memoryStated {
		warn(cmd, fmt.Sprintf("the size of the KV cache is not stated; %d tokens are assumed (--engine-args kv_tokens=N)", n))
	}
	runs, err := from.read(cmd)
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.done()
	return check.Records(cmd.Context(), runs, p, bar.runs)
}

func (f *checkFlags) runsReport(cmd *cobra.Command, table *tableFlags) (*check.RunsReport, error) {
	p, err := profile.Load(cmd.Context(), f.profile)
	if err != nil {
		return nil, err
	}
	runs, hists, groups, err := table.read(cmd.Context(), f.use)
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr())
	report, err := check.Runs(cmd.Context(), runs, hists, measured.RunOptions{
		Profile: p, Groups: groups, Seeds: table.seeds, FirstSeed: table.seed,
		Progress: bar.runs,
	})
	bar.done()
	if err != nil {
		return nil, err
	}
	if f.use != "" {
		report.Use = f.use
	}
	return report, nil
}

// read reads the files. If a use is given, it returns only the table's runs of that use.
func (f *tableFlags) read(ctx context.Context, use string) (runs []measured.Run, hists measured.Histograms,
	groups *measured.Groups, err error) {
	if f.histograms == "" {
		return nil, nil, nil, usage(errors.New("--histograms is missing: the runs' arrivals follow from them"))
	}
	groups = measured.DefaultGroups()
	if f.groups != "" {
		if groups, err = textfile.Read(ctx, f.groups, measured.ReadGroups); err != nil {
			return nil, nil, nil, err
		}
	}
	if runs, err = textfile.Read(ctx, f.runs, measured.ReadRuns); err != nil {
		return nil, nil, nil, err
	}
	if runs, err = ofUse(runs, f.runs, use, func(r measured.Run) string { return r.Use }, measured.Calibration,
		measured.Validation); err != nil {
		return nil, nil, nil, err
	}
	hists, err = textfile.Read(ctx, f.histograms, measured.ReadHistograms)
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
func (f *checkFlags) vllmReport(cmd *cobra.Command, table, folder string) (*check.HoursReport, error) {
	profiles, err := profilesOf(cmd.Context(), f.profile)
	if err != nil {
		return nil, err
	}
	runs, err := textfile.Read(cmd.Context(), table, measured.ReadHours)
	if err != nil {
		return nil, err
	}
	runs, err = ofUse(runs, table, f.use, func(r measured.Hour) string { return r.Use }, measured.Calibration,
		measured.Validation, measured.Held)
	if err != nil {
		return nil, err
	}
	tables, err := measured.ReadHourTables(cmd.Context(), cmp.Or(folder, filepath.Dir(table)))
	if err != nil {
		return nil, fmt.Errorf("the tables beside the runs (see --tables): %w", err)
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.done()
	return check.Hours(cmd.Context(), runs, tables, measured.HourOptions{Profiles: profiles, Progress: bar.runs}, f.use)
}

// profilesOf parses MODEL=PROFILE,....
func profilesOf(ctx context.Context, list string) (map[string]*profile.Profile, error) {
	if list == "" {
		return nil, nil
	}
	ps := map[string]*profile.Profile{}
	for pair := range strings.SplitSeq(list, ",") {
		model, name, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage(errors.New("--profile: expected MODEL=PROFILE for each model, separated by commas"))
		}
		p, err := profile.Load(ctx, name)
		if err != nil {
			return nil, err
		}
		ps[model] = p
	}
	return ps, nil
}
