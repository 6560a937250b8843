package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// fitFlags are the flags that the subcommands of profile fit share.
type fitFlags struct {
	start, name, output string
	hardware, version   string
	coefficients        []string
	evaluations         int
}

func newProfileFit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Fit a profile to measurements",
		Long: `Fit changes the coefficients of a profile, within bounds, so that the simulator's
predictions match measurements. It prints the standard error of each coefficient.
Coefficients that the data cannot determine keep the values of the profile that
the fit starts from. The new profile states its errors on data that the fit has not
seen.

It has one subcommand for each kind of data. Per-request records of a live run are the
best data, above all with the times of the tokens.`,
		Example: `  lorasim profile fit records run.parquet --profile llama-2-7b-rtx-4090-sglang-0.5 -o mine.yaml
  lorasim profile fit logs logs/ --server flashinfer --concurrency 32 --profile analytic:deepseek-v3,h200 -o mine.yaml
  lorasim profile fit kernels kernels.csv --backend triton -o mine.yaml`,
	}
	cmd.AddCommand(newFitRecords(), newFitLogs(), newFitRuns(), newFitKernels(), newFitHours())
	return cmd
}

// add adds the flags of a fit that writes one profile.
func (f *fitFlags) add(cmd *cobra.Command, start string) {
	f.addFit(cmd, start)
	flags(cmd, outputHeading, opt(&f.output, "output,o", "", "Write the fitted profile to `file`; default: print it"))
	writes(cmd, nil, "output")
	jsonFlag(cmd, "Print the fit as one JSON object")
}

// addFit adds the flags that say what is fitted, and how the profile names it.
func (f *fitFlags) addFit(cmd *cobra.Command, start string) {
	flags(cmd, "Fit",
		opt(&f.start, "profile", start,
			"Profile to start from: a name, a file, - for standard input, or analytic:MODEL,GPU"),
		opt(&f.coefficients, "fit", nil,
			"Coefficients to fit, from the list above (default: those that the data identify)"),
		opt(&f.evaluations, "evaluations", 0, "Maximum number of simulations (default: 60 for each coefficient)",
			">=0 <=1e9"))
	flags(cmd, outputHeading,
		opt(&f.name, "name", "", "Name of the fitted profile; default: that of the start with -fitted"),
		opt(&f.hardware, "hardware", "", "Hardware of the data, as in \"H100 80 GB\", stated in the profile"),
		opt(&f.version, "engine-version", "",
			"Engine and version of the data, as in \"vLLM 0.8.5\", stated in the profile"))
	cmd.Long = strings.TrimSuffix(cmd.Long, "\n") + "\n\nCoefficients of --fit:\n" +
		strings.Join(format.Wrap(strings.Join(fit.Coefficients(), ", "), 80), "\n")
}

// check checks the flags with text values.
func (f *fitFlags) check() error {
	for _, name := range f.coefficients {
		if err := oneOf("fit", "coefficient", name, fit.Coefficients()); err != nil {
			return err
		}
	}
	return nil
}

// fit fits a profile by run, and writes it.
func (f *fitFlags) fit(cmd *cobra.Command, override func(*profile.Profile) error,
	run func(o fit.Options) (*fit.Result, error)) error {
	if err := f.check(); err != nil {
		return err
	}
	start, err := loadAny(cmd, f.start)
	if err != nil {
		return err
	}
	if override != nil {
		if err := override(start); err != nil {
			return err
		}
	}
	bar := newProgress(cmd.ErrOrStderr())
	found, err := run(fit.Options{Start: start, Fit: f.coefficients, Evaluations: f.evaluations,
		Progress: func(done, total int, loss float64) {
			bar.set("fitting", int64(done), int64(total), fmt.Sprintf("deviation %.2f", loss))
		}})
	bar.done()
	if err != nil {
		return err
	}
	p := found.Profile
	p.Name, p.Hardware, p.EngineVersion = cmp.Or(f.name, p.Name), cmp.Or(f.hardware, p.Hardware),
		cmp.Or(f.version, p.EngineVersion)
	if f.output == "" && !wantsJSON(cmd) {
		if err := found.WriteText(cmd.ErrOrStderr()); err != nil {
			return err
		}
		return writeYAML(cmd, p)
	}
	if f.output != "" {
		if err := saveYAML(f.output, p); err != nil {
			return err
		}
	}
	return show(cmd, found.WriteText, inJSON(found, "  "))
}

// of adds the name of the file to an error.
func of(file string, found *fit.Result, err error) (*fit.Result, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}

// defaultStart is the profile that most fits start from.
const defaultStart = "llama-2-7b-rtx-4090-sglang-0.5"

