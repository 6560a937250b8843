package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/columnar"
	"lorasim/trace/info"
	"lorasim/trace/store"
	"lorasim/trace/synth"
)

func newTrace() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Make, describe, convert and plot workloads and traces",
		Example: `  lorasim trace info AzureLLMInferenceTrace_conv.csv
  lorasim trace import requests.csv -o w.parquet
  lorasim trace workload --trace-path traces/ --trace-name azure_v2 --compat dlora --num-adapters 4 --num-prompts 1000 -o w.csv
  lorasim trace generate --popularity maf2 --arrivals gamma:4 -o w.parquet
  lorasim trace convert w.csv w.parquet
  lorasim trace plot w.parquet -o w.svg`,
	}
	cmd.AddCommand(newTraceImport(), newTraceWorkload(), newTraceInfo(), newTraceGenerate(), newTraceConvert(),
		newTracePlot())
	return cmd
}

func newTraceWorkload() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "workload [SCENARIO.yaml] -o FILE",
		Short: "Save the requests of a trace, histogram or generator as a workload",
		Long: `Workload turns a trace (or a histogram, or the generator) into a list of requests
and saves it, so that simulated and live runs replay exactly the same requests.
The extension of FILE says the format: .csv, .jsonl, .parquet, .arrow.`,
		Example: `  lorasim trace workload --use-trace --trace-name azure_v2 --trace-path maf2/ --compat dlora --num-adapters 4 --num-prompts 1000 -o w.csv
  lorasim trace workload --trace-histogram 111,159,58,291 --compat dlora --num-prompts 1000 -o w.csv
  lorasim trace workload --trace-name azure_llm --trace-path AzureLLMInferenceTrace_code.csv --num-adapters 32 -o w.parquet`,
		Args: cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "workload")
	flags(cmd, "", opt(&out, "output,o", "", "Workload `file` to write"))
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario) error {
		noteIgnored(cmd, sc)
		return saveWorkload(cmd, sc, out)
	})
	return cmd
}

// saveWorkload writes the workload of a scenario to a file.
func saveWorkload(cmd *cobra.Command, sc *scenario.Scenario, out string) error {
	if out == "" {
		return usage(errNoFile)
	}
	if err := checkWorkloadName(out, sc.Workload.File); err != nil {
		return err
	}
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	in, err := sc.OpenWorkload(cmd.Context(), p.reading)
	if err != nil {
		return err
	}
	defer in.Close()
	opt, err := columns(cmd.Context(), sc, in)
	if err != nil {
		return err
	}
	n, err := store.Write(out, p.watch(cmd.Context(), "writing", in.Source), opt)
	p.done()
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	if s := in.Replayed; s != nil { // printed by the reference generator, in Python
		last := fmt.Sprint(s.LastArrival)
		if !strings.ContainsAny(last, ".e") {
			last += ".0"
		}
		fmt.Fprintf(stderr, "%s\nlast arrival: %s\n", strings.ReplaceAll(fmt.Sprint(s.Counts), " ", ", "), last)
	}
	reportSkipped(cmd, in)
	fmt.Fprintf(stderr, "%d requests for %d adapters in %s\n", n, len(in.Adapters()), out)
	return nil
}

// columns returns the optional columns that the workload needs: ranks if they were stated, budgets
// if a law or a saved workload states some.
func columns(ctx context.Context, sc *scenario.Scenario, in *scenario.Input) (store.WriteOptions, error) {
	opt := store.WriteOptions{Ranks: sc.Workload.LoraRanks.Given(), Files: sc.Files}
	opt.MaxNew = sc.Workload.StatesBudgets()
	if sc.Workload.File == "" {
		return opt, nil
	}
	for i, a := range in.Adapters() {
		opt.Ranks = opt.Ranks || a.Rank > 0
		opt.Names = opt.Names || a.Name != fmt.Sprint("lora", i)
	}
	if opt.MaxNew || sc.Workload.MaxNewTokens.String() == "exact" {
		return opt, nil
	}
	r, err := sc.OpenWorkload(ctx, nil) // read again from the beginning
	if err != nil {
		return opt, err
	}
	defer r.Close()
	for q, err := range trace.All(r) {
		if opt.MaxNew = q.Budget() != q.Output; err != nil || opt.MaxNew {
			return opt, err
		}
	}
	return opt, nil
}

func reportSkipped(cmd *cobra.Command, in *scenario.Input) {
	if in.Skipped == nil {
		return
	}
	if n := in.Skipped(); n > 0 {
		say(cmd, "note: %d rows left out", n)
	}
}

