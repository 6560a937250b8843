package epp

import "slices"

// Endpoint is a model server as the picker last read its metrics.
type Endpoint struct {
	// ID identifies the server for the scheduler's own state (prefix index, requests in flight): a small number, >= 0,
	// that stays with the server.
	ID      int
	Address string            // IP:port
	Labels  map[string]string // of the pod

	Waiting, Running int     // requests
	KV               float64 // used share of the KV cache

	// RunningAdapters and WaitingAdapters are the names that the metric of adapters lists, without duplicates. MaxLora
	// is the limit that it states; 0: the server has not written the metric.
	RunningAdapters, WaitingAdapters []string
	MaxLora                          int

	BlockSize, NumBlocks int // KV cache blocks: tokens of one, and their number; 0: unknown

	Age     float64  // s since the metrics were read
	Latency *Latency // nil: no prediction
}

// Latency is a prediction for one request on one server, ms.
type Latency struct {
	TTFTHeadroom, TPOTHeadroom float64 // objective minus prediction; below 0: the objective would be missed
	TTFT, TPOT                 float64
	Dispatched                 int // requests that the predictor knows to be there
}

// meets says whether both objectives would be met.
func (l *Latency) meets() bool { return l.TTFTHeadroom >= 0 && l.TPOTHeadroom >= 0 }

// Request is what a scheduler reads of a request.
type Request struct {
	ID       int64     // unique among requests in flight
	Model    string    // the model or adapter that the server is asked for
	Salt     string    // cache_salt: requests with different ones share no prefix
	Prompts  []Content // what the prefix index reads
	Bytes    int       // of the body, before any change
	Priority int       // of its objective; below 0: sheddable
	Selected string    // header test-epp-endpoint-selection, of conformance tests
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

// Match is what the prefix index found for one endpoint.
type Match struct {
	Blocks, Total int // matched blocks, blocks of the prompt
	Size          int // tokens of a block
}

// share is the matched share of the prompt.
func (m Match) share() float64 {
	if m.Total == 0 {
		return 0
	}
	return float64(m.Blocks) / float64(m.Total)
}

// Rejection is why a request is not routed.
type Rejection struct {
	Status int    // of HTTP
	Reason string // what the pickers write into the body
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
