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
