package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/scenario/manifest"
	"lorasim/bench/study/capacity"
	"lorasim/bench/study/sweep"
)

const demandHeading, choiceHeading = "Target", "Choices"

// capacityFlags are the arguments of the capacity command.
type capacityFlags struct {
	scenario *scenarioFlags
	goodput  goodputFlags
	plot     string
	patch    string

	perAdapter string
	hold       string
	budget     string
	cost       []string
	policies   []string
	o          capacity.Options
}

func newCapacity() *cobra.Command {
	f := &capacityFlags{}
	cmd := &cobra.Command{
		Use:   "capacity [SCENARIO.yaml] --goodput SLO",
		Short: "Find the fewest or cheapest workers that keep an SLO",
		Long: `Capacity finds the fewest workers on which enough requests meet an SLO. It also
reports the headroom (how much more load they serve) and the bottleneck beyond it.

The answer is about the steady state. Runs of generated workloads have at least
--num-prompts requests and are extended until they are stationary; their warm-up
does not count. A candidate is accepted or rejected when a sequential test is
certain. If the budget does not suffice, the candidate is undecided, and the answer
has one worker more. The 95 % intervals come from seeds that no decision has used.

A first guess and each decision appear on stderr while the search goes on. Ctrl-C
ends it with the best answer so far.

Slots, host places, policies and profiles can vary, too: give lists of them. The
answer is then the candidate with the lowest price (--cost) or the fewest workers.
If several have the same price, the first in the lists wins.

The exit code is 1 if no candidate is accepted, for example because even
--max-workers workers are overloaded.`,
		Example: `  lorasim capacity --goodput "ttft:500 tpot:50"
  lorasim capacity --goodput "ttft:500 tpot:50" --attain 99.9% --request-rate 40 --policy affinity-spill --json
  lorasim capacity --goodput ttft:1000 --hold 95% --num-prompts 5000
  lorasim capacity --goodput e2e:10000 --workload w.parquet --slots 4,8,16 --host-places 32,128
  lorasim capacity --goodput tpot:50 --cost llama-2-7b-rtx-4090-sglang-0.5=0.7 --cost analytic:llama-2-7b,h100=2.5 --plot attainment.svg`,
		Args: cobra.MaximumNArgs(1),
	}
	f.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	flags(cmd, demandHeading,
		opt(&f.goodput.slo, "goodput", "",
			"SLO: latency limits of a request in ms, such as \"ttft:500 tpot:50 e2e:5000\""),
		opt(&f.goodput.attain, "attain", "99%", "Minimum share of requests within the SLO"),
		opt(&f.perAdapter, "per-adapter", "",
			"Minimum `share` of adapters that reach --attain, such as 100% (replaces the share of all requests)"),
		opt(&f.hold, "hold", "mean", "What must reach --attain: mean (the mean over runs), or a minimum share of runs of --num-prompts requests, such as 95%"),
		opt(&f.o.MaxWorkers, "max-workers", 64, "Maximum number of workers", ">=1 <=100000"),
		opt(&f.o.MaxSeeds, "max-seeds", 1000, "Maximum number of seeds for a decision or an interval", ">=1 <=100000"),
		opt(&f.budget, "budget", strconv.Itoa(capacity.DefaultBudget),
			"Number of simulated requests, or `processor time`, such as 10s; candidates that it cannot decide are undecided"))
	flags(cmd, choiceHeading,
		opt(&f.o.Slots, "slots", nil, "GPU adapter slots of a worker to choose from, such as 4,8,16", ">=1 <=1e6"),
		opt(&f.o.HostPlaces, "host-places", nil, "Numbers of adapters in a worker's host memory to choose from",
			">=1 <=1e6"),
		opt(&f.policies, "policies", nil, "Routing policies to choose from"),
		opt((*repeated)(&f.cost), "cost", nil,
			"Price of a worker per hour, `PROFILE=PRICE,...`; several profiles are choices"),
		opt(&f.o.Mix, "mix", false, "Also choose from clusters of two of the profiles of --cost"))
	flags(cmd, outputHeading,
		opt(&f.plot, "plot", "", "Draw the attainment over the rate for several numbers of workers into `file` (.svg or .png)"))
	flags(cmd, outputHeading, opt(&f.patch, "patch", "",
		"Write the manifests of --cluster that change, with the answer's workers, slots and host places, to `file`"))
	writes(cmd, pictures(), "plot")
	writes(cmd, []string{".yaml", ".yml"}, "patch")
	jsonFlag(cmd, "Print the answer as one JSON object")
	cmd.RunE = f.run
	return cmd
}

