package cli

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/bench/study/explain"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

// newExplain says which adapters are slow and why.
// explainFlags are the flags of explain that are not settings of the scenario.
type explainFlags struct {
	o           explain.Options
	short, grid bool
	prove       proveFlags
}

func newExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [SCENARIO.yaml | LOG [METRICS]...]",
		Short: "Say which adapters are slow, why, and what would help them",
		Long: `Explain simulates a scenario and lists the adapters that are slow: their requests wait
for a slot, a load, a blocked request ahead of them, or a full worker. It then
simulates changes on the same requests, and names the cheapest that halves the mean
TTFT of the slow adapters, and ends an overload: a setting first, then memory, then a
worker. Merged adapters (their weights added to the base model) are among the changes.

The argument may also be a log or a file of request records (--records): the table
then has the measured TTFT of each adapter beside the simulated one.

--map shows where starvation begins: the least number of slots with which no adapter
is slow, for several request rates and popularities.

--prove asks what another fleet would have done with the requests of the gateway's
access log LOG. It fits a profile to the first half of the time and predicts the second
half. If the prediction holds, it simulates other policies, more workers, more slots,
another placement and a merged adapter. Else it exits with code 4. METRICS state the
engine, its slots and its KV cache: JSON of Prometheus' range queries, or scrapes.
docs/bad-hour.md has the steps.`,
		Example: `  lorasim explain --num-adapters 16 --engine-args max_loras_per_batch=2 --num-workers 1 --request-rate 4
  lorasim explain scenario.yaml --json
  lorasim explain requests.csv --num-workers 4
  lorasim explain scenario.yaml --map
  lorasim explain access.log metrics.json --prove --policy least-loaded -o hour.html`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	flags(cmd, outputHeading,
		opt(&f.o.Seeds, "seeds", 3, "Number of runs of a generated workload, each with its own seed", ">=1 <=1000"),
		opt(&f.short, "short", false, "Print the answer without the tables of adapters and changes"),
		opt(&f.grid, "map", false, "Print the least number of slots without slow adapters, by rate and popularity"))
	f.prove.add(cmd)
	jsonFlag(cmd, "Print the answer as one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.prove.on {
			return f.prove.run(cmd, sf, args)
		}
		if err := cmp.Or(usage(cobra.MaximumNArgs(1)(cmd, args)), f.prove.unused(cmd)); err != nil {
			return err
		}
		return f.run(cmd, sf, args)
	}
	return cmd
}

// run explains a scenario, or the log or records that the argument names.
func (f *explainFlags) run(cmd *cobra.Command, sf *scenarioFlags, args []string) error {
	var log string
	if len(args) > 0 && !isScenario(args[0]) {
		log, args = args[0], nil
	}
	sc, err := sf.scenario(cmd, args...)
	if err != nil {
		return err
	}
	if log != "" {
		if err := sc.Set("workload", log); err != nil {
			return usage(err)
		}
	}
	noteIgnored(cmd, &sc)
	if w := sc.Workload.File; w != "" {
		f.o.Measured = measuredTTFT(cmd, w)
	}
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	f.o.Progress = p.runs
	if f.grid {
		m, err := explain.NewMap(cmd.Context(), &sc, p.runs)
		if err != nil {
			return err
		}
		p.done()
		return show(cmd, m.WriteText, inJSON(m, ""))
	}
	a, err := explain.Find(cmd.Context(), &sc, f.o)
	if err != nil {
		return err
	}
	p.done()
	return show(cmd, func(w io.Writer) error { return a.WriteText(w, !f.short) }, inJSON(a, ""))
}

// measuredTTFT returns the mean TTFT of the adapters in a file of request records, ms; nil if the file states none.
func measuredTTFT(cmd *cobra.Command, file string) map[string]float64 {
	m, err := importer.Records(cmd.Context(), columnar.Files(), file, result.Options{})
	if err != nil || m.Result.Extra == nil {
		return nil // a workload without latencies
	}
	ttft := map[string]float64{}
	for _, a := range m.Result.Extra.Adapters {
		switch {
		case a.Completed == 0:
		case a.Index == trace.BaseModel:
			ttft[a.Name] = a.MeanTTFT
		case int(a.Index) < len(m.Result.Adapters):
			ttft[m.Result.Adapters[a.Index].Name] = a.MeanTTFT
		}
	}
	return ttft
}
