package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/report"
	"lorasim/bench/result"
	"lorasim/internal/atomicfile"
)

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

A PATH is the folder of a sweep, a scenario file (which is run, under each of
--policies), a file of request records, a result file or a log. Of a sweep, one
run per policy is simulated again to show it over time: that of the first seed
at the middle of each axis, or where --at says.`,
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
		opt(&out, "output,o", "", "write the page to `file`"),
		opt(&png, "png", "", "write each figure as PNG into `folder`"),
		opt(&svg, "svg", "", "write each figure as SVG into `folder`"),
		opt(&o.Title, "title", "", "title of the page"))
	flags(cmd, runHeading,
		opt(&policies, "policies", "", "policies to run each scenario file under: `A,B,...`"),
		opt(&at, "at", nil, "point of a sweep whose runs are shown: `KEY=VALUE`; may be repeated"),
		opt(&o.NoRuns, "no-runs", false, "run nothing again: of a sweep, show what it kept, without runs over time"),
		opt(&o.MaxRuns, "max-runs", 8, "policies of one sweep that are run and shown over time", ">=0 <=1000"))
	slo.add(cmd, runHeading, "scenario files and requests: count those within an SLO in ms, such as \"ttft:500 tpot:50\"")
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
