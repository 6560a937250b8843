package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/capacity"
	"lorasim/bench/result"
	"lorasim/bench/sweep"
	"lorasim/internal/figure"
)

const demandHeading, choiceHeading = "What is asked for", "What may vary"

// capacityFlags are the arguments of the capacity command.
type capacityFlags struct {
	scenario *scenarioFlags
	goodput  goodputFlags
	plot     string

	perAdapter string
	hold       string
	cost       []string
	policies   []string
	o          capacity.Options
}

func newCapacity() *cobra.Command {
	f := &capacityFlags{}
	cmd := &cobra.Command{
		Use:   "capacity --goodput SLO",
		Short: "Find the fewest workers, or the cheapest mix, that serve a workload within an SLO",
		Long: `Capacity simulates a workload on more and fewer workers, and finds the fewest of
which all requests but a few meet an SLO, how much more load they could bear, and
what would then run out. All candidates see the same requests. The answer and the
next cheaper are simulated with further seeds until the 95 % interval of the
attainment lies on one side of what is asked for.

Slots, host places, policies and profiles may vary, too: give lists of them. The
answer is then the cheapest of all: the fewest workers, or, with --cost, the
lowest price; of several the one that is listed first.

The exit code is 1 where not even --max-workers hold.`,
		Example: `  lorasim capacity --goodput "ttft:500 tpot:50"
  lorasim capacity --goodput "ttft:500 tpot:50" --attain 99.9% --request-rate 40 --policy affinity-spill --json
  lorasim capacity --goodput e2e:10000 --workload w.parquet --slots 4,8,16 --host-places 32,128
  lorasim capacity --goodput tpot:50 --cost llama2-7b-24gb=0.7 --cost analytic:llama-2-7b,h100=2.5 --plot attainment.svg`,
	}
	f.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
	flags(cmd, demandHeading,
		opt(&f.goodput.slo, "goodput", "", "the SLO: latencies of a request in ms, such as \"ttft:500 tpot:50 e2e:5000\""),
		opt(&f.goodput.attain, "attain", "99%", "share of all requests that must be within the SLO"),
		opt(&f.perAdapter, "per-adapter", "", "`share` of the adapters of each of which --attain of the requests must be within the SLO, such as 100%, instead of all requests"),
		opt(&f.o.MaxWorkers, "max-workers", 64, "most workers to try", ">=1 <=100000"),
		opt(&f.hold, "hold", "mean", "what must reach --attain: mean (the mean over runs), or a share of the runs of --num-prompts requests, such as 95%"),
		opt(&f.o.MaxSeeds, "max-seeds", 1000, "maximum number of seeds for a decision or an interval", ">=1 <=100000"),
		opt(&f.o.Budget, "budget", int64(capacity.DefaultBudget), "maximum number of requests to simulate; what is too close to decide stays undecided", ">=1000 <=1e12"))
	flags(cmd, choiceHeading,
		opt(&f.o.Slots, "slots", nil, "GPU adapter slots of a worker to choose from, such as 4,8,16", ">=1 <=1e6"),
		opt(&f.o.HostPlaces, "host-places", nil, "numbers of adapters in a worker's host memory to choose from", ">=1 <=1e6"),
		opt(&f.policies, "policies", nil, "routing policies to choose from"),
		opt((*repeated)(&f.cost), "cost", nil, "price of a worker an hour, `PROFILE=PRICE,...`; of several, profiles to choose from"),
		opt(&f.o.Mix, "mix", false, "also choose from clusters of two of the profiles of --cost"))
	flags(cmd, outputHeading,
		opt(&f.plot, "plot", "", "draw the attainment over the rate, for several numbers of workers, into `file` (.svg or .png)"))
	jsonFlag(cmd, "print the answer as one JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *capacityFlags) run(cmd *cobra.Command) error {
	sc, err := f.scenario.scenario(cmd)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return usage(err)
	}
	if sc.Cluster.Elastic != "" {
		return usage(errors.New("--elastic: workers that join and leave are not searched; the number found is there all the time"))
	}
	if strings.Contains(sc.Cluster.Profile, "*") {
		return usage(fmt.Errorf("profile %s says how many workers there are, which is what is asked for: give it without a count", sc.Cluster.Profile))
	}
	noteIgnored(cmd, &sc)
	if cmd.Flags().Changed("num-workers") {
		say(cmd, "note: --num-workers has no effect: their number is what is asked for (see --max-workers)")
	}
	for _, f := range [][2]string{{"policy", "policies"}, {"max-loras-per-batch", "slots"}, {"max-loaded-loras", "host-places"}, {"profile", "cost"}} {
		if cmd.Flags().Changed(f[0]) && cmd.Flags().Changed(f[1]) {
			say(cmd, "note: --"+f[0]+" has no effect: --"+f[1]+" says what to choose from")
		}
	}
	p := newProgress(cmd.ErrOrStderr())
	f.o.Progress = func(runs, requests int64) {
		p.set("searching", 0, 0, fmt.Sprintf("%d runs, %.0f %% of the budget", runs, 100*float64(requests)/float64(f.o.Budget)))
	}
	a, err := capacity.Find(cmd.Context(), &sc, f.o)
	if p.done(); err != nil {
		return err
	}
	if err := show(cmd, a.WriteText, inJSON(a, "  ")); err != nil {
		return err
	}
	if f.plot != "" {
		err := a.Plot(cmd.Context(), &sc, f.plot)
		if p.done(); err != nil {
			return err
		}
	}
	return a.Failure()
}

// check reads the flags that are texts.
func (f *capacityFlags) check() (err error) {
	if f.goodput.slo == "" {
		return errors.New("--goodput is missing: say what latencies are asked for, in ms, as in --goodput \"ttft:500 tpot:50\"")
	}
	if f.o.SLO, err = f.goodput.parse(result.SLO{}); err != nil {
		return err
	}
	f.o.Attain, f.o.SLO.Attain = f.o.SLO.Attain, 0
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
	if f.plot != "" {
		if _, err := figure.Format(f.plot); err != nil {
			return fmt.Errorf("--plot: %w", err)
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
	for rest := strings.Join(f.cost, ","); rest != ""; { // a profile's name may hold commas, no price does
		name, after, _ := strings.Cut(rest, "=")
		text, more, _ := strings.Cut(after, ",")
		price, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if name = strings.TrimSpace(name); name == "" || err != nil || !(price > 0 && price < 1e12) || strings.Contains(name, "*") {
			return fmt.Errorf("--cost: %q, expected PROFILE=PRICE with a price above 0, as in llama2-7b-24gb=0.7", strings.TrimSuffix(rest, ","+more))
		}
		if slices.Contains(f.o.Profiles, name) {
			return fmt.Errorf("--cost: profile %s is given twice", name)
		}
		f.o.Cost[name], f.o.Profiles = price, append(f.o.Profiles, name)
		rest = more
	}
	if f.o.Mix && len(f.o.Cost) < 2 {
		return errors.New("--mix: expected two profiles or more, see --cost")
	}
	return nil
}
