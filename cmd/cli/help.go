package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
)

// helpWidth is the width of help texts, in columns.
const helpWidth = 80

// commonSettings are the settings of a scenario that --help describes where a command has many flags. --help-all
// describes all of them.
var commonSettings = []string{"scenario", "seed", "workload", "num-prompts", "num-adapters", "request-rate",
	"popularity", "lengths", "num-workers", "profile", "scheduler", "engine-args", "policy",
	"migration-interval"}

// commonFlags are the flags that --help describes in addition to commonSettings, by the command's path. "*" stands for
// all flags of the command that are not settings of a scenario. The --help of other commands describes all flags.
var commonFlags = map[string][]string{
	"sim":        {"records", "plans", "json", "goodput", "intervals", "print-config"},
	"sweep":      {"*"},
	"capacity":   {"*"},
	"advise":     {"*"},
	"trace info": {"*"},
	"bench": {"worker-urls", "backend", "lora", "lora-dir", "max-concurrency", "request-timeout", "api-key-file",
		"records", "plans", "json", "goodput"},
	"gateway": {"worker-urls", "listen", "admin-listen", "lora", "lora-file", "lora-dir", "api-key-file",
		"gateway-key-file", "admin-key-file", "access-log", "max-requests", "first-token-timeout", "grace", "ext-proc"},
	"worker": {"listen", "api", "api-key-file", "time-scale", "lora", "lora-ranks", "served-model-name"},
}

// pathOf returns a command's path without the program's name, such as "trace info".
func pathOf(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// isCommon reports whether --help describes a flag.
func isCommon(cmd *cobra.Command, f *pflag.Flag) bool {
	more := commonFlags[pathOf(cmd)]
	_, setting := f.Value.(*settingValue)
	return more == nil || slices.Contains(more, f.Name) || slices.Contains(commonSettings, f.Name) ||
		f.Name == helpAll || f.Name == "help" || !setting && more[0] == "*"
}

const (
	helpAll    = "help-all"
	aliasesKey = "aliases" // annotation of a command: the last paragraph of its help
)

// addHelpAll adds --help-all to a command. It is hidden where --help describes all flags, too.
func addHelpAll(cmd *cobra.Command) {
	f := cmd.Flags().VarPF(new(helpAllValue), helpAll, "", "Describe all flags")
	f.NoOptDefVal, f.Hidden = "true", commonFlags[pathOf(cmd)] == nil
}

// helpAllValue is the value of --help-all. Like --help, the flag ends the reading of the command line.
type helpAllValue bool

func (v *helpAllValue) String() string { return fmt.Sprint(bool(*v)) }
func (v *helpAllValue) Type() string   { return "bool" }

func (v *helpAllValue) Set(string) error {
	*v = true
	return pflag.ErrHelp
}

// usageOf prints the usage of a command: with its common flags, or with all flags under their
// headings.
func usageOf(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	line := cmd.UseLine()
	if !cmd.HasParent() {
		line = cmd.Name() + " COMMAND"
	}
	fmt.Fprintf(w, "Usage:\n  %s\n", line)
	writeCommands(w, cmd)
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	all := commonFlags[pathOf(cmd)] == nil || cmd.Flags().Lookup(helpAll).Value.String() == "true"
	if all {
		for _, g := range groupsOf(cmd, func(*pflag.Flag) bool { return true }, headingOf) {
			g.describe(w)
		}
		fmt.Fprint(w, cmd.Annotations[aliasesKey])
	} else {
		common := func(f *pflag.Flag) bool { return isCommon(cmd, f) }
		for _, g := range groupsOf(cmd, common, sectionOf) {
			g.describe(w)
		}
		fmt.Fprintf(w, "\nMore flags, which %s --%s describes:\n", cmd.CommandPath(), helpAll)
		for _, g := range groupsOf(cmd, func(f *pflag.Flag) bool { return !common(f) }, headingOf) {
			g.writeNames(w)
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help tells more.\n", cmd.CommandPath())
	}
	return nil
}

// writeCommands lists the subcommands of a command, by group.
func writeCommands(w io.Writer, cmd *cobra.Command) {
	list := func(heading, group string) {
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if heading != "" {
				fmt.Fprintf(w, "\n%s:\n", heading)
				heading = ""
			}
			for i, line := range wrapWords(c.Short, helpWidth-cmd.NamePadding()-3) {
				name := c.Name()
				if i > 0 {
					name = ""
				}
				fmt.Fprintf(w, "  %-*s %s\n", cmd.NamePadding(), name, line)
			}
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	if len(cmd.Groups()) > 0 {
		list("Others", "")
	} else {
		list("Commands", "")
	}
}

// flagGroup is the flags under one heading.
type flagGroup struct {
	heading string
	flags   *pflag.FlagSet
}

// headingOf returns the heading of a flag.
func headingOf(f *pflag.Flag) string {
	if g := f.Annotations[groupKey]; len(g) > 0 {
		return g[0]
	}
	return "Options"
}

// sectionOf is the heading of a common flag: the section of its setting in a scenario file.
func sectionOf(f *pflag.Flag) string {
	v, setting := f.Value.(*settingValue)
	switch {
	case f.Name == helpAll || f.Name == "help":
		return "Help"
	case f.Name == "scenario" || f.Name == "print-config" || setting && v.field.Section == "":
		return "Run"
	case f.Name == "engine-args" || setting && v.field.Section == scenario.EngineSection:
		return "Cluster"
	case !setting:
		return headingOf(f)
	}
	return strings.ToUpper(v.field.Section[:1]) + v.field.Section[1:]
}

// groupsOf returns the flags of a command that keep accepts, grouped by heading. Groups are in the
// order of their first flags.
func groupsOf(cmd *cobra.Command, keep func(*pflag.Flag) bool, headingOf func(*pflag.Flag) string) (
	groups []*flagGroup) {
	cmd.LocalFlags().SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || !keep(f) {
			return
		}
		heading := headingOf(f)
		i := slices.IndexFunc(groups, func(g *flagGroup) bool { return g.heading == heading })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &flagGroup{heading, pflag.NewFlagSet(heading, pflag.ContinueOnError)})
			groups[i].flags.SortFlags = false
		}
		groups[i].flags.AddFlag(f)
	})
	return groups
}

