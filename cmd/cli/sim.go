package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/bench/result/records"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/study/compare"
	"lorasim/bench/study/remedy"
	"lorasim/bench/study/report"
	"lorasim/internal/atomicfile"
	"lorasim/internal/table"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

// simFlags are the flags of sim that are not settings of the scenario.
type simFlags struct {
	out               outputFlags
	records, plans    string
	oracle, intervals bool
	tokens            bool
}

func newSim() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim [SCENARIO.yaml]",
		Short: "Simulate a workload on workers under a routing policy",
		Long: `Sim runs a workload (generated, replayed from a trace, or saved) through the
discrete-event simulator and prints the result block. The same scenario and seed
give the same bytes.`,
		Annotations: aliasesIn(engineNames, clientNames),
		Example: `  lorasim sim scenario.yaml
  lorasim sim scenario.yaml --policy p2c --records run.parquet
  lorasim sim --num-workers 8 --num-adapters 64 --request-rate 20
  lorasim sim --workload w.parquet --policy static --json
  lorasim sim --trace-name azure_llm --trace-path trace.csv --num-adapters 32
  lorasim sim --request-rate inf --max-concurrency 32 --num-workers 1`,
		Args: cobra.MaximumNArgs(1),
	}
	sf := addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	flags(cmd, scenarioHeading, opt(&sf.print, "print-config", false,
		"Print the effective scenario and stop; the file reproduces the run"))
	f.out.add(cmd)
	flags(cmd, outputHeading,
		opt(&f.records, "records", "", recordsHelp),
		opt(&f.tokens, "token-times", false, "Write the time of every token to --records"),
		opt(&f.plans, "plans", "", "Write every plan of placement and migration, with its reason, to `file`, one JSON object per line"),
		opt(&f.oracle, "oracle", false, "Compare with a lower bound that assumes perfect knowledge"),
		opt(&f.intervals, "intervals", false, "Print prediction intervals from the profile's held-out runs"))
	writes(cmd, table.Extensions(), "records")
	writes(cmd, nil, "plans")
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario) error {
		if sf.print { // relative paths in a scenario are those from its own folder
			if err := sc.AbsolutePaths(); err != nil {
				return err
			}
			return writeYAML(cmd, sc)
		}
		return f.run(cmd, sc)
	})
	return cmd
}

// run simulates the scenario and writes what the flags ask for.
func (f *simFlags) run(cmd *cobra.Command, sc *scenario.Scenario) error {
	if err := f.out.check(); err != nil {
		return err
	}
	f.out.sections = f.out.sections || f.oracle || f.intervals // asked for
	noteIgnored(cmd, sc)
	p := newProgress(cmd.ErrOrStderr())
	var profiles []*profile.Profile
	skipped := int64(0)
	var waiting *waits.Observer
	watch := func(adapters []trace.Adapter) record.Watcher {
		waiting = waits.New(f.out.slo, profiles, adapters)
		return waiting.Watcher()
	}
	if requests := statedRequests(sc); !f.out.looks() || requests > mostWatched ||
		requests*stated(sc, "num_workers") > mostLooks {
		watch = nil
	}
	res, err := sc.Simulate(cmd.Context(), scenario.RunOptions{
		Profiles: func(ps []*profile.Profile) { profiles = ps },
		SLO:      f.out.slo, RecordsFile: f.records, PlansFile: f.plans, Oracle: f.oracle, Intervals: f.intervals,
		TokenTimes: f.tokens || f.out.details, KeepRecords: f.out.keep(),
		Saturate: true, PushLoss: true, Reading: p.reading, Running: p.running,
		Skipped: func(rows int64) { skipped = rows }, Watch: watch,
	})
	if err != nil {
		p.done()
		return err
	}
	var more []result.LookLine
	if f.out.looks() {
		more, err = look(cmd.Context(), sc, res, waiting)
		more = append(more, result.LookLine{Label: "Next", Text: longer(cmd, sc, res), Whole: true})
	}
	p.done()
	if err != nil {
		return err
	}
	if err := f.out.write(cmd, res, more...); err != nil {
		return err
	}
	noteProfiles(cmd, profiles)
	if skipped > 0 {
		say(cmd, "note: %d rows left out", skipped)
	}
	return cmp.Or(scenario.Misfit(res), res.NoSuccess())
}

