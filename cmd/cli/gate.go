package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/study/compare"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/trace/columnar"
)

// gateFlags configure compare --fail-on.
type gateFlags struct {
	limits   string
	formats  []string
	seeds    int
	scenario *scenarioFlags
}

// gateHeading is the heading of flags that need --fail-on.
const gateHeading = "Gate"

func (f *gateFlags) add(cmd *cobra.Command) {
	flags(cmd, gateHeading,
		opt(&f.limits, "fail-on", "", "Fail if NEW is worse than BASE by more than `METRIC>N%,...`, with confidence"),
		opt(&f.formats, "format", []string{"text"},
			"text, markdown or junit; `FORMAT:FILE` writes a file; repeatable"),
		opt(&f.seeds, "seeds", 0, "Scenarios: largest number of seeds (default: 512, and 2 million requests a side)",
			">=0 <=1e4"))
	f.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
}

// outcomeError ends a command with the exit code of a gate.
type outcomeError struct {
	error
	code int
}

// check compares BASE with NEW, and returns an error unless NEW is not worse.
func (f *gateFlags) check(cmd *cobra.Command, args []string, slo result.SLO, o compare.Options) error {
	limits, err := compare.ParseLimits(f.limits)
	if err != nil {
		return usage(fmt.Errorf("--fail-on: %w", err))
	}
	if len(args) != 2 {
		return usage(fmt.Errorf("--fail-on: %s, expected two: BASE and NEW", format.Count(len(args), "argument")))
	}
	if o.Baseline != "" {
		return usage(errors.New("--baseline has no effect with --fail-on: BASE is the first argument"))
	}
	outputs, err := f.outputs()
	if err != nil {
		return err
	}
	kinds := []sideKind{sideOf(cmd.Context(), args[0]), sideOf(cmd.Context(), args[1])}
	var g *compare.Gate
	var next string
	switch {
	case kinds[0] != ofResults && kinds[1] != ofResults:
		if g, err = f.race(cmd, args, kinds, limits, slo, o); err == nil && g.Needed() > 0 {
			next = again(cmd, "seeds", strconv.Itoa(g.Needed()))
		}
	case kinds[0] != kinds[1]:
		err = usage(fmt.Errorf("%s is %s and %s is %s: expected two of a kind", args[0], kinds[0], args[1], kinds[1]))
	default:
		if g, err = f.results(cmd, args, limits, slo, o); err == nil && g.Needed() > 0 {
			next = g.Further("--fail-on " + format.Shell(f.limits))
		}
	}
	if apart, ok := errors.AsType[compare.SidesError](err); ok {
		return usage(apart)
	}
	if err != nil {
		return err
	}
	if err := f.write(cmd, g, outputs, next); err != nil {
		return err
	}
	switch g.Outcome() {
	case compare.Failed:
		return outcomeError{errors.New(g.String()), exitFailed}
	case compare.Unsure:
		text := g.String()
		if next != "" {
			text += "\n  this would decide: " + next
		}
		return outcomeError{errors.New(text), exitUnsure}
	}
	return nil
}

// outputs returns the formats with the file of each; "" is stdout.
func (f *gateFlags) outputs() (list [][2]string, err error) {
	printed := false
	for _, spec := range f.formats {
		name, file, ok := strings.Cut(spec, ":")
		if err := oneOf("format", "format", name, compare.GateFormats()); err != nil {
			return nil, err
		}
		switch {
		case ok && file == "":
			return nil, usage(fmt.Errorf("--format %q: the file is missing, expected FORMAT or FORMAT:FILE", spec))
		case !ok && printed:
			return nil, usage(fmt.Errorf("--format %s: one format can be printed, the others need a file: %s:FILE",
				strings.Join(f.formats, ","), name))
		case ok:
			if err := replaceable(file); err != nil {
				return nil, fmt.Errorf("--format %s: %w", spec, err)
			}
		}
		printed = printed || !ok
		list = append(list, [2]string{name, file})
	}
	if !printed {
		list = append(list, [2]string{"text", ""})
	}
	return list, nil
}

