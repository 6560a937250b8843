package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/study/advise"
	"lorasim/internal/atomicfile"
)

// adviseFlags are the arguments of the advise command.
type adviseFlags struct {
	scenario  *scenarioFlags
	goodput   goodputFlags
	objective string
	policies  string
	page      string
	noSearch  bool
	noWorst   bool
	o         advise.Options
}

func newAdvise() *cobra.Command {
	f := &adviseFlags{}
	cmd := &cobra.Command{
		Use:   "advise [SCENARIO.yaml]",
		Short: "Recommend a policy and its options for a workload, and say how sure that is",
		Long: `Advise simulates all policies on the same requests and recommends one. The worse
half of the candidates leaves after each round; the options of the best are searched.
Fresh seeds, which took no part in the choice, give the figures and the paired tests.
If policies do not differ significantly, the simplest of them is recommended.

The answer also has the gap to a lower bound of the mean E2E latency, and the worst
scenario that a search around the given one finds for the recommended policy.
docs/advise.md says how it decides.

--policy is the policy in use, which the recommendation is compared with. Runs of
generated workloads are as long as it takes to reach a steady state, unless
--num-prompts sets their length.`,
		Example: `  lorasim advise --profile llama-3.1-8b-h100-64gb-vllm-0.8.5 --num-workers 6 --num-adapters 100 --request-rate 20 --lora-ranks 16
  lorasim advise scenario.yaml -o advice.html
  lorasim advise --objective goodput --goodput "ttft:500 tpot:50" --json
  lorasim advise --workload log.csv --resample block:60 --policies static,affinity-spill,period_mig`,
		Args: cobra.MaximumNArgs(1),
	}
	flags(cmd, "Study",
		opt(&f.objective, "objective", advise.Objectives()[0],
			"What to optimize: balanced (E2E, TTFT and P99 TTFT, see docs/advise.md), e2e, ttft, "+
				"p99-ttft or goodput"),
		opt(&f.goodput.slo, "goodput", "",
			"SLO of the objective goodput: limits of a request in ms, such as \"ttft:500 tpot:50 e2e:5000\""),
		opt(&f.policies, "policies", "",
			"Policies to choose from (default: all): `A,B,...`; with commas in options A|B"),
		opt(&f.noSearch, "no-search", false, "Do not search options, only compare the policies as they are"),
		opt(&f.noWorst, "no-worst", false, "Do not search for the worst scenario"),
		opt(&f.o.MinGain, "min-gain", 2.0,
			"Smallest difference of the objective that counts, %; goodput: percentage points", ">=0 <=100"),
		opt(&f.o.Seeds, "seeds", 20, "Number of fresh seeds for the verdict", ">=2 <=1e4"),
		opt(&f.o.Budget, "budget", int64(advise.DefaultBudget),
			"Approximate number of simulated requests", ">=1 <=1e12"))
	flags(cmd, outputHeading, opt(&f.page, "output,o", "",
		"Write the answer as a page with figures into `file` (.html)"))
	jsonFlag(cmd, "Print the answer as one JSON object")
	f.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	cmd.RunE = f.run
	return cmd
}

func (f *adviseFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if f.scenario.file != "" {
			return usage(errors.New("--scenario: the scenario is given as an argument already"))
		}
		f.scenario.file = args[0]
	}
	sc, err := f.scenario.scenario(cmd)
	if err != nil {
		return err
	}
	if err := f.check(&sc); err != nil {
		return usage(err)
	}
	noteIgnored(cmd, &sc)
	var page *atomicfile.File
	if f.page != "" { // a file that cannot be written is an error before the runs
		if page, err = atomicfile.Create(f.page); err != nil {
			return err
		}
		defer page.Abort()
	}
	p := newProgress(cmd.ErrOrStderr())
	f.o.Progress = func(phase string, done, total int64) { p.set(phase, done, total, "") }
	a, err := advise.Find(cmd.Context(), &sc, f.o)
	if p.done(); err != nil {
		return err
	}
	if page != nil {
		if err := a.WriteHTML(page); err != nil {
			return err
		}
		if err := page.Commit(); err != nil {
			return err
		}
	}
	if err := show(cmd, a.WriteText, a.WriteJSON); err != nil {
		return err
	}
	if ps, err := sc.Profiles(); err == nil {
		noteProfiles(cmd, ps)
	}
	return nil
}

// check reads the flags that are texts.
func (f *adviseFlags) check(sc *scenario.Scenario) (err error) {
	if sc.Routing.InferenceArchitecture != "" {
		return errors.New("inference_architecture chooses the policy, which advise does itself")
	}
	if f.o.Objective, err = advise.ParseObjective(f.objective); err != nil {
		return fmt.Errorf("--objective: %w", err)
	}
	if f.o.SLO, err = f.goodput.parse(result.SLO{}); err != nil {
		return err
	}
	if f.policies != "" {
		if f.o.Policies, err = policyList(f.policies); err != nil {
			return err
		}
	}
	f.o.Search, f.o.Worst = !f.noSearch, !f.noWorst
	return f.o.Check()
}
