package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/importer"
)

func newImport() *cobra.Command {
	var print, asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Read results of real runs from serving-benchmark logs and JSONL files",
		Long: `Import finds the result blocks in logs of the serving benchmarks, however much
else stands between them, and the lines of their JSONL files. It lists what it
found, or prints every block again in its own layout.`,
		Example: "  lorasim import bench.log\n  lorasim import --print bench.log\n  lorasim import --json *.log results.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if print && asJSON {
				return usage(errors.New("--print and --json exclude each other"))
			}
			runs, warnings, err := importer.Files(args)
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "lorasim: warning:", w)
			}
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case print:
				for _, r := range runs {
					if err := r.Print(w); err != nil {
						return err
					}
				}
				return nil
			case asJSON:
				for _, r := range runs {
					if err := r.WriteJSON(w); err != nil {
						return err
					}
				}
				return nil
			}
			return importer.WriteTable(w, runs)
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print every block again in its own layout")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print every result as one line of JSON")
	return cmd
}
