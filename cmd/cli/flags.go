package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog"
)

// Annotations of a flag: its heading in the help, and its bounds (package bounds; for a duration in
// s).
const (
	groupKey  = "group"
	boundsKey = "bounds"
)

// Headings that several commands share.
const (
	scenarioHeading = "Scenario"
	outputHeading   = "Output"
	tableHeading    = "Table of runs"
	gridHeading     = "Grid"
	runHeading      = "Run"
)

// option is a flag of a command; opt makes one.
type option struct {
	to          any // points to the value, which is the default
	names, help string
	bounds      []string
}

// opt describes a flag: the variable of its value, its name ("output,o" with a short name),
// default, help text and, for a number, bounds.
func opt[T any](to *T, name string, def T, help string, within ...string) option {
	*to = def
	return option{to: to, names: name, help: help, bounds: within}
}

// repeated is the value of a flag that can be repeated. Each use adds one item, which may contain
// commas. A flag with a []string value also accepts several items, separated by commas.
type repeated []string

// flags adds flags to a command under a heading. Every flag with a number must have bounds, except
// settings of the scenario, which have checks of their own.
func flags(cmd *cobra.Command, heading string, options ...option) {
	fs := cmd.Flags()
	for _, o := range options {
		name, short, _ := strings.Cut(o.names, ",")
		switch p := o.to.(type) {
		case *string:
			fs.StringVarP(p, name, short, *p, o.help)
		case *bool:
			fs.BoolVar(p, name, *p, o.help)
		case *int:
			fs.IntVar(p, name, *p, o.help)
		case *int64:
			fs.Int64Var(p, name, *p, o.help)
		case *uint64:
			fs.Uint64Var(p, name, *p, o.help)
		case *float64:
			fs.Float64Var(p, name, *p, o.help)
		case *time.Duration:
			fs.DurationVar(p, name, *p, o.help)
		case *[]int:
			fs.IntSliceVar(p, name, *p, o.help)
		case *[]string:
			fs.StringSliceVar(p, name, *p, o.help)
		case *repeated:
			fs.StringArrayVar((*[]string)(p), name, *p, o.help)
		default:
			panic(fmt.Sprintf("--%s: a flag cannot be a %T", name, p))
		}
		f := fs.Lookup(name)
		annotate(f, groupKey, heading)
		for _, text := range o.bounds {
			bounds.MustParse(text)
			annotate(f, boundsKey, text)
		}
	}
}

// jsonFlag adds --json, without a heading. See show.
func jsonFlag(cmd *cobra.Command, help string) { flags(cmd, "", opt(new(bool), "json", false, help)) }

func annotate(f *pflag.Flag, key, value string) {
	if value == "" {
		return
	}
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = []string{value}
}

// scenarioFlags are the flags for settings of a scenario. Given flags override the scenario file.
type scenarioFlags struct {
	file      string
	manifests string
	print     bool
}

// addScenarioFlags adds the flags of some sections of a scenario to a command. Only given flags
// change a setting, so that all share one variable type with the text of the default.
func addScenarioFlags(cmd *cobra.Command, sections ...string) *scenarioFlags {
	sf := &scenarioFlags{}
	flags(cmd, scenarioHeading, opt(&sf.file, "scenario,f", "", "Scenario `file` (YAML); flags override it"))
	fields := scenario.Fields()
	for i := range fields {
		f := &fields[i]
		section, _, _ := strings.Cut(f.Section, ".")
		if f.Flag != "" && (f.Section == "" || slices.Contains(sections, section)) {
			addSetting(cmd, cmp.Or(f.Group, scenarioHeading), f)
		}
	}
	if slices.Contains(sections, "cluster") {
		flags(cmd, scenarioHeading, opt(&sf.manifests, "cluster", "",
			"Workers and adapters of Kubernetes manifests or Helm values, `FILE,FILE,...`; flags override them"))
		addEngineArgs(cmd, "Engine")
	}
	return sf
}

// engineArgsFlag is the flag for the keys of the engine.
const engineArgsFlag = "engine-args"

