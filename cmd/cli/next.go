package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/format"
)

// argsKey is the key of the command line in the context of a command.
type argsKey struct{}

func withArgs(ctx context.Context, args []string) context.Context {
	return context.WithValue(ctx, argsKey{}, args)
}

// again returns the command line of a command with other values of some flags, given as name and value in turn. An
// empty value removes the flag.
func again(cmd *cobra.Command, changes ...string) string {
	args, _ := cmd.Context().Value(argsKey{}).([]string)
	changed := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		for i := 0; f != nil && i < len(changes); i += 2 {
			if f.Name == changes[i] {
				return true
			}
		}
		return false
	}
	words := []string{"lorasim"}
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		switch {
		case strings.HasPrefix(name, "--"):
			name = name[2:]
		case len(name) == 2 && name[0] == '-' && cmd.Flags().ShorthandLookup(name[1:]) != nil:
			name = cmd.Flags().ShorthandLookup(name[1:]).Name
		default:
			name = ""
		}
		if name == "" || !changed(name) {
			words = append(words, format.Shell(args[i]))
			continue
		}
		if !joined && cmd.Flags().Lookup(name).NoOptDefVal == "" {
			i++ // its value
		}
	}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] != "" {
			words = append(words, "--"+changes[i], format.Shell(changes[i+1]))
		}
	}
	return strings.Join(words, " ")
}

// longer returns the command that decides the state of a transient run, or gives the interval that a steady run is too
// short for: the same with more requests; "": the run needs none.
func longer(cmd *cobra.Command, sc *scenario.Scenario, res *result.Result) string {
	a := res.Steady
	if a == nil || a.Longer() == 0 || res.Extra == nil {
		return ""
	}
	return withRequests(cmd, sc, a.Longer(), res.Extra.Requests, a.LastArrival)
}

// withRequests returns the command line of a command with n requests instead of own, which arrived within span seconds.
// A log that has no more requests is resampled instead.
func withRequests(cmd *cobra.Command, sc *scenario.Scenario, n, own int64, span float64) string {
	w := &sc.Workload
	if w.Ended(own) {
		return resampled(sc, span)
	}
	changes := []string{"num-prompts", strconv.FormatInt(n, 10)}
	if w.Window > 0 && own > 0 {
		changes = append(changes, "window", fmt.Sprint(math.Ceil(w.Window*float64(n)/float64(own))))
	}
	return again(cmd, changes...)
}

// resampled returns the command that gives the intervals of a log that has no more requests: several draws from it, by
// blocks of a twentieth of its span.
func resampled(sc *scenario.Scenario, span float64) string {
	own, blocks := *sc, blocksOf(span)
	if sc.Workload.Resample.Given() || own.Set("resample", blocks) != nil {
		return ""
	}
	return "lorasim sweep -o resampled --seeds 20 " + strings.Join(own.Arguments(), " ")
}

// blocksOf is the value of --resample for a log of some seconds: blocks of a twentieth of it.
func blocksOf(span float64) string { return fmt.Sprintf("block:%g", max(1, math.Round(span/20))) }

// resampledBy returns the command line of a command with draws from its log; "": it cannot have them.
func resampledBy(cmd *cobra.Command, sc *scenario.Scenario, span float64) string {
	own := *sc
	if sc.Workload.Resample.Given() || own.Set("resample", blocksOf(span)) != nil {
		return ""
	}
	return again(cmd, "resample", blocksOf(span))
}
