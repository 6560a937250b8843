package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/internal/suggest"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog"
	"lorasim/trace/requestlog/evidence"
	"lorasim/trace/store"
)

// importOptions are the flags of trace import.
type importOptions struct {
	out, columns, unit string
	seed               int64
	strict             bool
}

func newTraceImport() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import LOG... -o FILE",
		Short: "Convert a request log of another program to a workload",
		Long: `Import reads a request log and saves it as a workload. It prints which columns it
used, what it assumed, and which rows it dropped and why.

It reads CSV with any separator, JSON Lines, JSON arrays and Parquet (gzip too),
whose columns it finds by their usual names; access logs of lorasim gateway;
OpenTelemetry spans (OTLP JSON with gen_ai.*); range queries of Prometheus, from
which it draws a workload; files of requests of bench_serving, vLLM, AIPerf,
GuideLLM, inference-perf and blis observe; and lorasim's own records. Times may be
epoch seconds, ms, us or ns, or ISO 8601. docs/logs.md lists the layouts.`,
		Example: `  lorasim trace import requests.csv -o w.parquet
  lorasim trace import log.jsonl.gz -o w.parquet --columns time=created_at,adapter=customer
  lorasim trace import rates.json prompts.json outputs.json -o w.parquet   # of Prometheus' query_range`,
		Args: cobra.MinimumNArgs(1),
	}
	flags(cmd, "",
		opt(&o.out, "output,o", "", "Workload `file` to write: .csv, .jsonl, .parquet or .arrow"),
		opt(&o.columns, "columns", "", "Columns by name, FIELD=NAME,...; "+
			"fields: time end duration adapter base prompt output "+
			"total max_new rank status success error; NAME none: no column"),
		opt(&o.unit, "time-unit", "", "Unit of numeric times: s, ms, us, ns, min or h; default: found"),
		opt(&o.strict, "strict", false, "Refuse a log of which something must be assumed"),
		opt(&o.seed, "seed", int64(1), "Seed of a workload drawn from rates", ">=0"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) }
	return cmd
}

func (o *importOptions) run(cmd *cobra.Command, logs []string) error {
	if o.out == "" {
		return usage(errNoFile)
	}
	if err := checkWorkloadName(o.out, logs...); err != nil {
		return err
	}
	options := requestlog.Options{TimeUnit: evidence.Unit(o.unit), Seed: uint64(o.seed),
		Files: columnar.Files()}
	if o.unit != "" && !slices.Contains(evidence.Units(), options.TimeUnit) {
		return usage(fmt.Errorf("--time-unit: %w", suggest.Unknown("unit", o.unit, []string{"s", "ms", "us", "ns",
			"min", "h"})))
	}
	if o.columns != "" {
		var err error
		if options.Columns, err = evidence.ParseColumns(o.columns); err != nil {
			return usage(fmt.Errorf("--columns: %w", err))
		}
	}
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	w, report, err := scenario.ReadLog(cmd.Context(), logs, options)
	if err != nil {
		return err
	}
	p.done()
	fmt.Fprintln(cmd.ErrOrStderr(), report)
	if err := report.Err(); o.strict && err != nil {
		return err
	}
	n, err := store.Write(o.out, p.watch(cmd.Context(), "writing", w.Source()), columnsOf(w))
	p.done()
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d requests for %d adapters in %s\n", n, len(w.Adapters), o.out)
	}
	return err
}

// columnsOf returns the optional columns that a workload needs.
func columnsOf(w *trace.Workload) store.WriteOptions {
	return store.WriteOptions{
		Files:  columnar.Files(),
		Names:  true,
		Ranks:  slices.ContainsFunc(w.Adapters, func(a trace.Adapter) bool { return a.Rank > 0 }),
		MaxNew: slices.ContainsFunc(w.Requests, func(r trace.Request) bool { return r.Budget() != r.Output }),
	}
}

var errNoFile = errors.New("-o FILE is missing")