func (f *capacityFlags) run(cmd *cobra.Command, args []string) error {
	sc, err := f.scenario.scenario(cmd, args...)
	if err != nil {
		return err
	}
	if err := cmp.Or(f.check(), f.suits(&sc), f.checkPatch(cmd.Context())); err != nil {
		return usage(err)
	}
	noteIgnored(cmd, &sc)
	f.note(cmd, &sc)
	p := newProgress(cmd.ErrOrStderr())
	defer p.done()
	a, err := f.find(cmd, &sc, p)
	if err != nil {
		return err
	}
	if flag, value := a.Next(); flag != "" {
		a.NextCommand = again(cmd, flag, value)
	} else if a.Single() {
		a.NextCommand = resampledBy(cmd, &sc, a.Span())
	}
	if err := show(cmd, a.WriteText, inJSON(a, "  ")); err != nil {
		return err
	}
	if err := f.noteProfiles(cmd, &sc); err != nil {
		return err
	}
	if a.Interrupted {
		return cmd.Context().Err()
	}
	if f.patch != "" && a.Found.Holds {
		c := &a.Found.Candidate
		want := wantOf(c.Workers, c.Slots, c.HostPlaces, c.Policy)
		if err := f.scenario.patchManifest(cmd, want, c.Policy, f.patch); err != nil {
			return err
		}
	}
	if f.plot != "" {
		if err := a.Plot(cmd.Context(), &sc, f.plot); err != nil {
			return err
		}
	}
	return a.Failure()
}

// suits returns an error if capacity cannot answer for a scenario.
func (f *capacityFlags) suits(sc *scenario.Scenario) error {
	switch {
	case sc.Cluster.Elastic.Given():
		return fmt.Errorf("--elastic: capacity looks for a fixed number of workers; to see what share of the requests an elastic cluster serves within the SLO, run: lorasim sim --elastic %q --goodput %q",
			sc.Cluster.Elastic.String(), f.goodput.slo)
	case math.IsInf(sc.Workload.RequestRate, 1):
		return errors.New("--request-rate inf: capacity looks for the number of workers that serve a rate: give a finite rate")
	case strings.Contains(sc.Cluster.Profile.String(), "*"):
		return fmt.Errorf("profile %s has a number of workers, which capacity looks for: give the profile without a count", sc.Cluster.Profile)
	}
	return nil
}

// note names the flags that have no effect.
func (f *capacityFlags) note(cmd *cobra.Command, sc *scenario.Scenario) {
	if cmd.Flags().Changed("num-workers") {
		say(cmd, "note: --num-workers has no effect: capacity looks for the number of workers (see --max-workers)")
	}
	if cmd.Flags().Changed("warmup") {
		say(cmd, "note: --warmup has no effect: capacity leaves out the warm-up of each run by itself")
	}
	e := &sc.Cluster.Engine
	if e.MaxLorasPerBatch > 0 && len(f.o.Slots) > 0 {
		say(cmd, "note: max_loras_per_batch has no effect: --slots lists the choices")
	}
	if e.MaxLoadedLoras > 0 && len(f.o.HostPlaces) > 0 {
		say(cmd, "note: max_loaded_loras has no effect: --host-places lists the choices")
	}
	if n := e.MaxLoadedLoras; n > 0 && len(f.o.HostPlaces) == 0 && len(f.o.Slots) > 0 && slices.Max(f.o.Slots) > n {
		say(cmd, "note: max_loaded_loras (%d) rises to the number of slots where that is larger", n)
	}
	for _, f := range [][2]string{{"policy", "policies"}, {"profile", "cost"}} {
		if cmd.Flags().Changed(f[0]) && cmd.Flags().Changed(f[1]) {
			say(cmd, "note: --"+f[0]+" has no effect: --"+f[1]+" lists the choices")
		}
	}
}

// find searches, and reports its progress.
func (f *capacityFlags) find(cmd *cobra.Command, sc *scenario.Scenario, p *progress) (*capacity.Answer, error) {
	defer p.done()
	begun := cpuTime()
	f.o.Progress = func(runs, requests int64) {
		share := float64(requests) / float64(f.o.Budget)
		if f.o.CPU > 0 {
			share = float64(f.o.Used()-begun) / float64(f.o.CPU)
		}
		p.set("searching", 0, 0, fmt.Sprintf("%d runs, %.0f %% of the budget", runs, 100*share))
	}
	f.o.Note = func(line string) {
		p.done()
		say(cmd, "%s", line)
	}
	return capacity.Find(cmd.Context(), sc, f.o)
}

