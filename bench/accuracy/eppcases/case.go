// Package eppcases holds package router/epp against recorded decisions of real endpoint pickers.
//
//	report, err := eppcases.Compare(ctx, "epp_cases")
//	report.WriteText(os.Stdout)
//	err = report.Err() // not nil where a case differs
//
// A folder has NAME.jsonl or NAME.jsonl.gz, a case a line, and the configurations of its cases in configs/. Folders
// below it are read, too; one named llmd has decisions of llm-d's picker, the others those of GIE.
package eppcases

import "encoding/json"

// line is a case of any kind. The fields that are set tell which.
type line struct {
	// Decisions on requests.
	ID         string            `json:"id"`
	Config     string            `json:"config"`
	Objectives map[string]int    `json:"objectives"`
	Rewrites   map[string]string `json:"rewrites"`
	Steps      []step            `json:"steps"`

	Name string `json:"name"` // of all other kinds

	// A configuration and whether the loader takes it.
	YAML *string `json:"yaml"`
	OK   bool    `json:"ok"`

	// A scrape and what the picker reads of it.
	Engine *string         `json:"engine"`
	Text   string          `json:"text"`
	Expect json.RawMessage `json:"expect"`

	// Messages of Envoy's ext_proc: the whole line is an extproc.Transcript.
	Messages []json.RawMessage `json:"messages"`
}

// step is one request.
type step struct {
	Endpoints []server `json:"endpoints"` // nil: as before
	Finished  []string `json:"finished"`
	Request   struct {
		ID      string            `json:"id"`
		Path    string            `json:"path"`
		Headers map[string]string `json:"headers"`
		Subset  *[]string         `json:"subset"`
		Body    json.RawMessage   `json:"body"`
	} `json:"request"`
	Expect outcome `json:"expect"`
}

// metrics are what a picker reads of an endpoint.
type metrics struct {
	Waiting         int      `json:"waiting_requests"`
	Running         int      `json:"running_requests"`
	KV              float64  `json:"kv_usage"`
	RunningAdapters []string `json:"running_adapters"`
	WaitingAdapters []string `json:"waiting_adapters"`
	MaxLora         int      `json:"max_lora"`
	BlockSize       int      `json:"block_size"`
	NumBlocks       int      `json:"num_blocks"`
}

// server is an endpoint and what the picker last read of it.
type server struct {
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Labels  map[string]string `json:"labels"`
	metrics
	Stale   bool `json:"stale"`
	Latency *struct {
		TTFTHeadroom float64 `json:"ttft_headroom"`
		TPOTHeadroom float64 `json:"tpot_headroom"`
		TTFT         float64 `json:"ttft"`
		TPOT         float64 `json:"tpot"`
		Dispatched   int     `json:"dispatched"`
	} `json:"latency"`
}

// ran is what a profile did.
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

// outcome is what the picker answered.
type outcome struct {
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
	ran
	Then     []ran             `json:"then,omitempty"`
	Header   map[string]string `json:"header,omitempty"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Body     json.RawMessage   `json:"body,omitempty"`
}
