package compare

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/trace"
)

// LoadSide reads one side of a gate: a result file, a log, a folder of such files, or the folder of a sweep. Its runs
// must differ in their seed alone, or repeat one another.
func LoadSide(ctx context.Context, files trace.Files, path string, slo result.SLO) (*Run, []string, error) {
	paths, err := resultFiles(path)
	if err != nil {
		return nil, nil, err
	}
	runs, warnings, err := Load(ctx, files, paths, slo)
	if err != nil {
		return nil, nil, err
	}
	if len(runs) == 0 {
		return nil, warnings, fmt.Errorf("%s has no run", path)
	}
	side := runs[0]
	for _, r := range runs[1:] {
		if len(r.Results) != 1 || len(side.Results) == 0 || r.What != side.What || r.Source != side.Source {
			return nil, warnings, fmt.Errorf("%s has %d different runs, such as %q and %q: expected one, "+
				"or runs that differ in their seed alone", path, len(runs), side.What, r.What)
		}
		side.join(r)
	}
	side.File = path
	return side, warnings, nil
}

// resultFiles lists the files of a folder that is not a sweep.
func resultFiles(path string) (list []string, err error) {
	if st, err := os.Stat(path); err != nil || !st.IsDir() || sweep.IsDir(path) {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		ends := []string{".json", ".jsonl", ".log", ".txt"}
		if e.Type().IsRegular() && slices.Contains(ends, strings.ToLower(filepath.Ext(e.Name()))) {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is a folder without a sweep and without results (.json, .jsonl, .log, .txt)", path)
	}
	return list, nil
}

// A Race simulates two scenarios on the same seeds, until a gate is sure.
type Race struct {
	Base, New *scenario.Scenario
	Limits    []Limit
	SLO       result.SLO
	Seeds     int // at most; 0: by the number of requests
	Options   Options
	// Progress, if not nil, is called with the numbers of runs done and to do so far. Calls do not overlap.
	Progress func(done, total int)
}

// Limits of a race whose number of seeds is not given: draws from one workload, of which further ones narrow the
// intervals by less than 3 %; other seeds; and requests of one side.
const (
	resamples   = 32
	mostSeeds   = 512
	mostSamples = 2e6
)

// seeds is the largest number of seeds of the race, for runs of a number of requests.
func (r *Race) seeds(requests float64) int {
	if r.Seeds > 0 {
		return r.Seeds
	}
	most := mostSeeds
	if r.New.Sampling() == stats.Resampled {
		most = resamples
	}
	if requests > 0 {
		most = min(most, int(mostSamples/requests))
	}
	return max(most, firstRuns)
}

// looks returns the numbers of seeds after which a race is judged: firstRuns, four times as many, and so on, at last
// all. Draws from one workload are judged once, because more draws do not narrow their intervals.
func (r *Race) looks(seeds int) (list []int) {
	if r.New.Sampling() != stats.Resampled {
		for n := firstRuns; n < seeds; n *= 4 {
			list = append(list, n)
		}
	}
	return append(list, seeds)
}

// Run runs the race. Its seeds begin with that of BASE.
func (r *Race) Run(ctx context.Context) (g *Gate, err error) {
	var base, changed []*result.Result
	first := firstRuns
	if r.Seeds > 0 {
		first = min(first, r.Seeds)
	}
	if base, changed, err = r.simulate(ctx, base, changed, first); err != nil {
		return nil, err
	}
	plan := r.looks(r.seeds(result.CompletionOf(func(name string) float64 {
		return valueOf(result.Values(base[0]), name)
	}).Requests))
	for _, n := range plan {
		if base, changed, err = r.simulate(ctx, base, changed, n); err != nil {
			return nil, err
		}
		g, err = NewGate(FromResults("BASE", base), FromResults("NEW", changed), r.Limits, len(plan), r.Options)
		if err != nil || g.Outcome() != Unsure || g.Needed() == 0 {
			return g, err
		}
	}
	return g, nil
}

// simulate returns the results of n seeds, of which some are known.
func (r *Race) simulate(
	ctx context.Context, base, changed []*result.Result, n int,
) (a, b []*result.Result, err error) {
	from := len(base)
	base = append(base, make([]*result.Result, n-from)...)
	changed = append(changed, make([]*result.Result, n-from)...)
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(runtime.GOMAXPROCS(0))
	done, mu := 2*from, sync.Mutex{}
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		if done++; r.Progress != nil {
			r.Progress(done, 2*len(base))
		}
	}
	for i := from; i < len(base); i++ {
		tasks.Go(func() (err error) {
			a, b := *r.Base, *r.New
			a.Seed += uint64(i)
			b.Seed = a.Seed
			var shared *scenario.Collected
			if reflect.DeepEqual(a.Workload, b.Workload) {
				if shared, err = a.Collect(ctx); err != nil {
					return fmt.Errorf("BASE, seed %d: %w", a.Seed, err)
				}
			}
			for _, side := range []struct {
				name string
				sc   *scenario.Scenario
				to   **result.Result
			}{{"BASE", &a, &base[i]}, {"NEW", &b, &changed[i]}} {
				o := scenario.RunOptions{SLO: r.SLO}
				if shared != nil {
					o.Input = shared.Input()
				}
				if *side.to, err = side.sc.Simulate(ctx, o); err != nil {
					return fmt.Errorf("%s, seed %d: %w", side.name, side.sc.Seed, err)
				}
				count()
			}
			return nil
		})
	}
	return base, changed, tasks.Wait()
}

// Further returns the command that runs both sides of a gate with more seeds and judges them; "": the sides were not
// simulated. flags are those of the gate.
func (g *Gate) Further(flags string) string {
	n := g.Needed()
	if n == 0 {
		return ""
	}
	var parts, folders []string
	for _, r := range []*Run{g.Base, g.New} {
		if r.Source != string(result.Sim) || len(r.Results) == 0 {
			return ""
		}
		sc, ok := scenario.FromConfig(r.Results[0].Config)
		if !ok {
			return ""
		}
		if seed := r.Results[0].Seed; seed != nil {
			sc.Seed = uint64(*seed)
		}
		folder := fmt.Sprintf("%s-%d", strings.ToLower(r.Name), n)
		folders = append(folders, folder)
		parts = append(parts, fmt.Sprintf("lorasim sweep -o %s --seeds %d %s", folder, n,
			strings.Join(sc.Arguments(), " ")))
	}
	return strings.Join(append(parts, "lorasim compare "+strings.Join(folders, " ")+" "+flags), " && ")
}
