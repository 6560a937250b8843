package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/bench/study/worth"
)

// partsHeading is the heading of the flags that apply with --parts alone.
const partsHeading = "Parts of " + worth.Planner

// partsFlags are the flags of lorasim advise that apply with --parts alone.
type partsFlags struct {
	on        bool
	run       sweepRunFlags
	attain    string
	baselines string
	o         worth.Options
}

// Defaults of flags of lorasim advise with --parts.
const (
	partsPolicies = "affinity-spill,affinity:variant=residency,min-cost-flow"
	partsGain     = 1.0
	partsSeeds    = 5
)

func (f *partsFlags) add(cmd *cobra.Command) {
	flags(cmd, partsHeading,
		opt(&f.on, "parts", false, "Measure the gain of each part of "+worth.Planner+" instead of choosing a policy"),
		opt(&f.o.Intervals, "intervals", []string{"2", "5", "10", "30"}, "Times between plans to try, s"),
		opt(&f.baselines, "baselines", "static,least-loaded",
			"Plain policies that the routing is compared with: `A,B,...` or A|B"),
		opt(&f.o.Metrics, "metrics", []string{"mean_e2e_latency_ms", "p99_ttft_ms"}, "Metrics that decide"),
		opt(&f.o.MaxSeeds, "max-seeds", 20, "Largest number of seeds", ">=2 <=1e4"),
		opt(&f.attain, "attain", "", "Share of an adapter's requests that must be within --goodput (default: 99%)"))
	f.run.addTo(cmd, partsHeading)
}

// parts measures the parts of the planner. The runs stay in a folder if -o names one.
func (f *adviseFlags) parts(cmd *cobra.Command, sc *scenario.Scenario) error {
	p := &f.of
	p.o.Scenario, p.o.Seeds = *sc, f.o.Seeds
	slo := goodputFlags{f.goodput.slo, p.attain}
	of, err := slo.parse(result.SLO{})
	if err != nil {
		return usage(err)
	}
	p.o.Goodput = of.String()
	policies, gain := f.policies, f.o.MinGain
	for name, set := range map[string]func(){
		"policies": func() { policies = partsPolicies }, "min-gain": func() { gain = partsGain },
		"seeds": func() { p.o.Seeds = partsSeeds },
	} {
		if !cmd.Flags().Changed(name) {
			set()
		}
	}
	if err := partsOptions(cmd, &p.o, policies, p.baselines); err != nil {
		return usage(err)
	}
	p.o.MinGain = gain / 100
	dir, kept := f.page, f.page != ""
	if !kept {
		if dir, err = os.MkdirTemp("", "lorasim-parts-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	p.o.Run = func(d *sweep.Dir) error {
		sum, err := p.run.run(cmd, d, kept)
		if err != nil {
			return err
		}
		return failed(cmd, d, sum)
	}
	a, err := worth.Study(cmd.Context(), dir, p.o)
	if err != nil {
		return err
	}
	next := ""
	if needed, own := a.Tables.Needed(); needed > 0 {
		next = withRequests(cmd, sc, needed, own, 0)
	} else if len(a.Dir.Seeds) >= p.o.MaxSeeds && !a.Clear && sc.Sampling() == stats.Fresh {
		next = again(cmd, "max-seeds", strconv.Itoa(4*p.o.MaxSeeds))
	}
	return show(cmd, f.text(a, next, "Effects and policies"), a.WriteJSON)
}

// partsOptions checks the flags of a study.
func partsOptions(cmd *cobra.Command, o *worth.Options, policies, baselines string) error {
	for _, name := range []string{"policy", "migration-interval"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: a study sets it itself, see --policies and --intervals", name)
		}
	}
	if o.Scenario.Routing.InferenceArchitecture != "" {
		return errors.New("inference_architecture chooses the policy, which a study does itself")
	}
	a, err := sweep.ParseSet("migration_interval=" + strings.Join(o.Intervals, ","))
	if err != nil {
		return fmt.Errorf("--intervals: %w", err)
	}
	for _, v := range a.Values {
		if a.Number(v) == 0 {
			return errors.New("--intervals: expected numbers above 0")
		}
	}
	o.Intervals = a.Values
	if o.Baselines, err = policiesOf("--baselines", baselines); err != nil {
		return err
	}
	if o.Others, err = policyList(policies); err != nil {
		return err
	}
	return o.Check()
}
