package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"lorasim/ilp/highs"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and what is built in",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText is the version and what is built in.
func versionText() string {
	version, revision := "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("lorasim %s%s (%s, %s/%s)\nsolvers: %s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH, solvers())
}

// solvers names the solvers of migration problems that are built in.
func solvers() string {
	if highs.Available() {
		return "embedded, highs " + highs.Version()
	}
	return "embedded (highs: run scripts/highs and build with -tags highs)"
}
