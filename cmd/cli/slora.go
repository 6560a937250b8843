package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/fidelity/sloraruns"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// The embedded profile of S-LoRA's published runs, and the GPU of the runs that it was fitted to.
const (
	sloraProfile = "llama-7b-a10g-s-lora"
	sloraGPU     = "a10g"
)

// sloraFlags select the table of S-LoRA's published runs.
type sloraFlags struct{ runs, gpu, system string }

func (f *sloraFlags) add(cmd *cobra.Command) {
	flags(cmd, "",
		opt(&f.gpu, "gpu", sloraGPU, "Only the runs on this GPU: a10g, a100-40 or a100-80"),
		opt(&f.system, "system", sloraruns.SLoRA,
			"Only the runs of this system: slora, slora-abort (early abort) or slora-lifo (last come first)"))
}

// choose reads the table, and returns the runs of a use that a profile can predict.
func (f *sloraFlags) choose(ctx context.Context, p *profile.Profile, use string) (
	[]sloraruns.Run, sloraruns.Skipped, error) {
	if use != "" {
		if err := oneOf("use", "use", use, sloraruns.Uses()); err != nil {
			return nil, nil, err
		}
	}
	if err := oneOf("system", "system", f.system, sloraruns.Systems()); err != nil {
		return nil, nil, err
	}
	if p.Engine.Scheduler != profile.SchedulerSLoRA {
		return nil, nil, fmt.Errorf("profile %s has scheduler %s, expected %s", p.Name,
			p.Engine.Scheduler, profile.SchedulerSLoRA)
	}
	all, err := textfile.Read(ctx, f.runs, sloraruns.Read)
	if err != nil {
		return nil, nil, err
	}
	runs, skipped := sloraruns.Choice{Use: use, System: f.system, GPU: f.gpu, Model: p.Model}.Of(all)
	if len(runs) == 0 {
		return nil, nil, fmt.Errorf("%s: no run of system %s, GPU %s and the model of profile %s (%s) to simulate",
			f.runs, f.system, f.gpu, p.Name, p.Model)
	}
	return runs, skipped, nil
}

// check compares a profile with the runs.
func (f *sloraFlags) check(cmd *cobra.Command, name, use string) error {
	if name == sloraProfile && f.gpu != sloraGPU {
		return usage(fmt.Errorf("--gpu %s needs --profile: the embedded profile %s is of GPU %s; "+
			"lorasim profile fit slora-runs fits one", f.gpu, sloraProfile, sloraGPU))
	}
	p, err := loadAny(cmd, name)
	if err != nil {
		return err
	}
	runs, skipped, err := f.choose(cmd.Context(), p, use)
	if err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr())
	predicted, err := sloraruns.Predict(cmd.Context(), runs, p, bar.runs)
	bar.done()
	if err != nil {
		return err
	}
	r := &sloraruns.Report{Profile: p.Name, Use: use, System: f.system, Runs: runs, Predicted: predicted,
		Skipped: skipped}
	return show(cmd, r.WriteText, inJSON(r, "  "))
}

// fit fits a profile to the runs of use calibration.
func (f *sloraFlags) fit(cmd *cobra.Command, o fit.Options) (*fit.Result, error) {
	runs, _, err := f.choose(cmd.Context(), o.Start, measured.Calibration)
	if err != nil {
		return nil, err
	}
	o.Evaluations = cmp.Or(o.Evaluations, 400)
	found, err := fit.SLoRA(cmd.Context(), runs, o)
	return of(f.runs, found, err)
}
