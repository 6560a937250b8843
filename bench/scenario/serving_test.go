package scenario

import (
	"testing"

	"lorasim/internal/testutil"
)

// Key engine sets an engine's defaults, and keys that are given beside it win.
func TestEngineKey(t *testing.T) {
	sc, err := Parse([]byte("cluster: {profile: 'analytic:qwen3-14b,h100', engine: vllm-0.33, max_running_requests: 256}"),
		"s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := sc.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	e := &ps[0].Engine
	if e.Scheduler != "vllm" || e.MaxNumBatchedTokens != 8192 || e.MaxRunningRequests != 256 || !e.AsyncScheduling ||
		e.VLLMVersion != "0.33" || e.PageSize != 16 {
		t.Errorf("%+v", e)
	}
	sc.Cluster.SchedulePolicy = "vtc"
	if ps, err = sc.Profiles(); err != nil || ps[0].Engine.AsyncScheduling {
		t.Errorf("vtc: %v", err)
	}
	sc.Cluster.SchedulePolicy, sc.Cluster.Scheduler = "", "sglang"
	_, err = sc.Profiles()
	testutil.ExpectError(t, err, "engine vllm-0.33 has scheduler vllm, but scheduler is sglang: give only one of them")
	sc.Cluster.Scheduler, sc.Cluster.Engine = "", "vllm-1"
	_, err = sc.Profiles()
	testutil.ExpectError(t, err, `unknown engine "vllm-1"`)
}