// noteProfiles notes what users should know of the profiles to choose from.
func (f *capacityFlags) noteProfiles(cmd *cobra.Command, sc *scenario.Scenario) error {
	profiles := f.o.Profiles
	if len(profiles) == 0 {
		profiles = []string{sc.Cluster.Profile.String()}
	}
	for _, name := range profiles {
		own := *sc
		if err := own.Set("profile", name); err != nil {
			return err
		}
		if ps, err := own.Profiles(cmd.Context()); err == nil {
			noteProfiles(cmd, ps)
		}
	}
	return nil
}

// checkPatch returns an error if --patch could not write an answer into the manifests.
func (f *capacityFlags) checkPatch(ctx context.Context) error {
	if f.patch == "" {
		return nil
	}
	var wants []manifest.Want
	for _, workers := range []int{2, 3} { // the manifests have another number than at least one of them
		for _, slots := range append(f.o.Slots, 0) {
			for _, host := range append(f.o.HostPlaces, 0) {
				for _, policy := range append(f.o.Policies, "") {
					wants = append(wants, wantOf(workers, slots, host, policy))
				}
			}
		}
	}
	return f.scenario.checkPatch(ctx, wants...)
}

// parseBudget parses --budget: a number of requests, or a duration.
func (f *capacityFlags) parseBudget() error {
	if n, err := strconv.ParseFloat(f.budget, 64); err == nil && n >= 1 && n <= 1e12 && n == math.Trunc(n) {
		f.o.Budget = int64(n)
		return nil
	}
	d, err := time.ParseDuration(f.budget)
	if err != nil || d < time.Second/10 || d > 1000*time.Hour {
		return fmt.Errorf("--budget: %q, expected a number of requests from 1 to 1e12, or processor time from 0.1s, such as 10s or 2m",
			f.budget)
	}
	f.o.CPU, f.o.Used = d, cpuTime
	return nil
}

// check parses the flags with text values.
func (f *capacityFlags) check() (err error) {
	if f.goodput.slo == "" {
		return errors.New("--goodput is missing: give latency limits in ms, as in --goodput \"ttft:500 tpot:50\"")
	}
	if f.patch != "" && f.scenario.manifests == "" {
		return errors.New("--patch changes a manifest: give it with --cluster")
	}
	if f.o.SLO, err = f.goodput.parse(result.SLO{}); err != nil {
		return err
	}
	f.o.Attain, f.o.SLO.Attain = f.o.SLO.Attain, 0
	if err := f.parseBudget(); err != nil {
		return err
	}
	if f.perAdapter != "" {
		if f.o.PerAdapter, err = result.ParseShare(f.perAdapter); err != nil {
			return fmt.Errorf("--per-adapter: %w", err)
		}
	}
	if f.o.Hold = 0; f.hold != "mean" {
		if f.o.Hold, err = result.ParseShare(f.hold); err != nil {
			return fmt.Errorf("--hold: %w, or mean", err)
		}
	}
	if len(f.policies) > 0 {
		axis, err := sweep.NewAxis("policy", f.policies)
		if err != nil {
			return fmt.Errorf("--policies: %w", err)
		}
		f.o.Policies = axis.Values
	}
	f.o.Cost = map[string]float64{}
	for rest := strings.Join(f.cost, ","); rest != ""; { // a profile's name may contain commas, a price may not
		name, after, _ := strings.Cut(rest, "=")
		text, more, _ := strings.Cut(after, ",")
		price, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if name = strings.TrimSpace(name); name == "" || err != nil || !(price > 0 && price < 1e12) ||
			strings.Contains(name, "*") {
			return fmt.Errorf("--cost: %q, expected PROFILE=PRICE with a price above 0, as in llama-2-7b-rtx-4090-sglang-0.5=0.7",
				strings.TrimSuffix(rest, ","+more))
		}
		if slices.Contains(f.o.Profiles, name) {
			return fmt.Errorf("--cost: profile %s is given twice", name)
		}
		f.o.Cost[name], f.o.Profiles = price, append(f.o.Profiles, name)
		rest = more
	}
	if f.patch != "" && f.o.Mix {
		return errors.New("--patch: a manifest has workers of one kind, without --mix")
	}
	if f.o.Mix && len(f.o.Cost) < 2 {
		return errors.New("--mix: expected two profiles or more, see --cost")
	}
	return nil
}
