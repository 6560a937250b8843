package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
)

func newSim() *cobra.Command {
	var (
		out     outputFlags
		records string
		plans   string
		oracle  bool
		tokens  bool
	)
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate a workload on workers under a routing policy",
		Long: `Sim runs a workload (generated, replayed from a trace, or saved) through the
discrete-event simulator and prints the result block. The same scenario and seed
give the same bytes.

` + engineNamesText(),
		Example: `  lorasim sim
  lorasim sim --num-workers 8 --num-adapters 64 --request-rate 20 --policy least-loaded
  lorasim sim --workload w.parquet --num-workers 2 --policy static --profile llama2-7b-24gb --json
  lorasim sim --trace-name azure_llm --trace-path AzureLLMInferenceTrace_conv.csv --num-adapters 32
  lorasim sim --request-rate inf --max-concurrency 32 --num-workers 1 --lengths constant:1000,1000
  lorasim sim -f scenario.yaml --policy p2c --records run.parquet`,
	}
	sf := addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	sf.addPrintConfig(cmd)
	out.add(cmd)
	cmd.Flags().StringVar(&records, "records", "", "write one row per request to `file` (.parquet, .arrow, .csv, .jsonl)")
	cmd.Flags().BoolVar(&tokens, "token-times", false, "records with the time of every token")
	cmd.Flags().StringVar(&plans, "plans", "", "write every plan of placement and migration, with its reason, to `file`, one JSON object per line")
	cmd.Flags().BoolVar(&oracle, "oracle", false, "tell how far the run is from what perfect knowledge could reach")
	group(cmd, outputHeading, "records", "plans", "oracle", "token-times")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sc, err := sf.scenario(cmd)
		if err != nil {
			return err
		}
		if sf.print {
			return printConfig(cmd, &sc)
		}
		slo, err := result.ParseSLO(out.goodput)
		if err != nil {
			return usage(fmt.Errorf("--goodput: %w", err))
		}
		if err := out.check(); err != nil {
			return err
		}
		warnIgnored(cmd, &sc)
		p := newProgress(cmd.ErrOrStderr())
		res, err := sc.Simulate(cmd.Context(), scenario.RunOptions{
			SLO: slo, RecordsFile: records, PlansFile: plans, Oracle: oracle, TokenTimes: tokens || out.details, KeepRecords: out.details,
			Reading: p.reading, Running: p.running,
		})
		p.done()
		if err != nil {
			return err
		}
		if err := out.write(cmd, res); err != nil {
			return err
		}
		return res.NoSuccess()
	}
	return cmd
}

// printConfig prints the scenario so that it reproduces the run wherever it is
// kept: relative paths in a scenario are those from its own folder.
func printConfig(cmd *cobra.Command, sc *scenario.Scenario) error {
	if err := sc.AbsolutePaths(); err != nil {
		return err
	}
	text, err := sc.YAML()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// warnIgnored says which given settings have no effect, where a user may well
// think that they have.
func warnIgnored(cmd *cobra.Command, sc *scenario.Scenario) {
	for _, text := range sc.Ignored(func(flag string) bool { return cmd.Flags().Changed(flag) }) {
		fmt.Fprintln(cmd.ErrOrStderr(), "lorasim: note:", text)
	}
}
