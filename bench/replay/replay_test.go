package replay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// snapshot is the routers' view from one time to another: the slow reference of a replay.
type snapshot struct {
	from, to tick.Ticks
	workers  []router.Worker
}

// recorded is a run with its replay, its files and its snapshots.
type recorded struct {
	replay    *Replay
	records   []record.Request
	plans     []record.Plan
	snapshots []snapshot
	overhead  tick.Ticks
	retracted int64
}

// random draws a scenario with many changes.
func random(t *testing.T, rng *rand.Rand) scenario.Scenario {
	t.Helper()
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	sc := scenario.Default()
	sc.Seed = rng.Uint64() % 1000
	sc.Workload.NumPrompts = settings.Some[int64](150 + rng.Int64N(250))
	sc.Workload.RequestRate = 4 + 20*rng.Float64()
	sc.Workload.NumAdapters = settings.Some(4 + rng.IntN(20))
	sc.Cluster.NumWorkers = settings.Some(2 + rng.IntN(3))
	testutil.Set(t, &sc, "version", pick("", "vllm-0.33", "sglang-0.5.23"))
	sc.Cluster.Engine.MaxLorasPerBatch = 2 + rng.IntN(4)
	sc.Cluster.Engine.MaxLoadedLoras = 6 + rng.IntN(4)
	sc.Cluster.LoadFailureRate = []float64{0, 0.1}[rng.IntN(2)]
	sc.Routing.RequestMigration = pick("queued", "recompute", "copy", "precopy")
	testutil.Set(t, &sc, "policy", pick("plan-and-route:interval=1", "llumnix", "least-loaded",
		"plan-and-route:interval=3", "dlora_period_mig"))
	if rng.IntN(2) == 0 {
		testutil.Set(t, &sc, "outages", "0@3-7+1@5-6")
	} else {
		testutil.Set(t, &sc, "elastic", fmt.Sprintf("min=1,max=%d,rule=schedule,cold_start=2,times=2=1+8=%d+15=2",
			sc.Cluster.NumWorkers.Value, sc.Cluster.NumWorkers.Value))
	}
	return sc
}

// run runs a scenario and keeps all that tells of it.
func run(t *testing.T, sc *scenario.Scenario, l Limits) *recorded {
	t.Helper()
	dir := t.TempDir()
	rec := NewRecorder(l)
	out := &recorded{}
	o := scenario.RunOptions{RecordsFile: filepath.Join(dir, "r.csv"), PlansFile: filepath.Join(dir, "p.jsonl"),
		Profiles: func(ps []*profile.Profile) { out.overhead = ps[0].Compile().Overhead },
		Watch: func(adapters []trace.Adapter) record.Watcher {
			w := rec.Watching(adapters)
			w.Note = func(e *record.Event) {
				if rec.note(e); e.Kind == record.EventState {
					s := snapshot{e.From, e.Until, slices.Clone(e.View.Workers)}
					for i := range s.workers {
						s.workers[i].Adapters = slices.Clone(e.View.Workers[i].Adapters)
					}
					out.snapshots = append(out.snapshots, s)
				}
			}
			return w
		}}
	res, err := sc.Simulate(t.Context(), o)
	if err != nil {
		t.Fatalf("%s: %v", sc.Summary(), err)
	}
	for _, w := range res.Extra.Workers {
		out.retracted += w.Preemptions
	}
	out.replay = rec.Replay()
	if out.records, _, err = records.ReadAll(t.Context(), columnar.Files(), o.RecordsFile); err != nil {
		t.Fatal(err)
	}
	out.plans = readPlans(t, o.PlansFile)
	return out
}

// readPlans reads the plans that change something, or were dropped.
func readPlans(t *testing.T, path string) (list []record.Plan) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var p record.Plan
		if err := json.Unmarshal(in.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if !p.Plan.Empty() || p.Dropped != "" {
			list = append(list, p)
		}
	}
	return list
}