func newTraceInfo() *cobra.Command {
	var ascii bool
	var top int
	cmd := &cobra.Command{
		Use:   "info [FILE]",
		Short: "Describe a trace or workload: rate, burstiness, adapters, tokens",
		Long: `Info reads a trace, a saved workload, or what a scenario (.yaml) or the flags generate,
and describes it.
The kind of FILE is found from its header; function traces are replayed at their
own times and rates, their functions given to --num-adapters adapters.`,
		Example: `  lorasim trace info AzureLLMInferenceTrace_conv.csv
  lorasim trace info AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt --trace-end-time 1.0.0
  lorasim trace info --arrivals gamma:4 --popularity maf2
  lorasim trace info w.parquet --json`,
		Args: cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "workload")
	jsonFlag(cmd, "Print as JSON")
	flags(cmd, "",
		opt(&ascii, "ascii", false, "Draw the chart with ASCII characters only"),
		opt(&top, "top", 10, "Number of adapters to list", ">=0 <=1e6"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, p, err := openDescribed(cmd, sf, args)
		if err != nil {
			return err
		}
		defer in.Close()
		sum, err := info.Summarize(p.watch(cmd.Context(), "reading", in.Source), top)
		p.done()
		if err != nil {
			return err
		}
		reportSkipped(cmd, in)
		return show(cmd, func(w io.Writer) error { return sum.WriteText(w, ascii) }, sum.WriteJSON)
	}
	return cmd
}

// openDescribed opens the workload for info and plot.
func openDescribed(cmd *cobra.Command, sf *scenarioFlags, args []string) (in *scenario.Input, p *progress, err error) {
	file := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !isScenario(arg) })
	sc, err := sf.scenario(cmd, file...)
	if err != nil {
		return nil, nil, err
	}
	if len(args) > len(file) {
		if err := sc.DescribeFile(cmd.Context(), args[0], cmd.Flags().Changed); err != nil {
			return nil, nil, err
		}
	}
	p = newProgress(cmd.ErrOrStderr())
	if in, err = sc.OpenWorkload(cmd.Context(), p.reading); err != nil {
		p.done()
	}
	return in, p, err
}

func newTracePlot() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "plot [FILE] -o PICTURE",
		Short:   "Draw a trace or workload: arrivals over time by adapter, token lengths",
		Example: "  lorasim trace plot w.parquet -o w.svg\n  lorasim trace plot --arrivals gamma:4 -o bursty.png",
		Args:    cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "workload")
	flags(cmd, "", opt(&out, "output,o", "", "Picture to write, .png or .svg"))
	writes(cmd, pictures(), "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return usage(errors.New("-o PICTURE is missing"))
		}
		in, p, err := openDescribed(cmd, sf, args)
		if err != nil {
			return err
		}
		defer in.Close()
		err = info.Plot(p.watch(cmd.Context(), "reading", in.Source), out)
		p.done()
		return err
	}
	return cmd
}

func newTraceGenerate() *cobra.Command {
	var out, format string
	var mean float64
	cmd := &cobra.Command{
		Use:   "generate [SCENARIO.yaml] -o FILE",
		Short: "Write a synthetic workload, or a synthetic Azure function trace",
		Long: `Generate writes the requests of the built-in generator: as a saved workload, or as
invocations in the schema of a public Azure Functions trace, which every command
that reads such traces takes (azure_v1: FILE is a folder; one file a day).`,
		Example: `  lorasim trace generate --popularity maf2 --arrivals gamma:4 --num-prompts 100000 -o w.parquet
  lorasim trace generate --format azure_v2 --num-adapters 200 --num-prompts 50000 -o functions.txt`,
		Args: cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "workload")
	flags(cmd, "",
		opt(&out, "output,o", "", "Write to `file`"),
		opt(&format, "format", "workload", "Workload, azure_v1 or azure_v2"),
		opt(&mean, "mean-duration", 0.5, "azure_v2: mean duration of an invocation, s", ">0 <=1e6"))
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario) error {
		switch {
		case format == "workload":
			return saveWorkload(cmd, sc, out)
		case out == "":
			return usage(errNoFile)
		case format != "azure_v1" && format != "azure_v2":
			return usage(fmt.Errorf("--format is %q, expected workload, azure_v1 or azure_v2", format))
		}
		if err := sc.Set("lengths", scenario.NoLengths); err != nil {
			return err
		}
		p := newProgress(cmd.ErrOrStderr())
		defer p.done()
		in, err := sc.OpenWorkload(cmd.Context(), p.reading)
		if err != nil {
			return err
		}
		defer in.Close()
		src := p.watch(cmd.Context(), "writing", in.Source)
		var n any
		what := "files"
		if format == "azure_v1" {
			n, err = azure.WriteMinutes(src, out)
		} else {
			what = "invocations"
			n, err = azure.WriteInvocations(src, out, synth.Durations(mean, sc.Seed))
		}
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v %s in %s\n", n, what, out)
		}
		return err
	})
	return cmd
}

func newTraceConvert() *cobra.Command {
	return &cobra.Command{
		Use:     "convert FROM TO",
		Short:   "Convert a saved workload to another format (.csv, .jsonl, .parquet, .arrow)",
		Example: "  lorasim trace convert w.csv w.parquet",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			sc := scenario.Default()
			sc.Files, sc.Workload.File = columnar.Files(), args[0]
			return saveWorkload(cmd, &sc, args[1])
		},
	}
}