// addEngineArgs adds --engine-args.
func addEngineArgs(cmd *cobra.Command, heading string) {
	cmd.Flags().Var(&engineArgs{}, engineArgsFlag,
		"Keys of the engine, KEY=VALUE,..., by its own names, as in max_loras_per_batch=8 or max_loras=8; repeatable")
	annotate(cmd.Flags().Lookup(engineArgsFlag), groupKey, heading)
}

// engineArgs is the value of --engine-args: texts of each use.
type engineArgs []string

func (a *engineArgs) String() string { return strings.Join(*a, ",") }
func (a *engineArgs) Type() string   { return "string" }

func (a *engineArgs) Set(text string) error {
	sc := scenario.Default()
	if err := sc.EngineArgs(text); err != nil {
		return err
	}
	*a = append(*a, text)
	return nil
}

func addSetting(cmd *cobra.Command, heading string, field *scenario.Field) {
	v := &settingValue{field: field, text: defaultTexts()[field.Flag]}
	f := cmd.Flags().VarPF(v, field.Flag, "", field.Help)
	if v.Type() == "bool" {
		f.NoOptDefVal = "true"
	}
	annotate(f, groupKey, heading)
}

// defaultTexts are the defaults of the settings by their flags. Ten commands have a flag for each.
var defaultTexts = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	def := scenario.Default()
	for _, f := range scenario.Fields() {
		texts[f.Flag] = f.Get(&def)
	}
	return texts
})

// addWorkerSettings adds flags for settings of workers that policies use if workers do not report
// them.
func addWorkerSettings(cmd *cobra.Command, keys ...string) {
	addEngineArgs(cmd, "Workers, as policies assume them")
	addSettings(cmd, "Workers, as policies assume them", keys...)
}

// pushHeading is the heading of the flags for new versions of adapters.
const pushHeading = "Versions of adapters"

// addSettings adds flags for settings under a heading.
func addSettings(cmd *cobra.Command, heading string, keys ...string) {
	for _, key := range keys {
		f, err := scenario.Find(key)
		if err != nil {
			panic(err) // a programming error
		}
		addSetting(cmd, heading, &f)
	}
}

// scenario returns the scenario of the file and the flags. args is at most one argument: the file.
func (sf *scenarioFlags) scenario(cmd *cobra.Command, args ...string) (sc scenario.Scenario, err error) {
	if len(args) > 0 && sf.file != "" {
		return sc, usage(fmt.Errorf("--scenario %s: %s is given as the scenario, too", sf.file, args[0]))
	}
	if sc = scenario.Default(); sf.file != "" || len(args) > 0 {
		file := cmp.Or(sf.file, strings.Join(args, ""))
		sc, err = scenario.Load(cmd.Context(), file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && sf.file == "" && !isScenario(file):
			return sc, usage(fmt.Errorf("unexpected argument %q: expected a scenario file (YAML); a list has commas, as in A,B", file))
		case err != nil:
			return sc, usage(err)
		}
	}
	sc.Files = columnar.Files()
	told := map[string]bool{} // a command may read a log several times, also at once
	var mu sync.Mutex
	sc.LogRead = func(path string, report *requestlog.Report) {
		mu.Lock()
		defer mu.Unlock()
		if told[path] {
			return
		}
		told[path] = true
		for _, line := range report.Short(path) {
			say(cmd, "%s: %s", path, line)
		}
	}
	if sf.manifests != "" {
		if err := sf.applyManifests(cmd, &sc); err != nil {
			return sc, err
		}
	}
	err = sf.apply(cmd, &sc)
	return sc, err
}

// with makes a command call work with the scenario of the file and the flags. The file may be the command's argument.
func (sf *scenarioFlags) with(work func(cmd *cobra.Command, sc *scenario.Scenario) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		sc, err := sf.scenario(cmd, args...)
		if err != nil {
			return err
		}
		return work(cmd, &sc)
	}
}

