package extproc

import "context"

// A Picker decides where requests go.
type Picker interface {
	// Pick picks an endpoint for a request. It returns either a ticket or a refusal.
	Pick(ctx context.Context, a *Ask) (Ticket, *Refusal)
}

// An Ask describes a request to a [Picker].
type Ask struct {
	Path string
	Get  bool   // the request has no body
	Body []byte // valid only during the call of Pick

	ContentType string // of the body

	Objective string    // name of the InferenceObjective; "": none
	Rewrite   string    // model that replaces the one in the body; "": none
	Selected  string    // value of the header test-epp-endpoint-selection
	Subset    *[]string // addresses that may be picked; nil: all
}

// A Ticket is a request that has been routed.
type Ticket interface {
	// Endpoint returns the picked server, HOST:PORT. Several servers are separated by commas, the best first.
	Endpoint() string
	// Body returns the body for the server; nil: the client's body, unchanged. It also returns the name of the model
	// in the server's response, and the name that the client used.
	Body() (body []byte, model [2]string)
	// Piece notes a piece of the body of a response with status 2xx. The piece is valid only during the call. An error
	// says that the client must not get it.
	Piece(body []byte) error
	// Busy notes that the server answered with status 429 or 503, and the value of its header Retry-After, "": none.
	Busy(retryAfter string)
	// Left notes the end of the request. If complete is true, the server's response with the given status is complete.
	Left(status int, complete bool)
}

// A Refusal is an answer to the client without a server.
type Refusal struct {
	Status     int
	Text       string
	Reason     string // short text for a header; "": none
	RetryAfter int    // value of the header Retry-After, s; 0: no header
}
