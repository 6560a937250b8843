package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/scenario/manifest"
	"lorasim/bench/steady"
	"lorasim/bench/study/advise"
	"lorasim/bench/study/worth"
	"lorasim/internal/atomicfile"
)

// choosingHeading is the heading of the flags that apply without --parts alone.
const choosingHeading = "Choice of a policy"

// adviseFlags are the arguments of the advise command.
type adviseFlags struct {
	scenario  *scenarioFlags
	goodput   goodputFlags
	objective string
	policies  string
	page      string
	config    string
	patch     string
	add       string
	noSearch  bool
	noWorst   bool
	details   bool
	o         advise.Options
	of        partsFlags
}

func newAdvise() *cobra.Command {
	f := &adviseFlags{}
	cmd := &cobra.Command{
		Use:   "advise [SCENARIO.yaml]",
		Short: "Recommend a policy and its options, and say how sure that is",
		Long: `Advise simulates all policies on the same requests and recommends one. The worse
half of the candidates leaves after each round; the options of the best are searched.
Fresh seeds, which took no part in the choice, give the figures and the paired tests.
If policies do not differ significantly, the simplest of them is recommended.

The answer also has the gap to a lower bound of the mean E2E latency, and the worst
scenario that a search around the given one finds for the recommended policy.
docs/advise.md says how it decides.

An EndpointPickerConfig (epp:file=CONFIG as --policy or in --policies) has its weights
and thresholds searched. Fresh seeds compare the best configuration with the file as it
is. --write-config writes it, if it is significantly better.

--policy is the policy in use, which the recommendation is compared with. Runs of
generated workloads are as long as it takes to reach a steady state, unless
--num-prompts sets their length.

With --parts it measures instead what each part of ` + worth.Planner + ` gains: its routing,
moving waiting requests, placing adapters, and moving running requests. It runs the
policy with parts switched on and off and other policies, all on the same requests, and
adds seeds until the answer is clear. A part pays if a metric of --metrics improves
significantly by --min-gain or more, and none significantly worsens by that share. Each
part is credited only with what it adds: routing to the best of --baselines, moving
waiting requests to routing, and plans to both. The runs are a sweep: -o keeps it.`,
		Example: `  lorasim advise --profile llama-3.1-8b-h100-64gb-vllm-0.8.5 --num-workers 6 --num-adapters 100 --request-rate 20 --lora-ranks 16
  lorasim advise scenario.yaml -o advice.html
  lorasim advise --objective goodput --goodput "ttft:500 tpot:50" --json
  lorasim advise --policies epp:file=config.yaml,plan-and-route --write-config better.yaml
  lorasim advise --workload log.csv --resample block:60 --policies static,affinity-spill,period_mig
  lorasim advise scenario.yaml --parts --intervals 1,10,60 --max-seeds 40 -o out`,
		Args: cobra.MaximumNArgs(1),
	}
	flags(cmd, "Study",
		opt(&f.policies, "policies", "",
			"Policies to choose from (default: all): `A,B,...`; with commas in options A|B; --parts: to show"),
		opt(&f.goodput.slo, "goodput", "",
			"SLO of a request, limits in ms, such as \"ttft:500 tpot:50 e2e:5000\""),
		opt(&f.o.MinGain, "min-gain", 2.0,
			"Smallest difference that counts, %; goodput: percentage points (--parts: 1 by default)", ">=0 <=100"),
		opt(&f.o.Seeds, "seeds", 20,
			"Number of fresh seeds for the verdict (--parts: number of seeds at first, 5 by default)", ">=2 <=1e4"))
	flags(cmd, choosingHeading,
		opt(&f.objective, "objective", advise.Objectives()[0],
			"What to optimize: balanced (E2E, TTFT and P99 TTFT, see docs/advise.md), e2e, ttft, "+
				"p99-ttft or goodput"),
		opt(&f.noSearch, "no-search", false, "Do not search options, only compare the policies as they are"),
		opt(&f.add, "add-scorers", strings.Join(advise.DefaultAdd, ","),
			"Types of scorers that the search of an EndpointPickerConfig may add: `A,B,...`"),
		opt(&f.noWorst, "no-worst", false, "Do not search for the worst scenario"),
		opt(&f.o.Budget, "budget", int64(advise.DefaultBudget),
			"Approximate number of simulated requests", ">=1 <=1e12"),
		opt(&f.config, "write-config", "",
			"Write the better EndpointPickerConfig, if there is one, into `file` (YAML, or JSON as the original)"))
	flags(cmd, choosingHeading, opt(&f.patch, "patch", "",
		"Write the manifests of --cluster that change, with the advised scenario's workers and adapters, to `file`"))
	writes(cmd, []string{".yaml", ".yml"}, "patch")
	f.of.add(cmd)
	flags(cmd, outputHeading, opt(&f.page, "output,o", "",
		"Write the answer as a page with figures into `file` (.html); --parts: keep the runs in this folder"),
		opt(&f.details, "details", false, "Print the tables after the answer, too"))
	jsonFlag(cmd, "Print the answer as one JSON object")
	f.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	cmd.RunE = f.run
	return cmd
}

