package decisions

import "encoding/json"

// pickerCase is a case of any kind. The fields that are set determine the kind.
type pickerCase struct {
	// Decisions on requests.
	ID         string            `json:"id"`
	Config     string            `json:"config"`
	Objectives map[string]int    `json:"objectives"`
	Rewrites   map[string]string `json:"rewrites"`
	Steps      []pickerStep      `json:"steps"`

	Name string `json:"name"` // name of a case of any other kind

	// A configuration, and whether the loader accepts it.
	YAML *string `json:"yaml"`
	OK   bool    `json:"ok"`

	// A scrape, and the metrics that the picker reads from it.
	Engine *string         `json:"engine"`
	Text   string          `json:"text"`
	Expect json.RawMessage `json:"expect"`

	// Messages of Envoy's ext_proc: the whole line is an extproc.Transcript.
	Messages []json.RawMessage `json:"messages"`
}

// pickerStep is one request.
type pickerStep struct {
	Endpoints []pickerServer `json:"endpoints"` // nil: unchanged
	Finished  []string       `json:"finished"`
	Request   struct {
		ID      string            `json:"id"`
		Path    string            `json:"path"`
		Headers map[string]string `json:"headers"`
		Subset  *[]string         `json:"subset"`
		Body    json.RawMessage   `json:"body"`
	} `json:"request"`
	Expect outcome `json:"expect"`
}

// pickerMetrics are the metrics of an endpoint that a picker reads.
type pickerMetrics struct {
	Waiting         int      `json:"waiting_requests"`
	Running         int      `json:"running_requests"`
	KV              float64  `json:"kv_usage"`
	RunningAdapters []string `json:"running_adapters"`
	WaitingAdapters []string `json:"waiting_adapters"`
	MaxLora         int      `json:"max_lora"`
	BlockSize       int      `json:"block_size"`
	NumBlocks       int      `json:"num_blocks"`
}

// pickerServer is an endpoint with the metrics of the picker's latest scrape.
type pickerServer struct {
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Labels  map[string]string `json:"labels"`
	pickerMetrics
	Stale   bool `json:"stale"`
	Latency *struct {
		TTFTHeadroom float64 `json:"ttft_headroom"`
		TPOTHeadroom float64 `json:"tpot_headroom"`
		TTFT         float64 `json:"ttft"`
		TPOT         float64 `json:"tpot"`
		Dispatched   int     `json:"dispatched"`
	} `json:"latency"`
}

// ran is the result of a profile.
type ran struct {
	Filters  []filtered                    `json:"filters,omitempty"`
	Scores   map[string]map[string]float64 `json:"scores,omitempty"`
	Totals   map[string]float64            `json:"totals,omitempty"`
	Best     []string                      `json:"best,omitempty"`
	Picker   string                        `json:"picker,omitempty"`
	Picked   []string                      `json:"picked,omitempty"`
	Prefix   map[string][3]int             `json:"prefix,omitempty"`
	InFlight map[string][2]int64           `json:"inflight,omitempty"`
}

type filtered struct {
	Plugin string   `json:"plugin"`
	Kept   []string `json:"kept"`
}

// outcome is the picker's answer.
type outcome struct {
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
	ran
	Then     []ran             `json:"then,omitempty"`
	Header   map[string]string `json:"header,omitempty"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Body     json.RawMessage   `json:"body,omitempty"`
}
