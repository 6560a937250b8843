package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/study/hour"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog"
)

// proveFlags configure explain --prove.
type proveFlags struct {
	on          bool
	from, until string
	page        string
	o           hour.Options
}

// proveHeading is the heading of flags that need --prove.
const proveHeading = "Recorded hour"

func (f *proveFlags) add(cmd *cobra.Command) {
	flags(cmd, proveHeading,
		opt(&f.on, "prove", false, "Say what another fleet would have done, if the log's second half can be predicted"),
		opt(&f.from, "from", "", "First arrival, as in 2026-01-31T14:00:00Z (default: all of the log)"),
		opt(&f.until, "until", "", "End of the arrivals, as in 2026-01-31T15:00:00Z"),
		opt(&f.o.MaxError, "max-error", 0.1,
			"Largest error of mean TTFT and mean E2E latency in the second half, as a share", ">0 <=1"),
		opt(&f.o.Draws, "draws", 16, "Number of resampled hours for the intervals", ">=2 <=1000"),
		opt(&f.page, "output,o", "", "Write the answer as a page into an HTML `file`"))
	writes(cmd, []string{".html"}, "output")
}

// unused returns an error for flags that need --prove.
func (f *proveFlags) unused(cmd *cobra.Command) error {
	for _, name := range []string{"from", "until", "max-error", "draws", "output"} {
		if cmd.Flags().Changed(name) {
			return usage(fmt.Errorf("--%s needs --prove", name))
		}
	}
	return nil
}

// instant parses the time of a flag.
func instant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usage(fmt.Errorf("--%s: %q, expected a time with its zone, as in 2026-01-31T14:00:00Z", flag, text))
	}
	return t, nil
}

// inputs tells the access log from files and folders of metrics.
func (f *proveFlags) inputs(cmd *cobra.Command, args []string) (log string, metrics []string, err error) {
	for _, arg := range args {
		if isScenario(arg) {
			return "", nil, usage(fmt.Errorf("--prove: %s is a scenario, expected an access log of lorasim gateway; "+
				"-f takes a scenario", arg))
		}
		is, err := hour.IsMetrics(cmd.Context(), arg)
		switch {
		case err != nil:
			return "", nil, err
		case is:
			metrics = append(metrics, arg)
		case log != "":
			return "", nil, usage(fmt.Errorf("--prove: %s and %s are logs: expected one, and files of metrics", log,
				arg))
		default:
			log = arg
		}
	}
	if len(args) == 0 {
		return "", nil, usage(errors.New("--prove: expected the access log of lorasim gateway, metrics, or both"))
	}
	return log, metrics, nil
}

// readHour reads the requests of an access log, or draws them from metrics if there is none.
func readHour(cmd *cobra.Command, log string, m *hour.Metrics, from, until time.Time, seed uint64) (*hour.Hour, error) {
	if log == "" {
		return hour.FromMetrics(m, from, until, seed)
	}
	list, err := requestlog.ReadAccessLog(cmd.Context(), columnar.Files(), log)
	if err != nil {
		return nil, err
	}
	return hour.FromAccessLog(list, from, until)
}

// run explains an hour.
func (f *proveFlags) run(cmd *cobra.Command, sf *scenarioFlags, args []string) error {
	log, metrics, err := f.inputs(cmd, args)
	if err != nil {
		return err
	}
	for _, name := range []string{"seeds", "short", "map"} {
		if cmd.Flags().Changed(name) {
			return usage(fmt.Errorf("--%s has no effect with --prove", name))
		}
	}
	from, err := instant("from", f.from)
	if err != nil {
		return err
	}
	until, err := instant("until", f.until)
	if err != nil {
		return err
	}
	sc, err := sf.scenario(cmd)
	if err != nil {
		return err
	}
	noteIgnored(cmd, &sc)
	page, err := createFile(f.page) // an unwritable file is an error before the runs
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Abort()
	}
	var m *hour.Metrics
	if len(metrics) > 0 {
		if m, err = hour.ReadMetrics(cmd.Context(), metrics); err != nil {
			return err
		}
	}
	h, err := readHour(cmd, log, m, from, until, sc.Seed)
	if err != nil {
		return err
	}
	if m != nil {
		begin, end := h.Span()
		facts, err := m.Facts(begin, end)
		if err != nil {
			return err
		}
		f.o.Facts = &facts
	}
	f.o.Policy = cmd.Flags().Changed("policy")
	if cmd.Flags().Changed("profile") {
		if f.o.Profile, err = loadAny(cmd, sc.Cluster.Profile.String()); err != nil {
			return err
		}
	}
	f.o.KVTokens, sc.Cluster.Engine.KVTokens = sc.Cluster.Engine.KVTokens, 0
	p := newProgress(cmd.ErrOrStderr())
	f.o.Progress = func(phase string, done, total int64) { p.set(phase, done, total, "") }
	a, err := hour.Explain(cmd.Context(), h, &sc, f.o)
	if p.done(); err != nil {
		return err
	}
	if err := writePage(page, a.WriteHTML); err != nil {
		return err
	}
	if err := show(cmd, a.WriteText, inJSON(a, "")); err != nil {
		return err
	}
	if len(a.Refused) > 0 {
		return outcomeError{fmt.Errorf("the hour is not reproduced: %s", strings.Join(a.Refused, "; ")), exitRefused}
	}
	return nil
}