// among is with for commands with other arguments, among which may be the file.
func (sf *scenarioFlags) among(work func(cmd *cobra.Command, sc *scenario.Scenario,
	args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var file []string
		if i := slices.IndexFunc(args, isScenario); i >= 0 {
			file, args = args[i:i+1], slices.Concat(args[:i], args[i+1:])
		}
		sc, err := sf.scenario(cmd, file...)
		if err != nil {
			return err
		}
		return work(cmd, &sc, args)
	}
}

// isScenario reports whether an argument names a scenario file, rather than a worker.
func isScenario(arg string) bool {
	return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

// apply changes a scenario by the given flags.
func (sf *scenarioFlags) apply(cmd *cobra.Command, sc *scenario.Scenario) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*settingValue); ok && err == nil {
			if e := sc.Set(v.field.Key, v.text); e != nil {
				err = usage(fmt.Errorf("--%s: %w", f.Name, e))
			}
		}
		if args, ok := f.Value.(*engineArgs); ok && err == nil {
			if e := sc.EngineArgs(args.String()); e != nil {
				err = usage(fmt.Errorf("--%s: %w", f.Name, e))
			}
		}
	})
	return cmp.Or(err, checkTraceAliases(cmd, &sc.Workload))
}

// checkTraceAliases returns an error if a flag for replayed traces was given without a trace.
func checkTraceAliases(cmd *cobra.Command, w *scenario.Workload) error {
	f := cmd.Flags().Lookup("arrivals")
	if f == nil || w.UseTrace || w.TraceName != "" || w.TracePath != "" || w.TraceHistogram.Given() {
		return nil
	}
	if by := spelled(f); strings.HasPrefix(by, "--trace-") {
		return usage(fmt.Errorf("%s is for traces, and no trace is replayed (see --trace-path): give --arrivals %s for generated requests",
			by, f.Value))
	}
	return nil
}

// settingValue is the value of a flag for a setting.
type settingValue struct {
	field *scenario.Field
	text  string
}

func (v *settingValue) String() string { return v.text }
func (v *settingValue) Type() string   { return v.field.Type() }

func (v *settingValue) Set(s string) error {
	if err := v.field.Check(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// withUsageErrors turns wrong arguments of a command and its subcommands into usage errors, and
// groups the flags in the help.
func withUsageErrors(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.SetUsageFunc(usageOf)
	addHelpAll(cmd)
	addAliases(cmd)
	check := cmd.Args
	if check == nil {
		check = noArguments
		if cmd.HasSubCommands() {
			check, cmd.RunE = subcommandsOnly, help
		}
	}
	cmd.Args = func(c *cobra.Command, args []string) error {
		switch err := check(c, args); {
		case err != nil && strings.Contains(err.Error(), " arg(s), "): // cobra counts arguments, without names
			return usage(fmt.Errorf("wrong number of arguments, %d: expected %s", len(args),
				strings.TrimSuffix(c.UseLine(), " [flags]")))
		case err != nil:
			return usage(err)
		}
		return cmp.Or(usage(applyAliases(c)), usage(checkBounds(c)), checkWrites(c))
	}
	for _, c := range cmd.Commands() {
		withUsageErrors(c)
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: %s takes flags alone; a list has commas, as in A,B", args[0],
			cmd.CommandPath())
	}
	return nil
}

func subcommandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(unknownCommand(cmd, args[0]))
	}
	return nil
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		known = append(known, c.Name())
		if slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name }) {
			return fmt.Errorf("unknown command %q, did you mean %q?", suggest.Clip(name), c.Name()+" "+name)
		}
	}
	return suggest.Unknown("command", name, known)
}

// checkBounds checks the given flags.
func checkBounds(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		text := f.Annotations[boundsKey]
		if len(text) == 0 || err != nil {
			return
		}
		b := bounds.MustParse(text[0])
		for one := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			x, e := strconv.ParseFloat(one, 64)
			if d, isTime := time.ParseDuration(one); e != nil && isTime == nil {
				x, e = d.Seconds(), nil
			}
			if e != nil || !b.Has(x) {
				err = fmt.Errorf("--%s: %q is not %s", f.Name, one, wanted(f))
			}
		}
	})
	return err
}

// checkMode returns an error about a given flag that has no effect. A flag under the heading with needs the flag mode;
// one under the heading without excludes it. on is the value of the flag mode.
func checkMode(cmd *cobra.Command, mode string, on bool, with, without string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch heading := headingOf(f); {
		case f.Name == mode:
		case heading == with && !on:
			err = fmt.Errorf("--%s has no effect without --%s", f.Name, mode)
		case heading == without && on:
			err = fmt.Errorf("--%s has no effect with --%s", f.Name, mode)
		}
	})
	return usage(err)
}

// wanted returns the allowed values of a flag, for error messages.
func wanted(f *pflag.Flag) string {
	text := kindOf(f)
	if b := f.Annotations[boundsKey]; len(b) > 0 {
		text = strings.TrimSpace(text + " " + bounds.MustParse(b[0]).String())
	}
	return text
}

func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64", "uint64", "intSlice":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a duration such as 500ms or 1m30s"
	case "bool":
		return "true or false"
	}
	return "a " + f.Value.Type()
}

// flagError returns a readable form of an error of the flag library.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return pflag.ErrHelp // for --help-all
	case errors.As(err, &value):
		f := value.GetFlag()
		switch f.Value.(type) {
		case *settingValue, *engineArgs, *aliasValue:
			return usage(fmt.Errorf("--%s: %w", f.Name, errors.Unwrap(err)))
		}
		return usage(fmt.Errorf("--%s: %q is not %s", f.Name, value.GetValue(), wanted(f)))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return usage(fmt.Errorf("unknown flag -%s in -%s", name, unknown.GetSpecifiedShortnames()))
		}
		if slices.Contains(hardwareFlags, name) && cmd.Flags().Lookup("profile") != nil {
			return usage(fmt.Errorf("unknown flag %q: model and hardware come from the profile, as in --profile analytic:MODEL,GPU,tp=N "+
				"(lorasim profile compute --list has the models and GPUs, lorasim profile list the measured profiles)",
				"--"+name))
		}
		if key := engineKey(name); key != "" && cmd.Flags().Lookup(engineArgsFlag) != nil {
			return usage(fmt.Errorf("unknown flag %q: it is a key of the engine, --engine-args %s=VALUE", "--"+name,
				key))
		}
		if now := scenario.Renamed(name); now != "" && cmd.Flags().Lookup("arrivals") != nil {
			return usage(fmt.Errorf("unknown flag %q: %s", "--"+name, now))
		}
		if hint := engineHints()[name]; hint != "" && cmd.Flags().Lookup("profile") != nil {
			return usage(fmt.Errorf("unknown flag %q: %s", "--"+name, hint))
		}
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if _, alias := f.Value.(*aliasValue); alias || !f.Hidden {
				known = append(known, "--"+f.Name)
			}
		})
		if all := cmd.Flags().Lookup(helpAll); all != nil && suggest.Likely("--"+name, known) == "" {
			return usage(fmt.Errorf("unknown flag %q (%s --%s describes all flags)", "--"+suggest.Clip(name),
				cmd.CommandPath(), helpAll))
		}
		return usage(suggest.Unknown("flag", "--"+name, known))
	case errors.As(err, &missing):
		f := missing.GetFlag()
		return usage(fmt.Errorf("--%s: the value is missing, expected %s", f.Name, kindOf(f)))
	}
	return usage(err)
}

// hardwareFlags are flags of engines, or of lorasim profile compute, whose values are part of a
// profile in other commands.
var hardwareFlags = []string{"model", "model-path", "gpu", "gpus", "tp", "tp-size", "tensor-parallel-size"}

// oneOf returns an error if a value is not one of the known ones.
func oneOf(flag, what, value string, known []string) error {
	if err := suggest.Among(what, value, known); err != nil {
		return usage(fmt.Errorf("--%s: %w", flag, err))
	}
	return nil
}

// engineKey returns the key of the engine that a flag's name is; "": none.
func engineKey(flag string) string {
	key := strings.ReplaceAll(flag, "-", "_")
	for _, f := range scenario.EngineFields() {
		if slices.Contains(f.Names(), key) {
			return key
		}
	}
	return ""
}