// At 100 random times of random runs, adapters and requests are where the run's records, its plans and a copy of
// the routers' view say.
func TestReplayEqualsRun(t *testing.T) {
	moves, outages, plans := 0, 0, 0
	for seed := range uint64(14) {
		rng := rand.New(rand.NewPCG(seed, 7))
		sc := random(t, rng)
		r := run(t, &sc, DefaultLimits())
		name := fmt.Sprintf("seed %d (%s %s)", seed, sc.Routing.Policy, sc.Summary())
		for range 100 {
			at := tick.Ticks(rng.Int64N(int64(r.replay.End)))
			s := r.replay.StateAt(at)
			if err := r.compare(s); err != nil {
				t.Fatalf("%s: at %v s: %v", name, at.Seconds(), err)
			}
			moves += len(s.Moving)
			for i := range s.Workers {
				if s.Workers[i].Down {
					outages++
				}
			}
		}
		if err := r.comparePlans(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plans += len(r.plans)
	}
	if moves == 0 || outages == 0 || plans == 0 {
		t.Errorf("%d requests on their way, %d workers down, %d plans: the runs try too little", moves, outages, plans)
	}
}

// compare holds a state against the run.
func (r *recorded) compare(s *State) error {
	i := slices.IndexFunc(r.snapshots, func(n snapshot) bool { return n.from <= s.At && s.At < n.to })
	if i >= 0 {
		for w := range r.snapshots[i].workers {
			if err := r.compareWorker(s, w, &r.snapshots[i].workers[w]); err != nil {
				return fmt.Errorf("worker %d: %w", w, err)
			}
		}
	}
	return r.compareRecords(s)
}

// compareWorker holds a worker against the routers' view of it.
func (r *recorded) compareWorker(s *State, w int, v *router.Worker) error {
	for _, tier := range []router.Tier{router.Disk, router.Host, router.GPU} {
		var want []int32
		for a := range v.Adapters {
			if v.Adapters[a].Tier == tier {
				want = append(want, int32(a))
			}
		}
		if got := r.replay.Holds(s, w, tier); !slices.Equal(got, want) {
			return fmt.Errorf("adapters %v in tier %d, expected %v", got, tier, want)
		}
	}
	state := &s.Workers[w]
	if got := !state.Down && (state.Power == record.On || state.Power == record.Draining); got != v.Up {
		return fmt.Errorf("up: %v, expected %v", got, v.Up)
	}
	for a := range int32(len(v.Adapters)) {
		of := func(n int32) bool { return r.replay.Requests[n].Adapter == a }
		if q, n := count(state.Queue, of), count(state.Running, of); q != int(v.Adapters[a].Queued) ||
			n != int(v.Adapters[a].Running) {
			return fmt.Errorf("adapter %d: %d queued, %d running, expected %d and %d", a, q, n, v.Adapters[a].Queued,
				v.Adapters[a].Running)
		}
		loads := slices.ContainsFunc(state.Loading, func(l Loading) bool { return l.Adapter == a && l.Slot })
		if v.Adapters[a].Loading && !loads {
			return fmt.Errorf("adapter %d is not being loaded, expected that it is", a)
		}
	}
	return nil
}

func count(list []int32, of func(int32) bool) (n int) {
	for _, x := range list {
		if of(x) {
			n++
		}
	}
	return n
}

// whereIs finds a request in a state; gone: nowhere.
func whereIs(s *State, n int32) (k kind, worker int32) {
	for i := range s.Workers {
		if slices.Contains(s.Workers[i].Queue, n) {
			return queued, int32(i)
		}
		if slices.Contains(s.Workers[i].Running, n) {
			return running, int32(i)
		}
	}
	for _, m := range s.Moving {
		if m.Request == n {
			return moving, m.From
		}
	}
	if slices.Contains(s.Held, n) {
		return held, -1
	}
	return gone, -1
}

// compareRecords holds the requests against the file of records.
func (r *recorded) compareRecords(s *State) error {
	const exact = tick.Microsecond // to which a file's times can be trusted
	for n := range r.replay.Requests {
		q := &r.replay.Requests[n]
		rec := &r.records[slices.IndexFunc(r.records, func(o record.Request) bool { return o.ID == q.ID })]
		k, w := whereIs(s, int32(n))
		sent, end := record.Ticks(rec.Sent), record.Ticks(rec.Finish)
		if rec.WorkerFirst >= 0 && rec.Status != record.Unfinished {
			end -= r.overhead
		}
		there := s.At >= sent && s.At < end
		if there != (k != gone) && !near(s.At, sent, exact) && !near(s.At, end, exact) {
			return fmt.Errorf("request %d (%v): place %d, expected that it is there: %v (from %v to %v s)", q.ID,
				rec.Status, k, there, sent.Seconds(), end.Seconds())
		}
		if !there || k == gone || near(s.At, sent, exact) || near(s.At, end, exact) || k == held {
			continue
		}
		if rec.Migrations == 0 && rec.WorkerFirst == rec.WorkerLast && w != rec.WorkerFirst {
			return fmt.Errorf("request %d is on worker %d, expected %d", q.ID, w, rec.WorkerFirst)
		}
		first := record.Ticks(rec.FirstToken) - r.overhead
		if rec.Status == record.OK && s.At > first+exact && rec.Migrations == 0 && r.retracted == 0 &&
			rec.WorkerFirst == rec.WorkerLast && k != running && len(r.plans) == 0 {
			return fmt.Errorf("request %d: place %d after its first token, expected running", q.ID, k)
		}
	}
	return nil
}

func near(a, b, by tick.Ticks) bool { return a-b <= by && b-a <= by }

// comparePlans holds the plans against the file of plans, and the moves against the records.
func (r *recorded) comparePlans() error {
	if len(r.plans) != len(r.replay.Plans) {
		return fmt.Errorf("%d plans, expected %d", len(r.replay.Plans), len(r.plans))
	}
	for i := range r.plans {
		if d := cmp.Diff(&r.plans[i], r.replay.Plans[i], cmpopts.EquateEmpty()); d != "" {
			return fmt.Errorf("plan %d (-file +replay):\n%s", i, d)
		}
		at := tick.FromSeconds(r.plans[i].Applied)
		if n := r.replay.StateAt(at + 1).Plans; n < i+1 {
			return fmt.Errorf("%d plans until %v s, expected %d", n, at.Seconds(), i+1)
		}
	}
	for n := range r.replay.Requests {
		q := &r.replay.Requests[n]
		first, last := int32(-1), int32(-1)
		for i := range r.replay.events {
			if e := &r.replay.events[i]; e.kind <= running && e.n == int32(n) {
				if last = e.worker; first < 0 {
					first = last
				}
			}
		}
		if first >= 0 && (first != q.WorkerFirst || q.Migrations == 0 && last != q.WorkerLast) {
			return fmt.Errorf("request %d: from worker %d to %d, expected %d to %d", q.ID, first, last, q.WorkerFirst,
				q.WorkerLast)
		}
	}
	return nil
}

// A state from a keyframe equals that from the first event on.
func TestKeyframes(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](2000)
	sc.Workload.RequestRate = 12
	sc.Cluster.NumWorkers = settings.Some(3)
	testutil.Set(t, &sc, "policy", "plan-and-route:interval=5")
	r := run(t, &sc, DefaultLimits()).replay
	if len(r.keyframes) < 3 {
		t.Fatalf("%d keyframes of %d events, expected some", len(r.keyframes), len(r.events))
	}
	slow := *r
	slow.keyframes = nil
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		at := tick.Ticks(rng.Int64N(int64(r.End)))
		if d := cmp.Diff(slow.StateAt(at), r.StateAt(at), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("at %v s (-events +keyframe):\n%s", at.Seconds(), d)
		}
	}
}
