package epp

import "slices"

// Endpoint is the state of a model server at the picker's last read of its metrics.
type Endpoint struct {
	// ID identifies the server in the scheduler's own state (prefix index, requests in flight). It is a small number,
	// at least 0, and constant for the server.
	ID      int
	Address string            // IP:port
	Labels  map[string]string // labels of the pod

	Waiting, Running int     // number of requests
	KV               float64 // used share of the KV cache, 0 to 1

	// RunningAdapters and WaitingAdapters are the names in the server's adapter metric, without duplicates. MaxLora is
	// the limit in the metric; 0: the server does not report it.
	RunningAdapters, WaitingAdapters []string
	MaxLora                          int

	BlockSize, NumBlocks int // size of a KV cache block, tokens; number of blocks; 0: unknown

	Age     float64  // age of the metrics, s
	Latency *Latency // nil: no prediction
}

// Latency is a predicted latency of one request on one server. Times are in ms.
type Latency struct {
	TTFTHeadroom, TPOTHeadroom float64 // objective minus prediction; < 0: the objective is missed
	TTFT, TPOT                 float64 // predictions
	Dispatched                 int     // number of the server's requests that the predictor counts
}

// meets reports whether the prediction meets both objectives.
func (l *Latency) meets() bool { return l.TTFTHeadroom >= 0 && l.TPOTHeadroom >= 0 }

// Request is a request as a scheduler reads it.
type Request struct {
	ID       int64     // unique among requests in flight
	Model    string    // requested model or adapter
	Salt     string    // cache_salt: requests with different ones share no prefix
	Prompts  []Content // prompts for the prefix index
	Bytes    int       // size of the unchanged body, bytes
	Priority int       // priority of the request's objective; < 0: sheddable
	Selected string    // header test-epp-endpoint-selection of conformance tests
}

// tokens is the number of tokens of all prompts, 4 bytes each.
func (r *Request) tokens() int {
	n := 0
	for _, p := range r.Prompts {
		n += (p.Len() + bytesPerToken - 1) / bytesPerToken
	}
	return n
}

// bytesPerToken is how both pickers estimate tokens.
const bytesPerToken = 4

// Match is the prefix index's result for one endpoint.
type Match struct {
	Blocks, Total int // number of matched blocks, of all blocks of the prompt
	Size          int // size of a block, tokens
}

// share is the matched share of the prompt.
func (m Match) share() float64 {
	if m.Total == 0 {
		return 0
	}
	return float64(m.Blocks) / float64(m.Total)
}

// Rejection is the reason why a request is not routed.
type Rejection struct {
	Status int    // HTTP status
	Reason string // text that the pickers write into the body
}

// Error implements error.
func (r *Rejection) Error() string { return "inference error: " + r.Reason }

func rejections(status int) func(reason string) *Rejection {
	return func(reason string) *Rejection { return &Rejection{status, reason} }
}

// Rejections that both pickers know.
var (
	noCandidates = rejections(503)("ServiceUnavailable - failed to find endpoint candidates for serving the request")
	noneLeft     = rejections(429)("ResourceExhausted - no endpoints available for the given request")
	saturated    = rejections(429)("ResourceExhausted - system saturated, sheddable request dropped")
)

// union counts the names in two lists without duplicates.
func union(a, b []string) int {
	n := len(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			n++
		}
	}
	return n
}
