package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace/columnar"
)

const engineHeading = "Engine of the records (default: as the profile says)"

// recordsFormats lists the formats of records in help texts.
const recordsFormats = ".csv, .csv.gz, .jsonl, .parquet, .arrow, or trace.csv of blis observe"

// recordedFlags name recorded runs, and configure server and client.
type recordedFlags struct {
	files          []string
	maxConcurrency int
	scenario       scenarioFlags
	memoryStated   bool // a flag sets the size of the KV cache; set by override
}

// add adds the flags to a command; heading is that of the client's limit.
func (f *recordedFlags) add(cmd *cobra.Command, heading string) {
	flags(cmd, heading,
		opt(&f.maxConcurrency, "max-concurrency", 0,
			"Limit of requests in flight (default: found in the records)", ">=0 <=1e9"))
	for _, key := range []string{"engine", "scheduler"} {
		field, err := scenario.Find(key)
		if err != nil {
			panic(err) // a programming error
		}
		addSetting(cmd, engineHeading, &field)
	}
	addEngineArgs(cmd, engineHeading)
}

// requests reads the usable requests of each run, and warns of those that it leaves out.
func (f *recordedFlags) requests(cmd *cobra.Command) (runs [][]record.Request, err error) {
	for _, file := range f.files {
		rs, in, err := records.ReadAll(cmd.Context(), columnar.Files(), file)
		if err != nil {
			return nil, err
		}
		warn(cmd, in.Left.Lines()...)
		rs, left := measured.Usable(rs)
		for _, line := range left.Lines() {
			say(cmd, "warning: %s: %s", file, line)
		}
		runs = append(runs, rs)
	}
	return runs, nil
}

// read reads the runs.
func (f *recordedFlags) read(cmd *cobra.Command) (runs []*measured.Recording, err error) {
	all, err := f.requests(cmd)
	if err != nil {
		return nil, err
	}
	for i, rs := range all {
		run, err := measured.NewRecording(runName(f.files[i]), rs, f.maxConcurrency)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.files[i], err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// runName returns the name of a file without its extensions.
func runName(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".gz")
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// override sets the engine settings of a profile that flags state.
func (f *recordedFlags) override(cmd *cobra.Command, p *profile.Profile) error {
	sc := scenario.Default()
	if err := f.scenario.apply(cmd, &sc); err != nil {
		return err
	}
	e := &sc.Cluster.Engine
	f.memoryStated = e.KVTokens > 0 || e.GPUMemory > 0
	if err := sc.Override(p); err != nil {
		return err
	}
	if p.Uncalibrated && !e.Version.Given() {
		say(cmd, "note: no --engine is given: assumes %s; --engine NAME sets the defaults of a version (%s)",
			p.Engine.Rules(), strings.Join(profile.Servings(), ", "))
	}
	return nil
}
