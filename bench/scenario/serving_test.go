package scenario

import (
	"testing"

	"lorasim/internal/testutil"
)

// Key engine sets an engine's defaults, and keys that are given beside it win.
func TestEngineKey(t *testing.T) {
	sc, err := Parse([]byte("cluster: {profile: 'analytic:qwen3-14b, h100', engine: {version: vllm-0.33, max_running_requests: 256}}"),
		"s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := sc.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := &ps[0].Engine
	if e.Scheduler != "vllm" || e.MaxNumBatchedTokens != 8192 || e.MaxRunningRequests != 256 || !e.AsyncScheduling ||
		e.VLLMVersion != "0.33" || e.PageSize != 16 {
		t.Errorf("%+v", e)
	}
	sc.Cluster.Engine.SchedulePolicy = "vtc"
	if ps, err = sc.Profiles(t.Context()); err != nil || ps[0].Engine.AsyncScheduling {
		t.Errorf("vtc: %v", err)
	}
	sc.Cluster.Engine.SchedulePolicy, sc.Cluster.Engine.Scheduler = "", "sglang"
	_, err = sc.Profiles(t.Context())
	testutil.ExpectError(t, err, "engine vllm-0.33 has scheduler vllm, but scheduler is sglang: give only one of them")
	sc.Cluster.Engine.Scheduler = ""
	testutil.ExpectError(t, sc.Set("version", "vllm-1"), `unknown engine "vllm-1"`)
}

// sglang's overlap schedule is on with engine sglang-VERSION and where it is asked for; the profiles that were measured
// without it keep the rules of then.
func TestOverlapSchedule(t *testing.T) {
	for _, c := range []struct {
		cluster string
		on      bool
		err     string
	}{
		{"{}", false, ""},
		{"{engine: {overlap_schedule: true}}", true, ""},
		{"{profile: 'analytic:qwen3-14b,h100', engine: {version: sglang-0.5.23}}", true, ""},
		{"{profile: 'analytic:qwen3-14b,h100', engine: {version: sglang-0.5.23, disable_overlap_schedule: true}}", false, ""},
		{"{profile: 'analytic:qwen3-14b,h100', engine: {version: sglang-0.5.23, schedule_policy: vtc}}", false, ""},
		{"{engine: {overlap_schedule: true, disable_overlap_schedule: true}}", false,
			"overlap_schedule and disable_overlap_schedule exclude each other"},
		{"{engine: {overlap_schedule: true, schedule_policy: vtc}}", false,
			"engine.overlap_schedule needs scheduler sglang, schedule_policy fcfs or priority"},
		{"{engine: {overlap_schedule: true, lora_backend: dlora}}", false, "a backend that runs all adapters together"},
	} {
		sc, err := Parse([]byte("cluster: "+c.cluster), "s.yaml")
		if err != nil {
			t.Fatal(err)
		}
		ps, err := sc.Profiles(t.Context())
		if c.err != "" {
			testutil.ExpectError(t, err, c.err)
		} else if err != nil || ps[0].Engine.OverlapSchedule != c.on {
			t.Errorf("%s: %v, %+v; expected overlap_schedule %v", c.cluster, err, ps, c.on)
		}
	}
}

// Asynchronous scheduling is that of the engine's version unless a key says otherwise, and the share of the memory sets
// the KV cache of a computed profile.
func TestAsyncScheduling(t *testing.T) {
	const computed, measured = "--", "qwen3-14b-h100"
	for _, c := range []struct {
		profile, args string
		on            bool
		err           string
	}{
		{computed, "version=vllm-0.11", false, ""},
		{computed, "version=vllm-0.11,async_scheduling", true, ""},
		{computed, "version=vllm-0.33", true, ""},
		{computed, "version=vllm-0.33,no-async-scheduling", false, ""},
		{computed, "scheduler=vllm,no_async_scheduling", false, ""},
		{measured, "no_async_scheduling", false, ""},
		{computed, "scheduler=vllm,async_scheduling=false", false,
			"async_scheduling=false has no effect: give no_async_scheduling"},
		{computed, "scheduler=vllm,async_scheduling,no_async_scheduling", false, "exclude each other"},
		{computed, "no_async_scheduling", false, "no_async_scheduling is a key of vllm"},
		{measured, "gpu_memory_utilization=0.8", true,
			"profile qwen3-14b-h100-vllm-0.23 states its memory: give kv_tokens"},
		{computed, "version=vllm-0.11,gpu_memory_utilization=0.8,kv_tokens=5000", false, "give only one of them"},
	} {
		sc := Default()
		name := c.profile
		if name == computed {
			name = "analytic:llama-2-7b,a100-40gb"
		}
		if err := sc.Set("profile", name); err != nil {
			t.Fatal(err)
		}
		err := sc.EngineArgs(c.args)
		var on bool
		if err == nil {
			ps, e := sc.Profiles(t.Context())
			if err = e; err == nil {
				on = ps[0].Engine.AsyncScheduling
			}
		}
		if c.err != "" {
			testutil.ExpectError(t, err, c.err)
		} else if err != nil || on != c.on {
			t.Errorf("%s, %s: %v, asynchronous %v", name, c.args, err, on)
		}
	}
	sc := Default()
	if err := sc.Set("profile", "analytic:llama-2-7b,a100-40gb"); err != nil {
		t.Fatal(err)
	}
	if err := sc.EngineArgs("version=vllm-0.11,gpu_memory_utilization=0.8,max_loras=3,max_lora_rank=64"); err != nil {
		t.Fatal(err)
	}
	ps, err := sc.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A server with these flags leveled off at some 36,000 tokens in flight.
	if n, err := ps[0].KVTokens(); err != nil || n < 35_000 || n > 37_000 {
		t.Errorf("%d KV tokens (%v), expected some 36,000", n, err)
	}
}
