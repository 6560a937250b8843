package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/serving/matrix"
	"lorasim/bench/study/sweep"
	"lorasim/bench/study/worth"
)

func newWorth() *cobra.Command {
	o := worth.Options{
		Intervals: []string{"2", "5", "10", "30"}, Metrics: []string{"mean_e2e_latency_ms", "p99_ttft_ms"}, Seeds: 5,
		MaxSeeds: 20,
	}
	var run sweepRunFlags
	var slo goodputFlags
	var dir string
	policies, baselines, gain := "affinity-spill,affinity:variant=residency,min-cost-flow", "static,least-loaded", 1.0
	cmd := &cobra.Command{
		Use:   "worth",
		Short: "Measure the gain of each part of plan-and-route in a scenario",
		Long: `Worth measures what each part of ` + worth.Planner + ` gains in a scenario: its routing,
moving waiting requests, placing adapters, and moving running requests. It runs
the policy with parts switched on and off, plain policies, and other policies,
all on the same requests. It adds seeds until the answer is clear, prints it,
and below it a table of effects and one of policies.

A part pays if a metric of --metrics improves significantly by --min-gain or more,
and none significantly worsens by that share. Each part is credited only with what
it adds: routing to the best of --baselines, moving waiting requests to routing,
and plans (placing adapters, moving running requests) to both.

The runs are a sweep. With -o they are kept, for lorasim report and sweep merge,
and an interrupted study resumes.`,
		Example: `  lorasim worth --num-workers 8 --num-adapters 64 --request-rate 20 --max-loaded-loras 16
  lorasim worth -f scenario.yaml --intervals 1,10,60 --max-seeds 40 -o out
  lorasim worth --use-trace --trace-name azure_llm --trace-path AzureLLMInferenceTrace_conv.csv --num-prompts 5000
  lorasim worth --drift 30 --adapter-home remote --metrics p99_ttft_ms --json`,
	}
	flags(cmd, "Study",
		opt(&o.Intervals, "intervals", o.Intervals, "Times between plans to try, s"),
		opt(&baselines, "baselines", baselines, "Plain policies that the routing is compared with: `A,B,...` or A|B"),
		opt(&policies, "policies", policies, "Other policies to show: `A,B,...`; with commas in options A|B"),
		opt(&o.Metrics, "metrics", o.Metrics, "Metrics that decide"),
		opt(&gain, "min-gain", gain, "Smallest change of a metric that counts, %", ">=0 <=100"),
		opt(&o.Seeds, "seeds", o.Seeds, "Number of seeds at first, from --seed on", ">=2 <=1e4"),
		opt(&o.MaxSeeds, "max-seeds", o.MaxSeeds, "Largest number of seeds", ">=2 <=1e4"))
	slo.add(cmd, "Study", goodputHelp)
	run.add(cmd, false)
	flags(cmd, outputHeading, opt(&dir, "output,o", "", "Keep the runs in `folder`, as a sweep"))
	jsonFlag(cmd, "Print answer and table as one JSON object")
	sf := addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario, _ []string) error {
		noteIgnored(cmd, sc)
		o.Scenario = *sc
		of, err := slo.parse(result.SLO{})
		if err != nil {
			return usage(err)
		}
		o.Goodput = of.String()
		if err := worthOptions(cmd, &o, policies, baselines); err != nil {
			return usage(err)
		}
		o.MinGain = gain / 100
		kept := dir != ""
		if !kept {
			if dir, err = os.MkdirTemp("", "lorasim-worth-"); err != nil {
				return err
			}
			defer os.RemoveAll(dir)
		}
		o.Run = func(d *sweep.Dir) error {
			sum, err := run.run(cmd, d, kept)
			if err != nil {
				return err
			}
			return failed(cmd, d, sum)
		}
		a, err := worth.Study(cmd.Context(), dir, o)
		if err != nil {
			return err
		}
		return show(cmd, a.WriteText, a.WriteJSON)
	})
	return cmd
}

// worthOptions checks the flags of a study.
func worthOptions(cmd *cobra.Command, o *worth.Options, policies, baselines string) error {
	for _, name := range []string{"policy", "migration-interval"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: a study sets it itself, see --policies and --intervals", name)
		}
	}
	if o.Scenario.Routing.InferenceArchitecture != "" {
		return errors.New("inference_architecture chooses the policy, which a study does itself")
	}
	a, err := sweep.ParseSet("migration_interval=" + strings.Join(o.Intervals, ","))
	if err != nil {
		return fmt.Errorf("--intervals: %w", err)
	}
	for _, v := range a.Values {
		if a.Number(v) == 0 {
			return errors.New("--intervals: expected numbers above 0")
		}
	}
	o.Intervals = a.Values
	if o.Baselines, err = policiesOf("--baselines", baselines); err != nil {
		return err
	}
	if o.Others, err = policyList(policies); err != nil {
		return err
	}
	return o.Check()
}

func newMatrix() *cobra.Command {
	var rerun bool
	cmd := &cobra.Command{
		Use:   "matrix FILE.yaml",
		Short: "Run every combination of server commands and client commands",
		Long: `Matrix starts each server of a file, waits until it is ready, runs each client
against it, stops the server, and prints one table. Logs, results and a joined
results.txt stay in a folder beside the file. A combination that fails does not
stop the others; one that is done is not run again, so an interrupted matrix goes
on where it was.

  name: backends
  servers:
    - name: plain
      command: lorasim worker --listen 127.0.0.1:30001 --num-adapters 4
      ready: {urls: ["http://127.0.0.1:30001/health"], timeout: 1m}  # and/or log: PATTERN
      stop: {signal: TERM, timeout: 30s}
  clients:
    - name: rate4
      command: lorasim bench 127.0.0.1:30001 --num-adapters 4 --request-rate 4 --num-prompts 100
      timeout: 10m

Commands run in the file's folder by the shell; $MATRIX_DIR is the folder of the
combination.`,
		Example: "  lorasim matrix backends.yaml\n  lorasim matrix backends.yaml --rerun --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := matrix.Load(cmd.Context(), args[0])
			if err != nil {
				return usage(err)
			}
			rows, err := m.Run(cmd.Context(), matrix.Options{Log: cmd.ErrOrStderr(), Rerun: rerun})
			werr := show(cmd, func(w io.Writer) error { return matrix.WriteTable(w, rows) },
				inJSON(map[string]any{"name": m.Name, "runs": rows}, ""))
			if err := cmp.Or(werr, err); err != nil {
				return err
			}
			if n := matrix.Failed(rows); n > 0 {
				return fmt.Errorf("%d of %d combinations failed", n, len(rows))
			}
			return nil
		},
	}
	jsonFlag(cmd, "Print the table as one JSON object")
	flags(cmd, "", opt(&rerun, "rerun", false, "Run combinations again that are done"))
	return cmd
}