func (f *adviseFlags) run(cmd *cobra.Command, args []string) error {
	if err := checkMode(cmd, "parts", f.of.on, partsHeading, choosingHeading); err != nil {
		return err
	}
	sc, err := f.scenario.scenario(cmd, args...)
	if err != nil {
		return err
	}
	if f.of.on {
		noteIgnored(cmd, &sc)
		return f.parts(cmd, &sc)
	}
	if err := f.check(cmd.Context(), &sc); err != nil {
		return usage(err)
	}
	noteIgnored(cmd, &sc)
	page, err := createFile(f.page) // an unwritable file is an error before the runs
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Abort()
	}
	config, err := createFile(f.config)
	if err != nil {
		return err
	}
	if config != nil {
		defer config.Abort()
	}
	p := newProgress(cmd.ErrOrStderr())
	f.o.Progress = func(phase string, done, total int64) { p.set(phase, done, total, "") }
	a, err := advise.Find(cmd.Context(), &sc, f.o)
	if p.done(); err != nil {
		return err
	}
	if err := writePage(page, a.WriteHTML); err != nil {
		return err
	}
	if config != nil {
		if err := writeConfig(cmd, a, f.config, config); err != nil {
			return err
		}
	}
	next := ""
	if p := a.Finalists[0]; p.State == steady.Transient && a.Requests > 0 { // that of the recommended policy
		next = withRequests(cmd, &sc, max(p.Needed, 4*a.Requests), a.Requests, 0)
	}
	if seeds := a.MoreSeeds(); next == "" && seeds > f.o.Seeds && seeds <= mostSeeds {
		next = again(cmd, "seeds", strconv.Itoa(seeds), "write-config", "")
	}
	if err := show(cmd, f.text(a, next, "Finalists, gap to the lower bound, worst scenario"), a.WriteJSON); err != nil {
		return err
	}
	if ps, err := sc.Profiles(cmd.Context()); err == nil {
		noteProfiles(cmd, ps)
	}
	if f.patch == "" {
		return nil
	}
	policy := a.Finalists[0].Spec
	return f.scenario.patchManifest(cmd, wantedBy(&sc, policy), policy, f.patch)
}

// wantedBy is what manifests are to state of a scenario and a policy; "" is an unknown policy.
func wantedBy(sc *scenario.Scenario, policy string) manifest.Want {
	e := &sc.Cluster.Engine
	return wantOf(sc.Cluster.NumWorkers.Value, e.MaxLorasPerBatch, e.MaxLoadedLoras, policy)
}

// answer is an answer in a few lines, with tables for those who ask for them.
type answer interface {
	String() string
	WriteDetails(w io.Writer) error
}

// text returns a function that prints an answer, the command that would decide what it leaves open ("": none), and the
// tables or a line that names them.
func (f *adviseFlags) text(a answer, next, tables string) func(io.Writer) error {
	return func(w io.Writer) error {
		text := a.String() + "\n"
		if next != "" {
			text += "Next: " + next + "\n"
		}
		if !f.details {
			text += "\n" + tables + ": --details\n"
		}
		if _, err := io.WriteString(w, text); err != nil || !f.details {
			return err
		}
		return a.WriteDetails(w)
	}
}

// createFile creates a file; nil if the name is empty.
func createFile(name string) (*atomicfile.File, error) {
	if name == "" {
		return nil, nil
	}
	return atomicfile.Create(name)
}

// writePage writes a page to a file of createFile; to none if it is nil.
func writePage(to *atomicfile.File, write func(io.Writer) error) error {
	if to == nil {
		return nil
	}
	if err := write(to); err != nil {
		return err
	}
	return to.Commit()
}

// writeConfig writes the better configuration. Without one it leaves the file unchanged and prints
// a message.
func writeConfig(cmd *cobra.Command, a *advise.Advice, name string, to *atomicfile.File) error {
	if len(a.Tuned) == 0 || !a.Tuned[0].Better() {
		say(cmd, "note: %s is not written: no configuration is better", name)
		return nil
	}
	text, err := a.Tuned[0].Text(cmd.Context(), a.Comment(a.Tuned[0])...)
	if err != nil {
		return err
	}
	if _, err := to.Write(text); err != nil {
		return err
	}
	return to.Commit()
}

// check parses the flags with text values.
func (f *adviseFlags) check(ctx context.Context, sc *scenario.Scenario) (err error) {
	if sc.Routing.InferenceArchitecture != "" {
		return errors.New("inference_architecture chooses the policy, which advise does itself")
	}
	switch {
	case f.patch != "" && f.scenario.manifests == "":
		return errors.New("--patch changes a manifest: give it with --cluster")
	case f.patch != "" && sc.Cluster.Elastic.Given():
		return errors.New("--patch: the number of workers of an elastic cluster is not in the manifest")
	case f.patch != "":
		if err := f.scenario.checkPatch(ctx, wantedBy(sc, "")); err != nil {
			return err
		}
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
	if f.add != "" {
		f.o.Add = strings.Split(f.add, ",")
	}
	if err := f.o.Check(); err != nil {
		return err
	}
	return f.checkConfigs(ctx, sc.Routing.Policy.String())
}

// checkConfigs reads the configurations of endpoint pickers.
func (f *adviseFlags) checkConfigs(ctx context.Context, own string) error {
	n, err := f.o.CheckConfigs(ctx, own)
	switch {
	case err != nil:
		return err
	case f.config != "" && f.noSearch:
		return errors.New("--write-config needs the search that --no-search disables")
	case f.config != "" && n != 1:
		return fmt.Errorf("--write-config: %d configurations, expected one (--policies epp:file=CONFIG)", n)
	}
	return nil
}