func (f *gateFlags) write(cmd *cobra.Command, g *compare.Gate, outputs [][2]string, next string) error {
	for _, o := range outputs {
		write := func(w io.Writer) error { return g.WriteAs(w, o[0], next) }
		var err error
		if o[1] == "" {
			err = show(cmd, write, func(w io.Writer) error { return g.WriteJSON(w, next) })
		} else {
			err = atomicfile.Write(o[1], func(w *atomicfile.File) error { return write(w) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// results judges two sides of results.
func (f *gateFlags) results(
	cmd *cobra.Command, args []string, limits []compare.Limit, slo result.SLO, o compare.Options,
) (*compare.Gate, error) {
	var given string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Value.(type) {
		case *settingValue, *engineArgs, *aliasValue:
			given = flag.Name
		}
		if slices.Contains([]string{"scenario", "cluster", "seeds"}, flag.Name) {
			given = flag.Name
		}
	})
	if given != "" {
		return nil, usage(fmt.Errorf("--%s has no effect on results: %s and %s have run already", given, args[0],
			args[1]))
	}
	var sides []*compare.Run
	for _, path := range args {
		r, warnings, err := compare.LoadSide(cmd.Context(), columnar.Files(), path, slo)
		if warn(cmd, warnings...); err != nil {
			return nil, err
		}
		sides = append(sides, r)
	}
	return compare.NewGate(sides[0], sides[1], limits, 1, o)
}

// race simulates both sides on the same seeds.
func (f *gateFlags) race(
	cmd *cobra.Command, args []string, kinds []sideKind, limits []compare.Limit, slo result.SLO, o compare.Options,
) (*compare.Gate, error) {
	var sides []scenario.Scenario
	for i, arg := range args {
		sc, err := f.side(cmd, arg, kinds[i])
		if err != nil {
			return nil, err
		}
		sides = append(sides, sc)
	}
	noteIgnored(cmd, &sides[1])
	if err := resampleOne(cmd, &sides[0], &sides[1]); err != nil {
		return nil, err
	}
	p := newProgress(cmd.ErrOrStderr())
	r := compare.Race{Base: &sides[0], New: &sides[1], Limits: limits, SLO: slo, Seeds: f.seeds, Options: o,
		Progress: func(done, total int) { p.runs(int64(done), int64(total)) }}
	g, err := r.Run(cmd.Context())
	p.done()
	if err != nil {
		return nil, err
	}
	g.Base.File, g.New.File = args[0], args[1]
	return g, nil
}

// resampleOne makes seeds draw from the one workload of both sides, by blocks of a twentieth of its span. Without that,
// seeds only break ties, and no number of them shows what other requests would do.
func resampleOne(cmd *cobra.Command, base, changed *scenario.Scenario) error {
	if base.Sampling() != stats.OneWorkload || changed.Sampling() != stats.OneWorkload {
		return nil
	}
	c, err := base.Collect(cmd.Context())
	if err != nil || c == nil || len(c.Workload.Requests) == 0 {
		return err
	}
	requests := c.Workload.Requests
	block := max(1, math.Round((requests[len(requests)-1].Arrival-requests[0].Arrival)/20))
	text := fmt.Sprintf("block:%g", block)
	for _, sc := range []*scenario.Scenario{base, changed} {
		if err := sc.Set("resample", text); err != nil {
			return err
		}
	}
	say(cmd, "one workload: each seed draws from it by --resample %s", text)
	return nil
}

// A sideKind is what an argument of a gate is.
type sideKind string

const (
	ofResults  sideKind = "a result"
	ofScenario sideKind = "a scenario"
	ofManifest sideKind = "a manifest"
	ofPicker   sideKind = "the configuration of an endpoint picker"
	ofScript   sideKind = "a policy script"
)

// sideOf tells what an argument is, by its ending and the keys of the file.
func sideOf(ctx context.Context, arg string) sideKind {
	first, _, _ := strings.Cut(arg, ",")
	first, _, _ = strings.Cut(first, "#")
	switch ext := strings.ToLower(filepath.Ext(first)); {
	case ext == ".star":
		return ofScript
	case !isScenario(first):
		return ofResults
	}
	const most = 1 << 20
	text, err := textfile.ReadFile(ctx, first, most)
	if err != nil {
		return ofScenario // which says what is wrong
	}
	kind := ofScenario
	for line := range strings.SplitSeq(string(text), "\n") {
		key, value, _ := strings.Cut(line, ":")
		switch strings.Trim(key, `"'`) {
		case "kind":
			if strings.Trim(strings.TrimSpace(value), `"'`) == "EndpointPickerConfig" {
				return ofPicker
			}
			kind = ofManifest
		case "apiVersion", "servingEngineSpec", "modelArtifacts":
			kind = ofManifest
		}
	}
	return kind
}

// side returns the scenario of an argument: the file itself, or the scenario of the flags with a manifest, the
// configuration of an endpoint picker, or a policy script.
func (f *gateFlags) side(cmd *cobra.Command, arg string, kind sideKind) (sc scenario.Scenario, err error) {
	own := *f.scenario
	switch kind {
	case ofScenario:
		return own.scenario(cmd, arg)
	case ofManifest:
		if own.manifests != "" {
			return sc, usage(fmt.Errorf("--cluster %s: %s is a manifest, too", own.manifests, arg))
		}
		own.manifests = arg
		return own.scenario(cmd)
	}
	if cmd.Flags().Changed("policy") {
		return sc, usage(fmt.Errorf("--policy has no effect: %s is %s", arg, kind))
	}
	if sc, err = own.scenario(cmd); err != nil {
		return sc, err
	}
	policy := map[sideKind]string{ofPicker: "epp:file=", ofScript: "script:file="}[kind]
	return sc, usage(sc.Set("policy", policy+arg))
}

// needsGate returns an error if an argument of compare is to be simulated.
func needsGate(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if kind := sideOf(cmd.Context(), arg); kind != ofResults {
			return usage(fmt.Errorf("%s is %s, not a result: compare simulates BASE and NEW with --fail-on METRIC>N%%",
				suggest.Clip(arg), kind))
		}
	}
	given := ""
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		_, setting := flag.Value.(*settingValue)
		_, engine := flag.Value.(*engineArgs)
		if setting || engine || headingOf(flag) == gateHeading || flag.Name == "scenario" || flag.Name == "cluster" {
			given = flag.Name
		}
	})
	if given != "" {
		return usage(fmt.Errorf("--%s has no effect without --fail-on", given))
	}
	return nil
}
