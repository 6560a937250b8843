// Sloraruns compares the simulator with the runs that the authors of S-LoRA published (github.com/S-LoRA/S-LoRA,
// benchmarks/paper; Y. Sheng et al., "S-LoRA: Serving Thousands of Concurrent LoRA Adapters", MLSys 2024), or fits a
// profile to those of use calibration.
//
//	go run ./sloraruns check slora_runs/runs.csv [--use validation] [--system slora-abort] [--gpu a10g] [--json]
//	go run ./sloraruns fit slora_runs/runs.csv --output mine.yaml
//
// A table has a row for each run: the columns determine its requests exactly, and hold the measured means. Runs of
// other systems are counted and skipped.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/fidelity/measured"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// The embedded profile of the published runs, and the GPU of the runs that it was fitted to.
const (
	fittedProfile = "llama-7b-a10g-s-lora"
	fittedGPU     = "a10g"
)

// options are the arguments of the program.
type options struct {
	command, table                    string
	profile, gpu, system, use, output string
	evaluations                       int
	json                              bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(ctx, os.Stdout)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sloraruns:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := pflag.NewFlagSet("sloraruns check|fit TABLE.csv", pflag.ContinueOnError)
	f.StringVar(&o.profile, "profile", fittedProfile, "worker profile, a name or a file; of fit: to start from")
	f.StringVar(&o.gpu, "gpu", fittedGPU, "only the runs on this GPU: a10g, a100-40 or a100-80")
	f.StringVar(&o.system, "system", SLoRA, "only the runs of this system: "+strings.Join(Systems(), ", "))
	f.StringVar(&o.use, "use", "", "check: only the runs of this use: "+strings.Join(Uses(), ", "))
	f.BoolVar(&o.json, "json", false, "check: print one JSON object")
	f.StringVar(&o.output, "output", "", "fit: `file` to write the profile to")
	f.IntVar(&o.evaluations, "evaluations", 400, "fit: maximum number of simulations of all runs")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() != 2 {
		return o, errors.New("expected check or fit, and a table")
	}
	o.command, o.table = f.Arg(0), f.Arg(1)
	switch {
	case o.command != "check" && o.command != "fit":
		return o, fmt.Errorf("%q: expected check or fit", o.command)
	case o.command == "fit" && o.output == "":
		return o, errors.New("--output is missing: the file to write the profile to")
	case !slices.Contains(Systems(), o.system):
		return o, fmt.Errorf("--system %q: expected %s", o.system, strings.Join(Systems(), ", "))
	case o.use != "" && !slices.Contains(Uses(), o.use):
		return o, fmt.Errorf("--use %q: expected %s", o.use, strings.Join(Uses(), ", "))
	case o.command == "check" && o.profile == fittedProfile && o.gpu != fittedGPU:
		return o, fmt.Errorf("--gpu %s needs --profile: the embedded profile %s is of GPU %s; sloraruns fit fits one",
			o.gpu, fittedProfile, fittedGPU)
	}
	return o, nil
}

func (o *options) run(ctx context.Context, w io.Writer) error {
	p, err := profile.Load(ctx, o.profile)
	if err != nil {
		return err
	}
	if p.Engine.Scheduler != profile.SchedulerSLoRA {
		return fmt.Errorf("profile %s has scheduler %s, expected %s", p.Name, p.Engine.Scheduler,
			profile.SchedulerSLoRA)
	}
	use := o.use
	if o.command == "fit" {
		use = measured.Calibration
	}
	all, err := textfile.Read(ctx, o.table, Read)
	if err != nil {
		return err
	}
	runs, skipped := Choice{Use: use, System: o.system, GPU: o.gpu, Model: p.Model}.Of(all)
	if len(runs) == 0 {
		return fmt.Errorf("%s: no run of system %s, GPU %s and the model of profile %s (%s) to simulate",
			o.table, o.system, o.gpu, p.Name, p.Model)
	}
	if o.command == "fit" {
		return o.fit(ctx, runs, p, w)
	}
	predicted, err := Predict(ctx, runs, p, nil)
	if err != nil {
		return err
	}
	r := &Report{Profile: p.Name, Use: use, System: o.system, Runs: runs, Predicted: predicted, Skipped: skipped}
	if o.json {
		return format.JSON(w, r, "  ")
	}
	return r.WriteText(w)
}

// fit fits a profile, prints its coefficients and writes it.
func (o *options) fit(ctx context.Context, runs []Run, start *profile.Profile, w io.Writer) error {
	found, err := fitted(ctx, runs, fit.Options{Start: start, Evaluations: o.evaluations})
	if err != nil {
		return fmt.Errorf("%s: %w", o.table, err)
	}
	text, err := found.Profile.YAML()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(o.output, func(f *atomicfile.File) error {
		_, err := f.Write(text)
		return err
	}); err != nil {
		return err
	}
	return found.WriteText(w)
}
