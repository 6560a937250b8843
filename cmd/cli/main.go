// Package cli is the command line of lorasim. [Main] runs it. A program with routing policies of
// its own registers them and calls Main, and so has all commands of lorasim.
//
// Each file of this package has one command, or several with common flags. A command turns flags
// into a scenario, calls the package that does the work, and prints the result.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/metrics"
	"lorasim/bench/study/sweep"
	"lorasim/ilp/highs"
	"lorasim/internal/format"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // the work could not be done
	exitUsage       = 2   // the command line or the scenario is wrong, or a file is missing
	exitUnsure      = 3   // compare --fail-on: the runs do not decide
	exitRefused     = 4   // explain --prove: the recorded hour is not reproduced
	exitInterrupted = 130 // stopped by a signal
)

// Main runs the command line of the process, os.Args, and ends the process with
// the command's exit code. The first interrupt or SIGTERM cancels the command; a
// second one ends the process at once.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// longestError is the largest length of an error message, bytes. Errors quote user input.
const longestError = 16 << 10

// shorten replaces the middle of a long error message.
func shorten(text string) string {
	if len(text) <= longestError {
		return text
	}
	return strings.ToValidUTF8(text[:longestError/2], "") + " ... " +
		strings.ToValidUTF8(text[len(text)-longestError/2:], "")
}

// run is the whole program, with its input and output as parameters.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stdout, stderr = format.Safe(stdout), format.Safe(stderr) // input may contain control characters
	root := Root()
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeValues(root) // takes a quarter of the start time of any other command
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	completeInBash(root)
	err := root.ExecuteContext(withArgs(ctx, args))
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		if !errors.Is(err, ctx.Err()) {
			fmt.Fprintln(stderr, "lorasim:", shorten(err.Error()))
		}
		fmt.Fprintln(stderr, "lorasim: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "lorasim:", eachLine(shorten(withoutCall(err))))
	if outcome, ok := errors.AsType[outcomeError](err); ok {
		return outcome.code
	}
	var wrong usageError
	var fault *scenario.Fault
	if errors.As(err, &wrong) || errors.As(err, &fault) || errors.Is(err, fs.ErrNotExist) {
		return exitUsage
	}
	return exitFailed
}

// eachLine begins each further error of a text as the first one. Indented lines go on with the one before.
func eachLine(text string) string {
	lines := strings.Split(text, "\n")
	for i := 1; i < len(lines); i++ {
		if line := lines[i]; line != "" && line[0] != ' ' && line[0] != '\t' {
			lines[i] = "lorasim: " + line
		}
	}
	return strings.Join(lines, "\n")
}

// withoutCall returns the text of an error. If a file is missing, the text names the file without the system call that
// found this out, so that all commands use the same words.
func withoutCall(err error) string {
	text := err.Error()
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(missing, fs.ErrNotExist) {
		text = strings.Replace(text, missing.Error(), missing.Path+": "+missing.Err.Error(), 1)
	}
	return text
}

func init() { cobra.EnableCommandSorting = false } // the help lists commands in the order of a user's work

