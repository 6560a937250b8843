package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
)

// outputFlags configure how a result is printed and saved.
type outputFlags struct {
	json, classic, details bool
	sections               bool // print the sections after the block
	layout, file           string
	exports                []string
	goodput                goodputFlags

	slo    result.SLO
	parsed result.Layout
}

const (
	goodputHelp = "Count requests within an SLO in ms, such as \"ttft:500 tpot:50 e2e:5000\""
	recordsHelp = "Write one row per request to `file` (.parquet, .arrow, .csv, .jsonl)"
)

// goodputFlags are an SLO, and the minimum share of an adapter's requests within it.
type goodputFlags struct{ slo, attain string }

func (g *goodputFlags) add(cmd *cobra.Command, heading, help string) {
	flags(cmd, heading,
		opt(&g.slo, "goodput", "", help),
		opt(&g.attain, "attain", "", "Share of an adapter's requests that must be within the SLO (default: 99%)"))
}

// parse returns the given SLO, changed by the flags.
func (g *goodputFlags) parse(slo result.SLO) (_ result.SLO, err error) {
	if g.slo != "" {
		if slo, err = result.ParseSLO(g.slo); err != nil {
			return slo, fmt.Errorf("--goodput: %w", err)
		}
	}
	if g.attain != "" {
		if slo.Empty() {
			return slo, errors.New("--attain: without an SLO there is nothing to attain, see --goodput")
		}
		if slo.Attain, err = result.ParseShare(g.attain); err != nil {
			return slo, fmt.Errorf("--attain: %w", err)
		}
	}
	return slo, nil
}

func (o *outputFlags) add(cmd *cobra.Command) {
	flags(cmd, outputHeading,
		opt(&o.json, "json", false, "Print the result as one JSON object"),
		opt(&o.sections, "details", false, "Print the sections after the block, too: steady state, adapters, workers, loads, plans, accuracy"),
		opt(&o.classic, "classic", false, "Print the reference's block alone"),
		opt(&o.layout, "layout", string(result.SGLang),
			"Layout of the block: sglang-0.5.4, sglang-0.5.6, lora, sglang"))
	o.goodput.add(cmd, outputHeading, goodputHelp)
	flags(cmd, outputHeading,
		opt(&o.file, "output-file", "", "Append the result to `file` as a JSON line of the serving benchmarks"),
		opt(&o.details, "output-details", false, "Add arrays of all requests to the line of --output-file"),
		opt(&o.exports, "export", nil, "Write the result as another benchmark does, `FORMAT:FILE`: aiperf, guidellm, inference-perf; may be repeated"))
}

// check returns errors before the run instead of after it.
func (o *outputFlags) check() (err error) {
	if o.slo, err = o.goodput.parse(result.SLO{}); err != nil {
		return usage(err)
	}
	if o.parsed, err = result.ParseLayout(o.layout); err != nil {
		return usage(fmt.Errorf("--layout: %w", err))
	}
	for _, spec := range o.exports {
		_, file, err := importer.ParseExport(spec)
		if err != nil {
			return usage(fmt.Errorf("--export: %w", err))
		}
		if err := replaceable(file); err != nil {
			return fmt.Errorf("--export %s: %w", spec, err)
		}
	}
	if o.file != "" {
		if err := appendable(o.file); err != nil {
			return fmt.Errorf("--output-file: %w", err)
		}
	}
	return nil
}

// keep reports whether the records of the run are needed.
func (o *outputFlags) keep() bool { return o.details || len(o.exports) > 0 }

// write saves the result to the given files, and prints it. It prints even if a file cannot be
// written.
func (o *outputFlags) write(cmd *cobra.Command, r *result.Result, more ...result.LookLine) (err error) {
	if o.file != "" {
		err = r.AppendJSONL(o.file, o.details)
	}
	for _, spec := range o.exports {
		if e := importer.Export(spec, r); e != nil {
			err = cmp.Or(err, fmt.Errorf("--export %s: %w", spec, e))
		}
	}
	w := cmd.OutOrStdout()
	if o.json {
		return cmp.Or(err, r.WriteJSON(w))
	}
	return cmp.Or(err, o.writeText(w, r, more))
}

// looks reports whether the text begins with a first look.
func (o *outputFlags) looks() bool { return !o.json && !o.classic }

// writeText prints a result as text: what ran, a first look with the given lines, the block, and the sections after it.
func (o *outputFlags) writeText(w io.Writer, r *result.Result, more []result.LookLine) (err error) {
	if o.looks() {
		err = cmp.Or(r.WriteScenario(w), r.WriteLook(w, more...))
	}
	err = cmp.Or(err, r.WriteBlock(w, o.parsed))
	switch {
	case !o.looks() || r.Extra == nil:
	case o.sections:
		err = cmp.Or(err, r.WriteExtra(w))
	default:
		_, e := io.WriteString(w, "Steady state, adapters, workers, loads, plans and accuracy: --details\n")
		err = cmp.Or(err, e)
	}
	return err
}

// writeYAML prints a value in its YAML form.
func writeYAML(cmd *cobra.Command, v interface{ YAML() ([]byte, error) }) error {
	text, err := v.YAML()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// wantsJSON reports whether --json was given.
func wantsJSON(cmd *cobra.Command) bool {
	json, err := cmd.Flags().GetBool("json")
	return err == nil && json
}

// show prints text or, with --json, JSON.
func show(cmd *cobra.Command, text, json func(io.Writer) error) error {
	if wantsJSON(cmd) {
		return json(cmd.OutOrStdout())
	}
	return text(cmd.OutOrStdout())
}

// inJSON returns a function that prints v as JSON, on one line if indent is "".
func inJSON(v any, indent string) func(io.Writer) error {
	return func(w io.Writer) error { return format.JSON(w, v, indent) }
}

// inTable returns a function that prints rows of cells in aligned columns.
func inTable(rows [][]string) func(io.Writer) error {
	return func(w io.Writer) error { return format.Table(w, rows) }
}

func saveYAML(path string, v interface{ YAML() ([]byte, error) }) error {
	text, err := v.YAML()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w *atomicfile.File) error { _, err := w.Write(text); return err })
}

// say prints a message on stderr: a note or progress.
func say(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: "+format+"\n", args...)
}

func warn[T any](cmd *cobra.Command, warnings ...T) {
	for _, w := range warnings {
		say(cmd, "warning: %v", w)
	}
}
