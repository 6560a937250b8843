package result

import (
	"encoding/json"
	"testing"

	"lorasim/sim/record"
)

// A token that is a chunk has the same gap by each definition of the gaps; all others differ.
func TestDefinitionsDiffer(t *testing.T) {
	for _, c := range []struct {
		a, b Definition
		want bool
	}{
		{ByChunk, ByChunk, false}, {ByChunk, "", false}, {"", ByChunk, false}, {ByChunk, ByToken, true},
		{TokenIsChunk, ByChunk, false}, {ByToken, TokenIsChunk, false}, {ChunkAtOnce, TokenIsChunk, false},
		{TokenIsChunk, RequestMeans, true}, {AfterFirst, OverTokens, true}, {WholeRun, SuccessfulRun, true},
	} {
		if got := c.a.Differs(c.b); got != c.want {
			t.Errorf("%q and %q differ: %v", c.a, c.b, got)
		}
	}
}

func TestDefinitionsOfRuns(t *testing.T) {
	itl := func(r Result) Definition { d := r.Definitions(); return d.Of("p99_itl_ms") }
	of := func(s Source, backend string, streamed record.Streaming) Result {
		return Result{Meta: Meta{Source: s, Backend: backend, Streamed: streamed}}
	}
	for _, c := range []struct {
		r    Result
		want Definition
	}{
		{of(Sim, "sglang", ""), TokenIsChunk}, {of(Live, "sglang", record.Streamed), ByToken},
		{of(Live, "vllm", ""), ByChunk}, {of(Sim, "", record.NotStreamed), ""}, {of(Log, "sglang", ""), ""},
		{Result{Meta: Meta{Source: Sim}, Defined: Definitions{ITL: ByChunk}}, ByChunk},
	} {
		if got := itl(c.r); got != c.want {
			t.Errorf("%+v: %q, want %q", c.r.Meta, got, c.want)
		}
	}
	d := Definitions{E2E: FromSending, TPOT: OverTokens, Throughput: WholeRun}
	for metric, want := range map[string]Definition{"mean_e2e_latency_ms": FromSending, "p95_tpot_ms": OverTokens,
		"request_throughput": WholeRun, "mean_ttft_ms": "", "completed": "", "scheduled_e2e_latency.mean_ms": ""} {
		if got := d.Of(metric); got != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
	text, err := json.Marshal(d)
	var again Definitions
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil || again != d {
		t.Errorf("%s: %+v, %v", text, again, err)
	}
}