// flagColumn is the column at which the help of flags begins. A flag whose name is longer has its help below it.
const flagColumn = 28

// describe writes the heading and the help of each flag.
func (g *flagGroup) describe(w io.Writer) {
	fmt.Fprintf(w, "\n%s:\n", g.heading)
	g.flags.VisitAll(func(f *pflag.Flag) {
		name, help := describeFlag(f)
		if len(name) > flagColumn-2 {
			fmt.Fprintln(w, name)
			name = ""
		}
		for _, line := range wrapWords(help, helpWidth-flagColumn) {
			fmt.Fprintf(w, "%-*s%s\n", flagColumn, name, line)
			name = ""
		}
	})
}

// wrapWords breaks a text at spaces alone, so that values such as ttft:500 stay whole.
func wrapWords(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}

// describeFlag returns a flag with the name of its value, and its help with its default.
func describeFlag(f *pflag.Flag) (name, help string) {
	value, help := pflag.UnquoteUsage(f)
	name = "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	if value != "" {
		name += " " + value
	}
	switch f.DefValue {
	case "", "false", "0", "0s", "[]", "<nil>":
		return name, help
	}
	if f.Value.Type() == "string" {
		return name, help + fmt.Sprintf(" (default %q)", f.DefValue)
	}
	return name, help + " (default " + f.DefValue + ")"
}

// headingWidth is the width of headings beside flag names, in columns.
const headingWidth = 26

// writeNames writes the heading and, beside it, only the names of the flags.
func (g *flagGroup) writeNames(w io.Writer) {
	var names []string
	g.flags.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	heading := g.heading
	for _, line := range wrapWords(strings.Join(names, " "), helpWidth-headingWidth-3) {
		fmt.Fprintf(w, "  %-*s %s\n", headingWidth, heading, line)
		heading = ""
	}
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }
