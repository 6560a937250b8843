package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan returns the command for manual pages. It is hidden, as only packagers need it.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page of every command into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date := time.Now() // $SOURCE_DATE_EPOCH, if it is set
			if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
				seconds, err := strconv.ParseInt(epoch, 10, 64)
				if err != nil {
					return fmt.Errorf("manual pages: invalid SOURCE_DATE_EPOCH: %w", err)
				}
				date = time.Unix(seconds, 0).UTC()
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManuals(cmd.Root(), args[0], date)
		},
	}
}

// writeManuals writes the pages of a command and the commands below it.
func writeManuals(cmd *cobra.Command, folder string, date time.Time) error {
	for _, c := range manualsBelow(cmd) {
		if err := writeManuals(c, folder, date); err != nil {
			return err
		}
	}
	cmd.InitDefaultHelpFlag()
	return os.WriteFile(filepath.Join(folder, manualName(cmd)+".1"), []byte(manual(cmd, date)), 0o644)
}

// manualsBelow lists the subcommands that have pages.
func manualsBelow(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return !c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()
	})
}

func manualName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual returns the page of a command in the language of man(7).
func manual(cmd *cobra.Command, date time.Time) string {
	var b strings.Builder
	name := manualName(cmd)
	fmt.Fprintf(&b, ".nh\n.TH %q \"1\" %q \"lorasim\" \"lorasim\"\n", strings.ToUpper(name), date.Format("Jan 2006"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fP\n.SH DESCRIPTION\n", roff(cmd.UseLine()))
	indented := false // lines of an indented block keep their breaks
	for line := range strings.Lines(cmp.Or(cmd.Long, cmd.Short)) {
		if now := strings.HasPrefix(line, " "); now != indented {
			indented = now
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[now])
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if indented {
		b.WriteString(".fi\n")
	}
	manualFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manualFlags(&b, "OPTIONS INHERITED FROM PARENT COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLE\n.nf\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(roff(line))
		}
		b.WriteString("\n.fi\n")
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manualName(cmd.Parent()))
	}
	for _, c := range manualsBelow(cmd) {
		also = append(also, manualName(c))
	}
	for i, n := range also {
		also[i] = `\fB` + roff(n) + `(1)\fP`
	}
	if len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, ", "))
	}
	return b.String()
}

// manualFlags adds a section with flags.
func manualFlags(b *strings.Builder, heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", heading)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		short, value := "", "="+f.DefValue
		if f.Shorthand != "" {
			short = `\fB` + roff("-"+f.Shorthand) + `\fP, `
		}
		if f.Value.Type() == "string" {
			value = fmt.Sprintf("=%q", f.DefValue)
		}
		if f.NoOptDefVal != "" {
			value = "[" + value + "]"
		}
		fmt.Fprintf(b, ".TP\n%s\\fB%s\\fP%s\n%s\n", short, roff("--"+f.Name), roff(value), roff(f.Usage))
	})
}

// roff escapes a text for man(7).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n.", "\n\\&."), "\n'", "\n\\&'")
}
