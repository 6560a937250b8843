package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
	"lorasim/internal/suggest"
)

// groupKey annotates a flag with the heading it is listed under in the help.
const groupKey = "group"

// scenarioFlags are the flags that stand for settings of a scenario. The
// scenario file comes first, flags that are given win over it.
type scenarioFlags struct {
	file  string
	print bool
}

// headings of the sections in the help.
var headings = map[string]string{
	"":         "Scenario",
	"workload": "Workload",
	"cluster":  "Workers (default: as the profile says)",
	"routing":  "Routing",
	"client":   "Client",
}

// addScenarioFlags gives a command the flags of some sections of a scenario.
// Their values are read from the command line only where they were given, so
// they all share one variable type that knows the default's text.
func addScenarioFlags(cmd *cobra.Command, sections ...string) *scenarioFlags {
	sf := &scenarioFlags{}
	fs := cmd.Flags()
	def := scenario.Default()
	fs.StringVarP(&sf.file, "scenario", "f", "", "scenario `file` (YAML); flags win over it")
	group(cmd, headings[""], "scenario")
	for _, f := range scenario.Fields() {
		if f.Flag == "" || !contains(sections, f.Section) && f.Section != "" {
			continue
		}
		v := &settingValue{field: f, text: f.Get(&def)}
		flag := fs.VarPF(v, f.Flag, "", f.Help)
		if v.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		group(cmd, headings[f.Section], f.Flag)
	}
	return sf
}

// addPrintConfig adds --print-config.
func (sf *scenarioFlags) addPrintConfig(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&sf.print, "print-config", false, "print the effective scenario and stop; the file reproduces the run")
	group(cmd, headings[""], "print-config")
}

// scenario returns the scenario that file and flags amount to.
func (sf *scenarioFlags) scenario(cmd *cobra.Command) (scenario.Scenario, error) {
	sc := scenario.Default()
	if sf.file != "" {
		var err error
		if sc, err = scenario.Load(sf.file); err != nil {
			return sc, usage(err)
		}
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*settingValue); ok && err == nil {
			if e := sc.Set(v.field.Key, v.text); e != nil {
				err = usage(fmt.Errorf("--%s: %w", f.Name, e))
			}
		}
	})
	return sc, err
}

// settingValue is the value of a flag that stands for a setting.
type settingValue struct {
	field scenario.Field
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

// group puts flags under a heading in the help.
func group(cmd *cobra.Command, heading string, names ...string) {
	for _, n := range names {
		if err := cmd.Flags().SetAnnotation(n, groupKey, []string{heading}); err != nil {
			panic(err) // the flag was not defined: a fault of the caller
		}
	}
}

// groupedUsage prints a command's help with its flags under their headings.
func groupedUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", cmd.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	var order []string
	groups := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		h := "Options"
		if g := f.Annotations[groupKey]; len(g) > 0 {
			h = g[0]
		}
		if groups[h] == nil {
			groups[h] = pflag.NewFlagSet(h, pflag.ContinueOnError)
			groups[h].SortFlags = false
			order = append(order, h)
		}
		groups[h].AddFlag(f)
	})
	for _, h := range order {
		if text := groups[h].FlagUsagesWrapped(100); text != "" {
			fmt.Fprintf(w, "\n%s:\n%s", h, text)
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help tells more.\n", cmd.CommandPath())
	}
	return nil
}

// withUsageErrors makes wrong arguments of a command and those below it usage
// errors, and groups the flags in its help.
func withUsageErrors(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.SetUsageFunc(groupedUsage)
	check := cmd.Args
	switch {
	case check != nil:
	case cmd.HasSubCommands():
		check = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		}
		cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	default:
		check = cobra.NoArgs
	}
	cmd.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(err)
		}
		return usage(checkBounds(c))
	}
	for _, c := range cmd.Commands() {
		withUsageErrors(c)
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return suggest.Unknown("command", name, known)
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
