package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lorasim/bench/scenario"
	"lorasim/bench/scenario/starter"
	"lorasim/internal/atomicfile"
	"lorasim/trace/columnar"
)

// tryThis is the output of lorasim without arguments.
const tryThis = `lorasim: where should each LoRA adapter and each request go? Try:

  lorasim sim                       simulate 4 workers with 32 adapters; takes a second
  lorasim init                      three questions, then a scenario of your own cluster
  lorasim advise scenario.yaml      which policy, and how sure that is
  lorasim trace import LOG -o w.parquet       a workload from your own log of requests
  lorasim gateway gpu0:8000 gpu1:8000         route real requests to sglang or vLLM
  lorasim --help                    all commands; lorasim COMMAND --help tells more
`

// initFlags are the flags of the init command.
type initFlags struct {
	a     starter.Answers
	force bool
}

func newInit() *cobra.Command {
	f := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first scenario of your own cluster, with comments",
		Long: `Init writes a scenario with comments to FILE (default: scenario.yaml; -: stdout). On a
terminal it asks for what the flags do not say: the workers and their GPU, the
requests per second or a log of requests, and the number of adapters. Without a
terminal, or with an empty answer, it takes the default. The values that follow
from the GPU, such as adapter slots and KV cache, are in the comments.`,
		Example: `  lorasim init
  lorasim init --num-workers 6 --profile llama-3.1-8b-h100-64gb-vllm-0.8.5 --num-adapters 100 --request-rate 20
  lorasim init mine.yaml --num-workers 4 --workload requests.csv`,
		Args: cobra.MaximumNArgs(1),
	}
	flags(cmd, "",
		opt(&f.a.Workers, "num-workers", 0, fmt.Sprintf("Number of workers (default %d)", starter.Workers),
			">=0 <=100000"),
		opt(&f.a.Profile, "profile", "", "Worker profile, or a GPU such as a100-80gb (default "+
			scenario.Default().Cluster.Profile.String()+")"),
		opt(&f.a.Adapters, "num-adapters", 0, fmt.Sprintf("Number of LoRA adapters (default %d; of a log: its own)",
			starter.Adapters), ">=0 <=1e6"),
		opt(&f.a.Rate, "request-rate", 0.0, fmt.Sprintf(
			"Requests/s of all adapters together (default %v for each worker)", starter.RatePerWorker), ">=0 <=1e9"),
		opt(&f.a.Log, "workload", "", "Log of requests, or saved workload, instead of --request-rate: `file`"),
		opt(&f.force, "force", false, "Replace FILE if it exists"))
	cmd.RunE = f.run
	return cmd
}

func (f *initFlags) run(cmd *cobra.Command, args []string) error {
	file := "scenario.yaml"
	if len(args) == 1 {
		file = args[0]
	}
	if _, err := os.Lstat(file); err == nil && file != "-" && !f.force {
		return usage(fmt.Errorf("%s exists: name another file, or replace it with --force", file))
	}
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		q := &questions{ctx: cmd.Context(), lines: linesOf(in), out: cmd.ErrOrStderr()}
		if err := q.ask(&f.a, cmd.Flags().Changed); err != nil {
			return err
		}
	}
	f.a.Files = columnar.Files()
	s, err := starter.New(cmd.Context(), f.a)
	if err != nil {
		return usage(err)
	}
	var text bytes.Buffer
	if err := s.Write(&text, file); err != nil {
		return err
	}
	if file == "-" {
		_, err := cmd.OutOrStdout().Write(text.Bytes())
		return err
	}
	err = atomicfile.Write(file, func(f *atomicfile.File) error {
		_, err := f.Write(text.Bytes())
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n\n  lorasim sim %s          simulate it\n  lorasim advise %[1]s       "+
		"which policy, and how sure that is\n", file, s.Summary(), file)
	return nil
}

// questions asks on a terminal.
type questions struct {
	ctx   context.Context
	lines <-chan string // closed at the end of the input
	out   io.Writer
}

