package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/settings"
)

func TestProfileLists(t *testing.T) {
	const a, b = "llama-2-7b-rtx-4090-sglang-0.5", "analytic:llama-2-7b,h100"
	for _, c := range []struct {
		profile string
		workers int
		want    string // L: llama-2-7b-rtx-4090-sglang-0.5, A: the analytic one, or part of the error
	}{
		{a, 0, "LLLL"},
		{a, 2, "LL"},
		{b, 2, "AA"},
		{a + "," + b, 0, "LALA"},
		{b + ", " + a, 3, "ALA"},
		{b + "*2," + a + "*3", 0, "AALLL"},
		{b + ",tp=1,bits=16*2," + a, 3, "AAL"},
		{a + "," + b + " * 2", 0, "LAA"},
		{a + "*2," + a, 0, "LLL"},
		{a + "*1", 1, "L"},
		{a + "*2," + b, 4, "num_workers is 4, but profile " + a + "*2," + b + " lists 3 workers"},
		{a + "*0", 0, `"llama-2-7b-rtx-4090-sglang-0.5*0", expected NAME or NAME*COUNT with a count >= 1`},
		{a + "*x", 0, "with a count >= 1"},
		{a, -1, `num_workers: "-1" is not a whole number`},
		{"analytic:llama-2-7b", 0, "expected analytic:MODEL,GPU[,tp=N][,bits=N][,kv=N][,engine=NAME]"},
		{"analytic:llama-2-7b,h100,pt=2", 0, `unknown option "pt"`},
		{"analytic:llama-2-7b,h100,tp=0", 0, `tp is "0", expected a whole number >= 1`},
		{"analytic:llama-2-7b,h10", 0, `unknown GPU "h10"`},
	} {
		sc := Default()
		sc.Cluster.NumWorkers = settings.Optional[int]{Value: c.workers, Given: c.workers != 0}
		got := ""
		var ps []*profile.Profile
		err := sc.Set("profile", c.profile)
		if err == nil {
			ps, err = sc.Profiles(t.Context())
		}
		for _, p := range ps {
			got += map[bool]string{true: "L", false: "A"}[p.Name == a]
		}
		if err != nil {
			got = err.Error()
		}
		if ok := got == c.want || err != nil && strings.Contains(got, c.want); !ok {
			t.Errorf("%s, %d workers: %s, expected %s", c.profile, c.workers, got, c.want)
		}
		if n, err := sc.Workers(); err == nil && ps != nil && n != len(ps) {
			t.Errorf("%s: %d workers, %d profiles", c.profile, n, len(ps))
		}
	}
}

func TestOldestProfiles(t *testing.T) {
	for list, want := range map[string]string{
		"llama-2-7b-rtx-4090-sglang-0.5*2, qwen3-14b-h100": "llama2-7b-24gb*2,qwen3-14b-h100-vllm-0.23",
		"llama2-7b-24gb * 2, mine.yaml":                    "llama2-7b-24gb * 2, mine.yaml",
		"analytic:llama-2-7b,h100,tp=2,qwen3-14b-h100":     "analytic:llama-2-7b,h100,tp=2,qwen3-14b-h100-vllm-0.23",
		"qwen3-14b-h100*0":                                 "qwen3-14b-h100*0",
	} {
		if got := OldestProfiles(list); got != want {
			t.Errorf("%q: %q, expected %q", list, got, want)
		}
	}
}

func TestPathsInProfileLists(t *testing.T) {
	sc := Default()
	testutil.Set(t, &sc, "profile", "./h100.yaml*2,analytic:llama-2-7b,h100,tp=2*3,qwen3-14b-h100")
	sc.MapPaths(In("/d"))
	if want := "/d/h100.yaml*2,analytic:llama-2-7b,h100,tp=2*3,qwen3-14b-h100"; sc.Cluster.Profile.String() != want {
		t.Errorf("%s, expected %s", sc.Cluster.Profile, want)
	}
}

// byFinish collects records without their workers.
type byFinish struct {
	records map[int64]record.Request
}

func (b *byFinish) Done(r *record.Request) {
	b.records[r.ID] = *r
}

// Two profiles in the other order, and adapters renamed so that those of the first
// worker are those of the second: the same run, with the workers' numbers swapped.
// Where several plans are equally good the solver may take another one; then the
// latencies are nearly the same.
func TestOrderOfProfilesDoesNotMatter(t *testing.T) {
	for _, policy := range []string{"static", "rank-aware", "llumnix", "plan-and-route:margin=1", "plan-and-route",
		"plan-and-route:busy=0,margin=0"} {
		run := func(profiles string, swap int32) map[int64]record.Request {
			sc := Default()
			testutil.Set(t, &sc, "profile", profiles)
			sc.Cluster.NumWorkers = settings.Some(2)
			testutil.Set(t, &sc, "policy", policy)
			sc.Client.NoWarmup = true // it goes to the first worker
			w := &trace.Workload{Adapters: trace.Names(8, []int{16})}
			for i := range int64(600) {
				w.Requests = append(w.Requests, trace.Request{ID: i, Arrival: float64(i) * 0.0617,
					Adapter: int32(i*i%8) ^ swap,
					Prompt:  int32(60 + i*37%700), Output: int32(5 + i*53%300)})
			}
			b := &byFinish{records: map[int64]record.Request{}}
			_, err := sc.Simulate(context.Background(), RunOptions{Input: &Input{Source: w.Source()},
				Watch: func([]trace.Adapter) record.Watcher { return record.WatchEnds(b.Done) }})
			if err != nil {
				t.Fatal(err)
			}
			return b.records
		}
		const fast, slow = "analytic:llama-2-7b,h100", "llama-2-7b-rtx-4090-sglang-0.5"
		one, other := run(fast+","+slow, 0), run(slow+","+fast, 1)
		share, differ, sum, otherSum := 0, []string{}, 0.0, 0.0
		for id, r := range one {
			q := other[id]
			if r.WorkerFirst != 1-q.WorkerFirst || math.Abs(r.Finish-q.Finish) > 1e-9 {
				differ = append(differ, fmt.Sprintf("request %d: worker %d, ends at %v; mirrored %d, %v", id,
					r.WorkerFirst, r.Finish, q.WorkerFirst, q.Finish))
			}
			if r.WorkerFirst == 0 {
				share++
			}
			sum += r.Finish - r.Arrival
			otherSum += q.Finish - q.Arrival
		}
		slices.Sort(differ)
		plans := policy == "plan-and-route" || strings.Contains(policy, "busy=0")
		if plans && math.Abs(otherSum/sum-1) > 0.02 {
			t.Errorf("%s: mean latency %v s, mirrored %v", policy, sum/float64(len(one)), otherSum/float64(len(one)))
		}
		if len(differ) > 0 && !plans {
			t.Errorf("%s: %d of %d requests differ: %s", policy, len(differ), len(one), differ[0])
		}
		if strings.HasPrefix(policy, "plan-and-route") && share < 400 {
			t.Errorf("%s: %d of 600 requests on the fast worker", policy, share)
		}
	}
}
