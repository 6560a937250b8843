package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lorasim/bench/serving/matrix"
)

func newMatrix() *cobra.Command {
	var rerun bool
	cmd := &cobra.Command{
		Use:   "matrix FILE.yaml",
		Short: "Run every combination of server commands and client commands",
		Long: `Matrix starts each server of a file, waits until it is ready, runs each client
against it, stops the server, and prints one table. Logs, results and a joined
results.txt stay in a folder beside the file. A combination that fails does not
stop the others; one that is done is not run again, so an interrupted matrix goes
on where it was.

  name: backends
  servers:
    - name: plain
      command: lorasim worker --listen 127.0.0.1:30001 --num-adapters 4
      ready: {urls: ["http://127.0.0.1:30001/health"], timeout: 1m}  # and/or log: PATTERN
      stop: {signal: TERM, timeout: 30s}
  clients:
    - name: rate4
      command: lorasim bench 127.0.0.1:30001 --num-adapters 4 --request-rate 4 --num-prompts 100
      timeout: 10m

Commands run in the file's folder by the shell; $MATRIX_DIR is the folder of the
combination.`,
		Example: "  lorasim bench matrix backends.yaml\n  lorasim bench matrix backends.yaml --rerun --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := matrix.Load(cmd.Context(), args[0])
			if err != nil {
				return usage(err)
			}
			rows, err := m.Run(cmd.Context(), matrix.Options{Log: cmd.ErrOrStderr(), Rerun: rerun})
			werr := show(cmd, func(w io.Writer) error { return matrix.WriteTable(w, rows) },
				inJSON(map[string]any{"name": m.Name, "runs": rows}, ""))
			if err := cmp.Or(werr, err); err != nil {
				return err
			}
			if n := matrix.Failed(rows); n > 0 {
				return fmt.Errorf("%d of %d combinations failed", n, len(rows))
			}
			return nil
		},
	}
	jsonFlag(cmd, "Print the table as one JSON object")
	flags(cmd, "", opt(&rerun, "rerun", false, "Run combinations again that are done"))
	return cmd
}
