package importer

import (
	"lorasim/bench/result"
	"lorasim/sim/record"
)

// definitions say how each client measures. E2E and TTFT of all of them leave out the wait in the client for its limit
// of requests in flight.
var definitions = map[string]result.Definitions{
	// AIPerf's inter-token latency is a mean of each request; its inter-chunk latency is ITL here.
	"AIPerf": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst, ITL: result.ByChunk,
		Throughput: result.WholeRun},
	"GuideLLM": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.OverTokens, ITL: result.RequestMeans,
		Throughput: result.WholeRun},
	"inference-perf": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst,
		ITL: result.ChunkAtOnce, Throughput: result.WholeRun},
	"llmperf": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.OverTokens, Throughput: result.WholeRun},
	"locust":  {E2E: result.FromSending, Throughput: result.WholeRun},
	"vLLM": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst, ITL: result.ByChunk,
		Throughput: result.WholeRun},
	// bench_serving divides gaps by tokens where the server counts them, in sglang's own API.
	"sglang": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst, ITL: result.ByToken,
		Throughput: result.WholeRun},
	"sglang, OpenAI API": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst,
		ITL: result.ByChunk, Throughput: result.WholeRun},
	// lorasim's records, whose tokens may come in any way.
	"records": {E2E: result.FromSending, TTFT: result.FirstChunk, TPOT: result.AfterFirst, Throughput: result.WholeRun},
}

// define sets the definitions of a client. A client that did not stream measured no tokens.
func (m *Imported) define(client string) {
	m.Defined = definitions[client]
	if m.Streamed == record.NotStreamed {
		m.Defined.TTFT, m.Defined.TPOT, m.Defined.ITL = "", "", ""
	}
}

// defineLine sets the definitions of a run of vLLM or sglang by the fields of its JSON, or the layout of its block.
func (m *Imported) defineLine(f fields) {
	vllm := m.Layout == vllmClient
	for _, name := range []string{"tokenizer_id", "model_id", "endpoint_type", "burstiness", "total_token_throughput"} {
		vllm = vllm || f.has(name)
	}
	switch {
	case vllm:
		m.define("vLLM")
	case m.Backend == "sglang" || m.Backend == "sglang-native":
		m.define("sglang")
	case m.Backend != "":
		m.define("sglang, OpenAI API")
	}
}