func newFitRecords() *cobra.Command {
	var f fitFlags
	var recorded recordedFlags
	var holdout float64
	cmd := &cobra.Command{
		Use:   "records FILE...",
		Short: "Fit a profile to per-request records of live runs",
		Long:  "Records fits a profile to runs of which every request was recorded\n(" + recordsFormats + ").",
		Example: `  lorasim profile fit records run.parquet -o mine.yaml
  lorasim profile fit records low.jsonl high.jsonl --profile engine.yaml -o mine.yaml`,
		Args: cobra.MinimumNArgs(1),
	}
	f.add(cmd, defaultStart)
	recorded.add(cmd, "Records")
	flags(cmd, "Records",
		opt(&holdout, "holdout", 0.25, "Share of the requests, the last ones, that the fit does not see", ">=0 <1"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		recorded.files = args
		override := func(p *profile.Profile) error { return recorded.override(cmd, p) }
		return f.fit(cmd, override, func(o fit.Options) (*fit.Result, error) {
			runs, err := recorded.requests(cmd)
			if err != nil {
				return nil, err
			}
			found, err := fit.Records(cmd.Context(), runs, fit.RecordsOptions{Options: o, Holdout: holdout,
				MaxConcurrency: recorded.maxConcurrency, MemoryStated: recorded.memoryStated})
			return of(strings.Join(args, ", "), found, err)
		})
	}
	return cmd
}

func newFitLogs() *cobra.Command {
	var f fitFlags
	var server string
	var concurrency []int
	cmd := &cobra.Command{
		Use:     "logs PATH",
		Short:   "Fit a profile to the closed-loop blocks of serving-benchmark logs",
		Example: "  lorasim profile fit logs logs/ --server flashinfer --concurrency 32 --profile analytic:deepseek-v3,h200",
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd, defaultStart)
	flags(cmd, "Logs",
		opt(&server, "server", "", "Use only the blocks of this server, by its name in the log"),
		opt(&concurrency, "concurrency", nil,
			"Concurrencies of the blocks to fit; the others are predicted (default: fit all)", ">=1 <=1e6"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.fit(cmd, nil, func(o fit.Options) (*fit.Result, error) {
			blocks, err := measured.ReadLogs(cmd.Context(), args[0])
			if err != nil {
				return nil, err
			}
			var in, left []measured.Block
			for _, b := range blocks {
				switch {
				case b.Skipped != "" || server != "" && b.Server != server:
				case len(concurrency) == 0 || slices.Contains(concurrency, b.Concurrency):
					in = append(in, b)
				default:
					left = append(left, b)
				}
			}
			found, err := fit.Blocks(cmd.Context(), in, left, o)
			return of(args[0], found, err)
		})
	}
	return cmd
}

func newFitRuns() *cobra.Command {
	var f fitFlags
	var t tableFlags
	var fitGroups bool
	var outGroups string
	var folds int
	cmd := &cobra.Command{
		Use:     "runs TABLE.csv --histograms FILE",
		Short:   "Fit a profile to a table of measured runs",
		Long:    "Runs fits a profile to the runs of a table. Rows of use validation are only predicted.",
		Example: "  lorasim profile fit runs lora_runs.csv --histograms seed_workload.json --folds 4 -o mine.yaml",
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd, defaultStart)
	t.add(cmd, 8)
	flags(cmd, tableHeading,
		opt(&fitGroups, "fit-groups", false, "Fit the lengths of the groups too"),
		opt(&outGroups, "output-groups", "", "Write the fitted groups to `file`"),
		opt(&folds, "folds", 0, "Number of folds of a cross-validation (0 disables)", ">=0 <=1000"))
	writes(cmd, nil, "output-groups")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t.runs = args[0]
		return f.fit(cmd, nil, func(o fit.Options) (*fit.Result, error) {
			runs, hists, groups, err := t.read(cmd.Context(), "")
			if err != nil {
				return nil, err
			}
			found, err := fit.Runs(cmd.Context(), runs, hists, fit.RunsOptions{Options: o, Groups: groups,
				Seeds: t.seeds, FirstSeed: t.seed, FitGroups: fitGroups, Folds: folds})
			if err == nil && outGroups != "" {
				return found, saveYAML(outGroups, found.Groups)
			}
			return of(args[0], found, err)
		})
	}
	return cmd
}

func newFitKernels() *cobra.Command {
	var f fitFlags
	var backend, engine string
	cmd := &cobra.Command{
		Use:   "kernels FILE.csv|FOLDER",
		Short: "Fit a profile to timings of LoRA kernels",
		Long: `Kernels reads a CSV file with backend, batch_size, max_rank and median_ms, or the
folder of the GPU kit (kernels.csv and loads.csv). From a folder it fits the kernels of
one engine for the model of the start profile, and the adapter loads.`,
		Example: `  lorasim profile fit kernels kernels.csv --backend triton -o mine.yaml
  lorasim profile fit kernels results/ --engine sglang-csgmv --profile analytic:llama-3.1-8b,h100 -o mine.yaml`,
		Args: cobra.ExactArgs(1),
	}
	f.add(cmd, defaultStart)
	flags(cmd, "Kernels",
		opt(&backend, "backend", "csgmv", "LoRA backend to fit from a CSV file: csgmv or triton"),
		opt(&engine, "engine", "vllm", "Engine to fit from a folder: "+strings.Join(fit.KitEngines(), ", ")))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
			if cmd.Flags().Changed("backend") {
				return usage(errors.New("--backend is for a CSV file; a folder takes --engine"))
			}
			if err := oneOf("engine", "engine", engine, fit.KitEngines()); err != nil {
				return err
			}
			return f.fit(cmd, nil, func(o fit.Options) (*fit.Result, error) {
				kit, err := fit.ReadKit(cmd.Context(), args[0])
				if err != nil {
					return nil, err
				}
				found, err := kit.Fit(engine, o.Start)
				return of(args[0], found, err)
			})
		}
		if cmd.Flags().Changed("engine") {
			return usage(errors.New("--engine is for a folder; a CSV file takes --backend"))
		}
		if err := oneOf("backend", "backend", backend, []string{"csgmv", "triton"}); err != nil {
			return err
		}
		return f.fit(cmd, nil, func(o fit.Options) (*fit.Result, error) {
			ks, err := textfile.Read(cmd.Context(), args[0], fit.ReadKernels)
			if err != nil {
				return nil, err
			}
			found, err := fit.Kernels(ks, backend, o.Start)
			return of(args[0], found, err)
		})
	}
	return cmd
}

