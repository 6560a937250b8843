package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/live/fleet"
	"lorasim/bench/matrix"
)

func newCheck() *cobra.Command {
	var f remoteFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "check URL...",
		Short: "Look at live workers: what they are, hold and take, and what policies cannot do there",
		Long: `Check asks each worker for its engine, model, adapters and limits, whether it
loads adapters while it runs, whether replies tell token ids, and how its clock
stands to this machine's. It changes nothing and takes a second; each worker gets
one request for a token. It fails if a worker does not answer.`,
		Example: `  lorasim check http://gpu0:30000 http://gpu1:30000
  lorasim check localhost:8000 --json`,
		Args: cobra.ArbitraryArgs,
	}
	f.addConnection(cmd)
	jsonFlag(cmd, "print one JSON object")
	flags(cmd, "", opt(&wait, "ready-timeout", 0, readyHelp, ">=0"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var workers fleet.Config
		err := f.parse(args, &workers)
		if err != nil {
			return usage(err)
		}
		defer workers.Client.CloseIdleConnections()
		reports := fleet.Check(cmd.Context(), workers.Connection, wait, true)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if err := show(cmd, func(w io.Writer) error { return printReports(w, reports) },
			inJSON(map[string]any{"schema": "lorasim.check/1", "workers": reports}, "  ")); err != nil {
			return err
		}
		failed := 0
		for i := range reports {
			if reports[i].Error != "" {
				failed++
			}
		}
		if failed > 0 {
			return fmt.Errorf("%d of %d workers cannot be used", failed, len(reports))
		}
		return nil
	}
	return cmd
}

func printReports(w io.Writer, reports []fleet.Report) error {
	var b strings.Builder
	row := func(what string, value any) {
		if reflect.ValueOf(value).IsZero() {
			value = "not told"
		}
		fmt.Fprintf(&b, "  %-18s %v\n", what, value)
	}
	for i := range reports {
		r := &reports[i]
		fmt.Fprintln(&b, r.URL)
		if r.Error != "" {
			row("cannot be used", r.Error)
			continue
		}
		clock := ""
		if c := r.Clock; c != nil {
			clock = fmt.Sprintf("%+.0f ms, known to %.0f ms; round trip %.1f ms", 1e3*c.Offset, 1e3*c.Error, 1e3*c.RoundTrip)
		}
		for _, told := range []struct {
			what  string
			value any
		}{{"engine", fmt.Sprint(r.API, " ", r.Version)}, {"model", r.Model}, {"context length", r.ContextLength}, {"LoRA", r.LoRA},
			{"run-time loading", r.RunTime}, {"adapter slots", r.Slots}, {"largest rank", r.MaxRank}, {"adapters at most", r.MaxLoaded},
			{"KV tokens", r.KVCapacity}, {"running at most", r.MaxRunning},
			{"adapters", strings.TrimSpace(fmt.Sprint(len(r.Adapters), " ", strings.Join(r.Adapters, " ")))},
			{"token ids", r.TokenIDs}, {"clock", clock}} {
			row(told.what, told.value)
		}
		for _, text := range r.Cannot {
			row("policies cannot", text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
		Example: "  lorasim matrix backends.yaml\n  lorasim matrix backends.yaml --rerun --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := matrix.Load(args[0])
			if err != nil {
				return usage(err)
			}
			rows, err := m.Run(cmd.Context(), matrix.Options{Log: cmd.ErrOrStderr(), Rerun: rerun})
			werr := show(cmd, func(w io.Writer) error { return matrix.WriteTable(w, rows) }, inJSON(map[string]any{"name": m.Name, "runs": rows}, ""))
			if err := cmp.Or(werr, err); err != nil {
				return err
			}
			if n := matrix.Failed(rows); n > 0 {
				return fmt.Errorf("%d of %d combinations failed", n, len(rows))
			}
			return nil
		},
	}
	jsonFlag(cmd, "print the table as one JSON object")
	flags(cmd, "", opt(&rerun, "rerun", false, "run combinations again that are done"))
	return cmd
}