// linesOf reads lines in the background, since a read from a terminal cannot be interrupted.
func linesOf(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

// ask asks for the answers without a flag.
func (q *questions) ask(a *starter.Answers, given func(flag string) bool) error {
	var err error
	question := func(flags []string, text string, take func(answer string) error) {
		if err == nil && !slices.ContainsFunc(flags, given) {
			err = q.one(text, take)
		}
	}
	workers := fmt.Sprintf("Workers, optionally with their GPU, such as 6 a100-80gb [%d]: ", starter.Workers)
	question([]string{"num-workers"}, workers, func(answer string) error { return workersAnswer(q.ctx, a, answer) })
	rate := starter.RatePerWorker * float64(max(a.Workers, 1))
	if a.Workers == 0 {
		rate = starter.RatePerWorker * starter.Workers
	}
	load := fmt.Sprintf("Requests per second, or a file with your log [%v]: ", rate)
	question([]string{"request-rate", "workload"}, load, func(answer string) error { return loadAnswer(a, answer) })
	if a.Log == "" {
		adapters := fmt.Sprintf("LoRA adapters [%d]: ", starter.Adapters)
		question([]string{"num-adapters"}, adapters, func(answer string) error { return adaptersAnswer(a, answer) })
	}
	return err
}

var errNoAnswer = errors.New("no answer: nothing was written")

// one asks a question until take returns no error for the answer. An empty answer keeps the default.
func (q *questions) one(text string, take func(answer string) error) error {
	for {
		fmt.Fprint(q.out, text)
		select {
		case <-q.ctx.Done():
			fmt.Fprintln(q.out)
			return q.ctx.Err()
		case line, ok := <-q.lines:
			if !ok {
				fmt.Fprintln(q.out)
				return errNoAnswer
			}
			if line = strings.TrimSpace(line); line == "" {
				return nil
			}
			err := take(line)
			if err == nil {
				return nil
			}
			fmt.Fprintln(q.out, " ", err)
		}
	}
}

// workersAnswer reads "6", "6 l40s" or "6 x L40S".
func workersAnswer(ctx context.Context, a *starter.Answers, answer string) error {
	digits := len(answer) - len(strings.TrimLeft(answer, "0123456789"))
	n, err := strconv.Atoi(answer[:digits])
	if err != nil || n < 1 || n > 100_000 {
		return fmt.Errorf("%q: expected a number of workers, 1 to 100000, and optionally a GPU or profile", answer)
	}
	gpu := strings.TrimSpace(answer[digits:])
	if rest := strings.TrimPrefix(strings.TrimPrefix(gpu, "x"), "*"); rest != gpu {
		gpu = strings.TrimSpace(rest)
	}
	if gpu != "" {
		sc := scenario.Default()
		if err := sc.Set("profile", gpu); err != nil {
			return err
		}
		if _, err := sc.Profiles(ctx); err != nil {
			return err
		}
		a.Profile = gpu
	}
	a.Workers = n
	return nil
}

// adaptersAnswer reads a number of adapters.
func adaptersAnswer(a *starter.Answers, answer string) error {
	n, err := strconv.Atoi(answer)
	if err != nil || n < 1 || n > 1e6 {
		return fmt.Errorf("%q: expected a number of adapters, 1 to 1000000", answer)
	}
	a.Adapters = n
	return nil
}

// loadAnswer reads a rate or the name of a log.
func loadAnswer(a *starter.Answers, answer string) error {
	if rate, err := strconv.ParseFloat(answer, 64); err == nil {
		if !(rate > 0 && rate <= 1e9) {
			return fmt.Errorf("%q: expected a positive number of requests per second", answer)
		}
		a.Rate = rate
		return nil
	}
	if _, err := os.Stat(answer); err != nil {
		return fmt.Errorf("%q: neither a number nor a file", answer)
	}
	a.Log = answer
	return nil
}