// Root returns the command lorasim with all commands below it.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lorasim",
		Short: "Where should each LoRA adapter and each request go, and when is moving them worth it?",
		Long: `lorasim simulates and drives LLM workers that serve many LoRA adapters: it
replays traces or generates load, routes it by a policy, and prints the result
block of the serving benchmarks.

Exit codes: 0 done; 1 the work failed, or compare --fail-on found a loss; 2 the
command line or a scenario is wrong, or a file is missing; 3 compare --fail-on is not
sure; 4 explain --prove cannot reproduce the hour; 130 interrupted (Ctrl-C or SIGTERM).`,
		Example: `  lorasim sim                                     # a run with the built-in workload
  lorasim sim --policy static --num-workers 8     # other routing, more workers
  lorasim sim --workload w.csv --json             # a saved workload, JSON out
  lorasim policies                                # what can route
  lorasim compare bench.log sim.json              # real runs beside simulated ones`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// With Version and SetVersionTemplate of cobra, the linker would keep all exported methods of the program.
	version := root.Flags().BoolP("version", "v", false, "version for lorasim")
	root.SetFlagErrorFunc(flagError)
	addGroup(root, "Start", newInit(), newSim(), newExplore())
	addGroup(root, "Evaluate", newSweep(), newAdvise(), newCapacity(), newExplain(), newCompare(), newReport())
	addGroup(root, "Inputs", newTrace(), newProfile(), newPolicies())
	addGroup(root, "Drive real or emulated workers", newCheck(), newBench(), newGateway(), newWorker())
	addGroup(root, "Look inside", newSolve())
	root.AddCommand(newVersion())
	root.SetUsageFunc(usageOf)
	for _, c := range root.Commands() {
		withUsageErrors(c)
	}
	checkHelp(root)
	root.Args, root.RunE = subcommandsOnly, func(cmd *cobra.Command, _ []string) error {
		text := tryThis
		if *version {
			text = versionText()
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return root
}

// addGroup adds commands under a heading of the help.
func addGroup(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading})
	for _, c := range commands {
		c.GroupID = heading
		root.AddCommand(c)
	}
}

// checkHelp adds "help keys", and makes "help NAME" an error if there is no command NAME. cobra prints the help of the
// program instead.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // a programming error
	}
	help.AddCommand(newKeys())
	withUsageErrors(help.Commands()[0])
	help.Args = func(_ *cobra.Command, args []string) error {
		c, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = unknownCommand(c, rest[0])
		}
		return usage(err)
	}
}

// usageError is an error in the command line or the scenario.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

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

// Release is the version of a release build, set by scripts/dist; else it is "".
var Release string

// build returns the version and the revision of the program; revision "": unknown.
func build() metrics.Build {
	version, revision := "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return metrics.Build{Version: cmp.Or(Release, version), Revision: revision}
}

// versionText returns the version and the built-in parts.
func versionText() string {
	b := build()
	solvers := "embedded (highs: run scripts/highs and build with -tags highs)"
	if highs.Available() {
		solvers = "embedded, highs " + highs.Version()
	}
	return fmt.Sprintf("lorasim %s (%s, %s/%s)\nsolvers: %s\n", strings.TrimSpace(b.Version+" "+b.Revision),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, solvers)
}

func newKeys() *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Print every key of scenario files, as Markdown or as a JSON Schema",
		Long: `Keys prints what docs/reference.md and docs/scenario.schema.json hold: every
key of scenario files with its values, default, flag and what it means; as a JSON
Schema for editors that check and complete YAML.`,
		Example: "  lorasim help keys > reference.md\n  lorasim help keys --schema > scenario.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if schema {
				return inJSON(sweep.Schema(), "  ")(cmd.OutOrStdout())
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), referenceHead); err != nil {
				return err
			}
			return scenario.WriteReference(cmd.OutOrStdout())
		},
	}
	flags(cmd, "", opt(&schema, "schema", false, "Print the JSON Schema of scenario and sweep files"))
	return cmd
}

const referenceHead = `# Keys of scenario files

Written by ` + "`lorasim help keys`" + `; a test fails where it differs. A scenario is a YAML file
with these keys, all of them optional, or flags of the same names, which win over the file:

` + "```yaml" + `
# yaml-language-server: $schema=scenario.schema.json
seed: 7
workload: {request_rate: 20, num_adapters: 64}
cluster: {num_workers: 8, engine: {max_loras_per_batch: 8}}
routing: {policy: affinity-spill}
` + "```" + `

Editors with a YAML language server complete and check such files, and those of sweeps, by
[scenario.schema.json](scenario.schema.json). ` + "`lorasim sim --print-config`" + ` prints the whole of a
scenario, ` + "`lorasim policies --options`" + ` the policies with their options,
` + "`lorasim profile list`" + ` the profiles.
`