func newFitHours() *cobra.Command {
	var tables, output string
	cmd := &cobra.Command{
		Use:   "vllm-runs TABLE.csv -o FOLDER",
		Short: "Fit profiles to measured hours of vLLM with many adapters",
		Long: `Vllm-runs fits the law of distinct adapters to a table of measured hours of vLLM
(runs of use calibration) and to timings of steps. It writes a profile NAME.yaml for
each model into a folder.`,
		Example: "  lorasim profile fit vllm-runs vllm_lora/runs.csv -o profiles/",
		Args:    cobra.ExactArgs(1),
	}
	flags(cmd, "",
		opt(&output, "output,o", "", "Write the profiles into `folder`"),
		opt(&tables, "tables", "", fmt.Sprintf(tablesHelp, "latency.csv, kv_capacity.csv and load_times.csv")))
	jsonFlag(cmd, "Print each fit as one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if output == "" {
			return usage(errors.New("-o FOLDER is missing: the folder to write profiles to"))
		}
		return fitHours(cmd, args[0], cmp.Or(tables, filepath.Dir(args[0])), output)
	}
	return cmd
}

// fitHours fits the law by distinct adapters for each model of a table. dir has the further tables.
func fitHours(cmd *cobra.Command, table, dir, output string) error {
	all, err := textfile.Read(cmd.Context(), table, measured.ReadHours)
	if err != nil {
		return err
	}
	fitted := slices.DeleteFunc(slices.Clone(all), func(r measured.Hour) bool { return r.Use != measured.Calibration })
	models, _ := stats.GroupBy(fitted, func(r *measured.Hour) string { return r.Model })
	if len(models) == 0 {
		return fmt.Errorf("%s: no runs of use calibration", table)
	}
	tables, err := measured.ReadHourTables(cmd.Context(), dir)
	if err != nil {
		return err
	}
	steps, err := textfile.Read(cmd.Context(), filepath.Join(dir, "latency.csv"), fit.ReadStepTimings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	slices.Sort(models)
	bar := newProgress(cmd.ErrOrStderr())
	for _, m := range models {
		name := measured.HourProfile(m)
		if name == "" {
			return fmt.Errorf("%s: no profile to start from for model %q", table, m)
		}
		start, err := profile.Load(cmd.Context(), name)
		if err != nil {
			return err
		}
		hours := fit.Hours{Model: m, Tables: tables, Timings: steps[m],
			Runs:     slices.DeleteFunc(slices.Clone(all), func(r measured.Hour) bool { return r.Model != m }),
			Progress: func(done, total int64) { bar.set("simulating", done, total, m) }}
		found, err := hours.Fit(cmd.Context(), start)
		bar.done()
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		path := filepath.Join(output, name+".yaml")
		if err := saveYAML(path, found.Profile); err != nil {
			return err
		}
		if !wantsJSON(cmd) {
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}
		if err := show(cmd, found.WriteText, inJSON(found, "  ")); err != nil {
			return err
		}
	}
	return nil
}
