package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lorasim/bench/importer"
	"lorasim/bench/result/records"
)

func newImport() *cobra.Command {
	var print, asJSON bool
	var keep string
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Read results of real runs: logs, and the files of sglang, vLLM, AIPerf and GuideLLM",
		Long: `Import finds the result blocks in logs of the serving benchmarks, however much
else stands between them, and reads the results that clients write: the JSON
lines of sglang's bench_serving, the JSON of vllm bench serve and of GuideLLM, and
AIPerf's summary (..._aiperf.json) and requests (.jsonl). It lists what it found,
or prints every run as a block, a log's in its own layout. What a file does not
tell is said in a line. --records keeps the single requests, where a file has
them, for report and calibrate.`,
		Example: `  lorasim import bench.log
  lorasim import --print profile_export_aiperf.json
  lorasim import benchmarks.json --records requests.parquet
  lorasim import --json *.log results.jsonl`,
		Args: cobra.MinimumNArgs(1),
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
			if keep != "" {
				if err := writeImported(keep, runs); err != nil {
					return err
				}
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
	cmd.Flags().StringVar(&keep, "records", "", "write the requests of the one run that has them to `file` (.parquet, .arrow, .csv or .jsonl)")
	return cmd
}

// writeImported writes the requests of the one run that has some.
func writeImported(path string, runs []*importer.Imported) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(m *importer.Imported) bool { return len(m.Records) == 0 })
	if len(runs) != 1 {
		return fmt.Errorf("--records: %d runs have requests, expected one", len(runs))
	}
	w, err := records.Create(path, runs[0].Adapters)
	if err != nil {
		return err
	}
	defer w.Abort()
	for i := range runs[0].Records {
		if err := w.Write(&runs[0].Records[i]); err != nil {
			return err
		}
	}
	return w.Close()
}
