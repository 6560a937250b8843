package main

import "encoding/json"

// A Case is a sequence of requests to an endpoint picker with fresh state.
type Case struct {
	ID         string            `json:"id"`
	Config     string            `json:"config"` // file name in cases/configs
	Seed       uint64            `json:"seed"`   // seed of the picks among equals; see FORMAT.md
	Objectives map[string]int    `json:"objectives,omitempty"`
	Rewrites   map[string]string `json:"rewrites,omitempty"`
	Steps      []Step            `json:"steps"`
}

// A Step is one request.
type Step struct {
	Endpoints []Endpoint `json:"endpoints,omitempty"` // endpoints from this step on; nil: unchanged
	Finished  []string   `json:"finished,omitempty"`  // IDs of requests whose responses ended before this step
	Request   Request    `json:"request"`
	Expect    Outcome    `json:"expect"`
}

// An Endpoint is a model server with its metrics.
type Endpoint struct {
	Name      string            `json:"name"`
	Address   string            `json:"address"`
	Labels    map[string]string `json:"labels,omitempty"`
	Queue     int               `json:"waiting_requests"`
	Running   int               `json:"running_requests"`
	KV        float64           `json:"kv_usage"`
	Active    []string          `json:"running_adapters,omitempty"`
	Waiting   []string          `json:"waiting_adapters,omitempty"`
	MaxActive int               `json:"max_lora,omitempty"`
	BlockSize int               `json:"block_size,omitempty"`
	NumBlocks int               `json:"num_blocks,omitempty"`
	Stale     bool              `json:"stale,omitempty"` // whether its metrics are older than any threshold
	Latency   *Latency          `json:"latency,omitempty"`
}

// Latency is a prediction, ms.
type Latency struct {
	TTFTHeadroom float64 `json:"ttft_headroom"`
	TPOTHeadroom float64 `json:"tpot_headroom"`
	TTFT         float64 `json:"ttft"`
	TPOT         float64 `json:"tpot"`
	Dispatched   int     `json:"dispatched"`
}

// A Request is a client's request.
type Request struct {
	ID      string            `json:"id"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers,omitempty"`
	Subset  *[]string         `json:"subset,omitempty"` // metadata envoy.lb.subset_hint
	Body    json.RawMessage   `json:"body"`
}

// An Outcome is the endpoint picker's answer and its intermediate results.
type Outcome struct {
	Status  int         `json:"status"`
	Error   string      `json:"error,omitempty"`
	Filters []FilterOut `json:"filters,omitempty"` // in order of execution
	// Scores are by plugin name, then endpoint, before clamping and weighting.
	Scores   map[string]map[string]float64 `json:"scores,omitempty"`
	Totals   map[string]float64            `json:"totals,omitempty"` // scores that the picker gets, by endpoint
	Best     []string                      `json:"best,omitempty"`   // endpoints with the largest total
	Picker   string                        `json:"picker,omitempty"`
	Picked   []string                      `json:"picked,omitempty"`
	Prefix   map[string][3]int             `json:"prefix,omitempty"`   // matched blocks, blocks, tokens of a block
	InFlight map[string][2]int64           `json:"inflight,omitempty"` // requests, tokens
	Header   map[string]string             `json:"header,omitempty"`
	Metadata json.RawMessage               `json:"metadata,omitempty"`
	Body     json.RawMessage               `json:"body,omitempty"` // body as forwarded
}

// FilterOut is the endpoints that a filter kept.
type FilterOut struct {
	Plugin string   `json:"plugin"`
	Kept   []string `json:"kept"`
}
