package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelpIsShort: a flag has at most three lines of help beside its name, and sim --help fits two screens.
func TestHelpIsShort(t *testing.T) {
	walk(Root(), func(cmd *cobra.Command) {
		for _, g := range groupsOf(cmd, func(*pflag.Flag) bool { return true }, headingOf) {
			g.flags.VisitAll(func(f *pflag.Flag) {
				_, help := describeFlag(f)
				if lines := wrapWords(help, helpWidth-flagColumn); len(lines) > 3 {
					t.Errorf("%s --%s: %d lines of help: %q", cmd.CommandPath(), f.Name, len(lines), lines)
				}
			})
		}
	})
	if n := strings.Count(lorasim(t, "sim", "--help"), "\n"); n > 102 {
		t.Errorf("sim --help has %d lines, expected at most 102", n)
	}
}

// TestHelpNamesAllFlags: --help describes or names each flag, --help-all describes each.
func TestHelpNamesAllFlags(t *testing.T) {
	seen := map[string]bool{}
	walk(Root(), func(cmd *cobra.Command) {
		names := commonFlags[pathOf(cmd)]
		if names == nil {
			return
		}
		seen[pathOf(cmd)] = true
		for _, name := range names {
			if name != "*" && cmd.Flags().Lookup(name) == nil {
				t.Errorf("commonFlags: %s has no flag --%s", cmd.Name(), name)
			}
		}
		words := strings.Fields(pathOf(cmd))
		short, all := lorasim(t, append(words, "--help")...), lorasim(t, append(words, "--help-all")...)
		described := strings.Split(all, "\n")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			if !slices.Contains(strings.Fields(short), "--"+f.Name) {
				t.Errorf("%s --help does not name --%s", cmd.Name(), f.Name)
			}
			if !slices.ContainsFunc(described, func(line string) bool {
				at := strings.Index(line+" ", "--"+f.Name+" ")
				return 0 <= at && at <= 6
			}) {
				t.Errorf("%s --help-all does not describe --%s", cmd.Name(), f.Name)
			}
		})
		if strings.Count(short, "\n") >= strings.Count(all, "\n") {
			t.Errorf("%s --help is as long as --help-all", cmd.Name())
		}
	})
	for name := range commonFlags {
		if !seen[name] {
			t.Errorf("commonFlags: there is no command %s", name)
		}
	}
}