// mostWatched is the number of requests up to which a run is watched for what requests wait for: watching takes some
// 0.5 us a request.
const mostWatched = 100_000

// mostLooks is the number of requests times workers up to which it is: a look at all workers takes some 5 ns a worker,
// several times a request.
const mostLooks = 20_000_000

// statedRequests is num_prompts; 0: not stated.
func statedRequests(sc *scenario.Scenario) int64 { return stated(sc, "num_prompts") }

// stated is the value of a key that is a whole number; 0: not stated.
func stated(sc *scenario.Scenario, key string) int64 {
	f, err := scenario.Find(key)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(f.Get(sc), 10, 64)
	return n
}

// look says what requests waited for (o; nil: unknown), and which change would help most.
func look(
	ctx context.Context, sc *scenario.Scenario, res *result.Result, o *waits.Observer,
) ([]result.LookLine, error) {
	var lines []result.LookLine
	if o != nil {
		causes := o.Causes(res)
		lines = append(lines, result.LookLine{Label: "Waits", Text: "requests wait for " + causes.String()})
	}
	found, err := remedy.Find(ctx, sc, res)
	if found != nil {
		lines = append(lines, result.LookLine{Label: "Change", Text: found.String()})
	}
	return lines, err
}

// noteIgnored prints a note about given settings without effect, if users may expect one, and about a short name of a
// profile that fits GPUs of other speed.
func noteIgnored(cmd *cobra.Command, sc *scenario.Scenario) {
	def := scenario.Default()
	notes := sc.Ignored(func(f scenario.Field) string {
		if flag := cmd.Flags().Lookup(f.Flag); flag != nil && flag.Changed {
			return spelled(flag)
		}
		if f.Get(sc) == f.Get(&def) {
			return "" // a file that states every setting
		}
		return sc.Written[f.Key]
	})
	for _, text := range notes {
		say(cmd, "note: %s", text)
	}
	for _, name := range sc.ProfileNames() {
		if text := profile.Differs(cmd.Context(), name); text != "" {
			say(cmd, "warning: %s", text)
		}
	}
}

func newPolicies() *cobra.Command {
	var long bool
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List the routing policies",
		Long: `Policies lists the routing policies, with --options their options. A script adds a
policy without a change of lorasim: --policy script:file=my.star (docs/own-policy.md).`,
		Example: "  lorasim policies\n  lorasim policies --options\n  lorasim sim --policy bounded-hash:c=1.25",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows [][]string
			for _, d := range router.List() {
				summary := d.Summary
				if len(d.Aliases) > 0 {
					summary += " (alias " + strings.Join(d.Aliases, ", ") + ")"
				}
				rows = append(rows, []string{d.Name, summary})
				for _, o := range d.Options {
					if long {
						rows = append(rows, []string{"  :" + strings.TrimSuffix(o.Name+"="+o.Default, "="),
							"  " + o.Doc})
					}
				}
			}
			return show(cmd, inTable(rows), inJSON(router.List(), "  "))
		},
	}
	flags(cmd, "", opt(&long, "options", false, "List options and their defaults, too"))
	jsonFlag(cmd, "Print as JSON")
	return cmd
}

func newCompare() *cobra.Command {
	var o compare.Options
	var goodput goodputFlags
	var blocks bool
	var keep string
	var gate gateFlags
	cmd := &cobra.Command{
		Use:   "compare FILE...",
		Short: "Put runs side by side: simulated, live, and from logs",
		Long: `Compare prints one table of the runs in result files (--json, --output-file),
logs of serving benchmarks, files of request records (--records) and folders of
sweeps. Ratios refer to the first run, or to --baseline. Results that differ in
their seed alone are one run, with 95 % confidence intervals.

It finds the result blocks in logs and ignores all other lines. It also reads what
clients write: the JSON lines of sglang's bench_serving, the JSON of vllm bench serve
and of GuideLLM, AIPerf's summary (..._aiperf.json) and requests (.jsonl), and
inference-perf's summary_lifecycle_metrics.json. --records keeps the single requests of
such a file, for report and profile fit.

--fail-on makes it a gate: is NEW worse than BASE by more than limits, with
confidence? BASE and NEW are results, folders of results or sweeps; or two scenarios,
manifests, configurations of an endpoint picker or policy scripts, which it simulates
on the same seeds. Exit codes: 0 not worse, 1 worse, 3 not sure.`,
		Example: `  lorasim compare bench.log sim.json
  lorasim compare a.jsonl b.jsonl --baseline B
  lorasim compare live.parquet sim.parquet --metrics mean_ttft_ms,p99_ttft_ms
  lorasim compare out/ --json       # a small sweep, policy against policy
  lorasim compare benchmarks.json --records requests.parquet
  lorasim compare base.yaml new.yaml --fail-on "mean_ttft_ms>5%,output_throughput>3%"
  lorasim compare old.star new.star -f s.yaml --fail-on "p99_ttft_ms>10%" --format markdown,junit:gate.xml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if blocks || keep != "" {
				if blocks && wantsJSON(cmd) {
					return usage(errors.New("--blocks and --json exclude each other"))
				}
				if err := printImported(cmd, args, blocks, keep); blocks || err != nil {
					return err
				}
			}
			slo, err := goodput.parse(result.SLO{})
			if err != nil {
				return usage(err)
			}
			if cmd.Flags().Changed("fail-on") {
				return gate.check(cmd, args, slo, o)
			}
			if err := needsGate(cmd, args); err != nil {
				return err
			}
			runs, warnings, err := compare.Load(cmd.Context(), columnar.Files(), args, slo)
			if warn(cmd, warnings...); err != nil {
				return err
			}
			t, err := compare.New(runs, o)
			if err != nil {
				return usage(err)
			}
			return show(cmd, t.WriteText, t.WriteJSON)
		},
	}
	flags(cmd, "",
		opt(&o.Baseline, "baseline", "", "Run that ratios refer to: A, B, ... (default: the first)"),
		opt(&o.Metrics, "metrics", nil, "Metrics to show, by their JSON names (default: the usual ones)"),
		opt(&o.All, "all", false, "Show every metric that a run has"),
		opt(&o.Wide, "wide", false, "Print all runs side by side (default: tables of at most 100 columns)"),
		opt(&blocks, "blocks", false, "Print the block of every run in the layout of its log instead of the table"),
		opt(&keep, "records", "",
			"Also write the requests of the one run that has them to `file` (.parquet, .arrow, .csv or .jsonl)"))
	writes(cmd, table.Extensions(), "records")
	goodput.add(cmd, "", "Requests: count those within an SLO in ms, such as \"ttft:500 tpot:50\"")
	gate.add(cmd)
	jsonFlag(cmd, "Print as one JSON object")
	return cmd
}

// printImported prints the blocks of the files, each in the layout of its log, and keeps the requests of the one run
// that has them.
func printImported(cmd *cobra.Command, files []string, blocks bool, keep string) error {
	runs, warnings, err := importer.Files(cmd.Context(), columnar.Files(), files)
	if blocks { // else the table warns
		warn(cmd, warnings...)
	}
	if err != nil {
		return err
	}
	if keep != "" {
		if err := writeImported(keep, runs); err != nil {
			return err
		}
	}
	for _, r := range runs {
		if blocks {
			if err := r.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeImported writes the requests of the only run that has some.
func writeImported(path string, runs []*importer.Imported) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(m *importer.Imported) bool { return len(m.Records) == 0 })
	if len(runs) != 1 {
		return fmt.Errorf("--records: %d runs have requests, expected one", len(runs))
	}
	return records.WriteAll(columnar.Files(), path, runs[0].Records, runs[0].Adapters)
}

func newReport() *cobra.Command {
	var (
		o             report.Options
		out, png, svg string
		policies      string
		slo           goodputFlags
		at            repeated
	)
	cmd := &cobra.Command{
		Use:   "report PATH... -o report.html",
		Short: "Make one page to explore runs and sweeps, and figures for papers",
		Long: `Report makes a single HTML file that needs no network: latency distributions,
latency by adapter, queues and batches of each worker over time, where adapters
lie, the plans with their reasons, curves of sweeps, and the result blocks.

A PATH is the folder of a sweep, a scenario file (which is run under each of
--policies), a file of request records, a result file or a log. For a sweep, report
simulates one run per policy again to show it over time: the run with the first seed
at the middle of each axis, or at the point that --at sets.`,
		Example: `  lorasim report out/ -o report.html
  lorasim report out/ -o report.html --at migration_interval=5
  lorasim report scenario.yaml --policies static,affinity-spill -o report.html
  lorasim report bench.log live.parquet sim.json -o report.html
  lorasim report out/ --svg figures       # figures alone`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" && png == "" && svg == "" {
				return usage(errors.New("nothing to write: give -o FILE.html, --png DIR or --svg DIR"))
			}
			if err := reportOptions(&o, policies, at, &slo); err != nil {
				return usage(err)
			}
			o.Files = columnar.Files()
			p := newProgress(cmd.ErrOrStderr())
			o.Progress = func(done, total int, what string) { p.set("running", int64(done), int64(total), what) }
			page, warnings, err := report.Load(cmd.Context(), o, args...)
			p.done()
			if warn(cmd, warnings...); err != nil {
				return err
			}
			return writeReport(cmd, page, out, png, svg)
		},
	}
	flags(cmd, outputHeading,
		opt(&out, "output,o", "", "Write the page to `file`"),
		opt(&png, "png", "", "Write each figure as PNG into `folder`"),
		opt(&svg, "svg", "", "Write each figure as SVG into `folder`"),
		opt(&o.Title, "title", "", "Title of the page"))
	writes(cmd, nil, "output")
	flags(cmd, runHeading,
		opt(&policies, "policies", "", "Policies to run each scenario file under: `A,B,...`"),
		opt(&at, "at", nil, "Point of a sweep whose runs are shown: `KEY=VALUE`; may be repeated"),
		opt(&o.NoRuns, "no-runs", false, "Show only what a sweep kept, without runs over time"),
		opt(&o.MaxRuns, "max-runs", 8, "Policies of one sweep that are run and shown over time", ">=0 <=1000"))
	slo.add(cmd, runHeading, "Scenario files and requests: count requests within an SLO in ms, such as \"ttft:500 tpot:50\"")
	return cmd
}

func reportOptions(o *report.Options, policies string, at []string, slo *goodputFlags) (err error) {
	if o.SLO, err = slo.parse(result.SLO{}); err != nil {
		return err
	}
	if o.Policies, err = policyList(policies); err != nil {
		return err
	}
	o.At = map[string]string{}
	for _, text := range at {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--at %q: expected KEY=VALUE", text)
		}
		o.At[key] = value
	}
	return nil
}

func writeReport(cmd *cobra.Command, page *report.Page, out, png, svg string) error {
	w := cmd.OutOrStdout()
	for format, dir := range map[string]string{"png": png, "svg": svg} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		files, err := page.WriteFigures(dir, format)
		for _, f := range files {
			fmt.Fprintln(w, filepath.Join(dir, f))
		}
		if err != nil {
			return err
		}
	}
	if out == "" {
		return nil
	}
	err := atomicfile.Write(out, func(f *atomicfile.File) error { return page.WriteHTML(f) })
	if err == nil {
		_, err = fmt.Fprintln(w, out)
	}
	return err
}
