package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Every setting of the cluster that overrides a profile reaches the engine, and
// those left alone stay.
func TestOverrides(t *testing.T) {
	load := func(edit func(c *Cluster)) *profile.Profile {
		t.Helper()
		sc := Default()
		edit(&sc.Cluster)
		ps, err := sc.Profiles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ps[0]
	}
	plain := load(func(*Cluster) {})
	for name, c := range map[string]struct {
		edit func(c *Cluster)
		got  func(p *profile.Profile) any
		want any
	}{
		"max_running_requests": {func(c *Cluster) { c.Engine.MaxRunningRequests = 3 },
			func(p *profile.Profile) any { return p.Engine.MaxRunningRequests }, 3},
		"max_loras_per_batch": {func(c *Cluster) { c.Engine.MaxLorasPerBatch = 2 },
			func(p *profile.Profile) any { return p.Engine.MaxLorasPerBatch }, 2},
		"max_loaded_loras": {func(c *Cluster) { c.Engine.MaxLoadedLoras = 11 },
			func(p *profile.Profile) any { return p.Engine.MaxLoadedLoras }, 11},
		"max_lora_rank": {func(c *Cluster) { c.Engine.MaxLoraRank = 128 },
			func(p *profile.Profile) any { return p.Engine.MaxLoraRank }, 128},
		"chunked_prefill_size": {func(c *Cluster) { c.Engine.ChunkedPrefillSize = 512 },
			func(p *profile.Profile) any { return p.Engine.ChunkedPrefillSize }, 512},
		"no chunks": {func(c *Cluster) { c.Engine.ChunkedPrefillSize = -1 },
			func(p *profile.Profile) any { return p.Engine.ChunkedPrefillSize }, 0},
		"context_length": {func(c *Cluster) { c.Engine.ContextLength = 2048 },
			func(p *profile.Profile) any { return p.Engine.ContextLength }, 2048},
		"kv_tokens": {func(c *Cluster) { c.Engine.KVTokens = 9999 },
			func(p *profile.Profile) any { return p.Memory.KVTokens }, int64(9999)},
		"lora_drain_wait": {func(c *Cluster) { c.Engine.LoraDrainWait = 5 },
			func(p *profile.Profile) any { return p.Engine.LoraDrainWait }, 5.0},
		"schedule_policy": {func(c *Cluster) { c.Engine.SchedulePolicy = "vtc" },
			func(p *profile.Profile) any { return p.Engine.SchedulePolicy }, "vtc"},
		"max_queued_requests": {func(c *Cluster) { c.Engine.MaxQueuedRequests = 7 },
			func(p *profile.Profile) any { return p.Engine.MaxQueuedRequests }, 7},
		"max_num_queued_tokens": {func(c *Cluster) {
			c.Engine.Scheduler = "vllm"
			c.Engine.MaxNumQueuedTokens = 7
			c.Engine.MaxLoraRank = 64
		},
			func(p *profile.Profile) any { return p.Engine.MaxNumQueuedTokens }, int64(7)},
		"preemption threshold": {func(c *Cluster) { c.Engine.PreemptionThreshold = 3 },
			func(p *profile.Profile) any { return p.Engine.PreemptionThreshold }, 3},
		"no threshold": {func(c *Cluster) { c.Engine.PreemptionThreshold = -1 },
			func(p *profile.Profile) any { return p.Engine.PreemptionThreshold }, 0},
		"enable_mixed_chunk": {func(c *Cluster) { c.Engine.EnableMixedChunk = true },
			func(p *profile.Profile) any { return p.Engine.MixedChunk }, true},
		"ignore_eos": {func(c *Cluster) { c.Engine.IgnoreEOS = true },
			func(p *profile.Profile) any { return p.Engine.IgnoreEOS }, true},
		"disable_radix_cache": {func(c *Cluster) { c.Engine.DisableRadixCache = true },
			func(p *profile.Profile) any { return p.Engine.DisableRadixCache }, true},
		"scheduler": {func(c *Cluster) { c.Engine.Scheduler = "vllm"; c.Engine.MaxLoraRank = 64 },
			func(p *profile.Profile) any { return p.Engine.Scheduler }, "vllm"},
	} {
		if was := c.got(plain); was == c.want {
			t.Errorf("%s: the profile has %v itself", name, was)
		}
		if got := c.got(load(c.edit)); got != c.want {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
	both := load(func(c *Cluster) { c.Engine.Scheduler, c.Engine.MaxRunningRequests = "vllm", 5 })
	if both.Engine.MaxRunningRequests != 5 {
		t.Errorf("a setting beside scheduler: %d", both.Engine.MaxRunningRequests)
	}
	for rate, ok := range map[float64]bool{0: true, 0.999: true, 1: false, -0.1: false, math.NaN(): false} {
		sc := Default()
		sc.Cluster.LoadFailureRate = rate
		if _, err := sc.Profiles(t.Context()); (err == nil) != ok {
			t.Errorf("load_failure_rate %v: %v", rate, err)
		}
	}
}

// Engines load adapters up to their largest rank, that included.
func TestRanksOfWorkers(t *testing.T) {
	low, high := &profile.Profile{Name: "low"}, &profile.Profile{Name: "high"}
	low.Engine.MaxLoraRank, high.Engine.MaxLoraRank = 16, 64
	for rank, want := range map[int]string{16: "",
		17: "adapter b has rank 17, but workers of profile low load ranks up to 16: give smaller ranks with --lora-ranks (as in --lora-ranks 8,16), or allow larger ones with --engine-args max_lora_rank=17", 65: "profile high"} {
		_, err := compile([]*profile.Profile{high, low, low}, []trace.Adapter{{Name: "a", Rank: 8},
			{Name: "b", Rank: rank}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestOutages(t *testing.T) {
	got, err := parseOutages("2@10-30+0@50.5 + 1@0")
	if want := []sim.Outage{{Worker: 2, From: 10, To: 30}, {Worker: 0, From: 50.5}, {Worker: 1}}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "2", "x@1", "1@", "1@x", "1@2-", "1@2-x", "1@2+"} {
		if got, err := parseOutages(bad); err == nil ||
			!strings.Contains(err.Error(), "expected WORKER@FROM or WORKER@FROM-TO, in s") {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
	for home, want := range map[string]router.Tier{"disk": router.Disk, "remote": router.Remote} {
		sc := Default()
		sc.Cluster.AdapterHome = home
		testutil.Set(t, &sc, "outages", "1@5")
		cfg, err := sc.config(t.Context(), &Input{Source: (&trace.Workload{}).Source()}, RunOptions{})
		if err != nil || cfg.Home != want || !slices.Equal(cfg.Outages, []sim.Outage{{Worker: 1, From: 5}}) {
			t.Errorf("%s: %v, %v, %v", home, cfg.Home, cfg.Outages, err)
		}
	}
}

// The reference's names of architectures and kinds of migration.
func TestRoutingSpec(t *testing.T) {
	for _, c := range []struct{ architecture, migration, want string }{
		{"", "", "p2c"}, {"sglang", "", "static"}, {"sglang", "period_mig", "static"},
		{"dlora", "", "dlora_period_mig"}, {"dlora", "period_mig", "dlora_period_mig"},
		{"dlora", "dispatch_only", "dispatch_only"}, {"dlora", "dispatch_mig", "dispatch_mig"},
		{"", "period_mig", "error: migration_type period_mig needs inference_architecture dlora"},
	} {
		r := Routing{Policy: as[policyText]("p2c"), InferenceArchitecture: c.architecture, MigrationType: c.migration}
		policy, err := r.policy()
		got := policy.String()
		if err != nil {
			got = fmt.Sprintf("error: %v", err)
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Values that no flag or file has set are checked, too.
func TestValuesOfPrograms(t *testing.T) {
	for want, edit := range map[string]func(s *Scenario){
		`routing.request_migration: unknown value "teleport"`:                          func(s *Scenario) { s.Routing.RequestMigration = "teleport" },
		`routing.view_staleness: "-1" is not a number`:                                 func(s *Scenario) { s.Routing.ViewStaleness = -1 },
		`routing.migration_interval: "nan" is not a number`:                            func(s *Scenario) { s.Routing.MigrationInterval = math.NaN() },
		`routing.migration_req_threshold: "inf" is not a number`:                       func(s *Scenario) { s.Routing.MigrationReqThreshold = math.Inf(1) },
		`routing.solver: unknown value "cplex"`:                                        func(s *Scenario) { s.Routing.Solver = "cplex" },
		`routing.migration_type: unknown value "perod_mig", did you mean "period_mig"`: func(s *Scenario) { s.Routing.MigrationType = "perod_mig" },
		`cluster.adapter_home: unknown value "disc"`:                                   func(s *Scenario) { s.Cluster.AdapterHome = "disc" },
	} {
		sc := Default()
		edit(&sc)
		if _, err := sc.Profiles(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

// What a router knows of a worker's memory: the KV cache and a slot for the
// largest adapter, for each slot.
func TestWorkerSpec(t *testing.T) {
	sc := Default()
	ps, err := sc.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := ps[0]
	p.Latency.FrontEnd = profile.FrontEnd{PerRequestMs: 2, FirstUseMs: 300}
	s, err := workerSpec(p, []trace.Adapter{{Rank: 8}, {Rank: 64}, {Rank: 16}})
	if err != nil {
		t.Fatal(err)
	}
	kv, _ := p.KVTokens()
	if s.AdapterBytes[1] != 8*s.AdapterBytes[0] || s.AdapterBytes[0] <= 0 {
		t.Errorf("bytes %v of ranks 8, 64, 16", s.AdapterBytes)
	}
	if want := float64(kv)*float64(p.Memory.KVBytesPerToken) +
		float64(p.Engine.MaxLorasPerBatch)*s.AdapterBytes[1]; s.Memory != want {
		t.Errorf("memory %v, expected %v", s.Memory, want)
	}
	p.Engine.HeadOfLine = profile.HeadOfLineBlock
	if b, err := workerSpec(p, nil); err != nil || s.Blocks || !b.Blocks {
		t.Errorf("blocks: %v, with head_of_line block %v (%v)", s.Blocks, b.Blocks, err)
	}
	p.Engine.Scheduler = profile.SchedulerVLLM
	if b, err := workerSpec(p, nil); err != nil || s.FetchesInSteps || !b.FetchesInSteps {
		t.Errorf("fetches in steps: %v, under vLLM %v (%v)", s.FetchesInSteps, b.FetchesInSteps, err)
	}
	p.Engine.AdapterLoading = profile.LoadOverlapped
	if b, err := workerSpec(p, nil); err != nil || s.LoadsOverlap || !b.LoadsOverlap {
		t.Errorf("loads overlap: %v, with adapter_loading overlapped %v (%v)", s.LoadsOverlap, b.LoadsOverlap, err)
	}
	if s.FrontEnd != 0.002 || s.FirstUse != 0.3 {
		t.Errorf("front end %v s, first use %v s, expected 0.002 and 0.3", s.FrontEnd, s.FirstUse)
	}
}

// The bound of the oracle is held against the mean of the requests that ended
// well, and the end of the run.
func TestOracleObserver(t *testing.T) {
	sc := Default()
	ps, err := sc.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	costs, err := compile(ps, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &oracleObserver{}
	if o.bound(costs) != nil {
		t.Error("a bound without requests")
	}
	o.done(&record.Request{Sent: 1, Finish: 9, Prompt: 10, Output: 5, Status: record.OK})
	o.done(&record.Request{Sent: 2, Finish: 6, Prompt: 10, Output: 5, Status: record.OK})
	o.done(&record.Request{Sent: 2, Finish: 5, Status: record.Failed})
	b := o.bound(costs)
	if len(o.requests) != 2 || math.Abs((b.E2ERegret+1)*b.MeanE2E-6000) > 1e-6 ||
		math.Abs((b.DurationRegret+1)*b.Duration-9) > 1e-9 {
		t.Errorf("%d requests, %+v; the run had a mean of 6 s and ended at 9 s", len(o.requests), b)
	}
}
