package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/compare"
)

func newCompare() *cobra.Command {
	var (
		o      compare.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "compare FILE...",
		Short: "Put runs side by side: simulated, live, and from logs",
		Long: `Compare prints one table of the runs in result files (--json, --output-file),
logs of serving benchmarks, files of request records (--records) and folders of
sweeps. Ratios refer to the first run, or to --baseline. Results that differ in
their seed alone are one run, with 95 % confidence intervals.`,
		Example: `  lorasim compare bench.log sim.json
  lorasim compare a.jsonl b.jsonl --baseline B
  lorasim compare live.parquet sim.parquet --metrics mean_ttft_ms,p99_ttft_ms
  lorasim compare out/ --json       # a small sweep, policy against policy`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, warnings, err := compare.Load(args)
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "lorasim: warning:", w)
			}
			if err != nil {
				return err
			}
			t, err := compare.New(runs, o)
			if err != nil {
				return usage(err)
			}
			if asJSON {
				return t.WriteJSON(cmd.OutOrStdout())
			}
			return t.WriteText(cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Baseline, "baseline", "", "run that ratios refer to: A, B, ... (default: the first)")
	fs.StringSliceVar(&o.Metrics, "metrics", nil, "metrics to show, by their JSON names (default: the usual ones)")
	fs.BoolVar(&o.All, "all", false, "show every metric that a run has")
	fs.BoolVar(&asJSON, "json", false, "print as one JSON object")
	return cmd
}
