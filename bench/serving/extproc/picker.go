package extproc

import "context"

// Picker decides where requests go.
type Picker interface {
	// Pick returns the ticket of a request that is routed, or why it is not.
	Pick(ctx context.Context, a *Ask) (Ticket, *Refusal)
}

// Ask is what is known of a request.
type Ask struct {
	Path string
	Get  bool   // a request without a body
	Body []byte // valid during the call

	Objective string    // name of its InferenceObjective
	Rewrite   string    // the model to ask the server for in place of the body's
	Selected  string    // header test-epp-endpoint-selection
	Subset    *[]string // addresses that may be picked; nil: all
}

// Ticket is a request on its way.
type Ticket interface {
	// Endpoint is where it goes: host:port, or several with commas, the best first.
	Endpoint() string
	// Body is the body for the server, nil: as it came. Model is the name that the client used where the body has
	// another one.
	Body() (body []byte, model [2]string)
	// Piece notes a piece of the body of a response of status 2xx; it is valid during the call.
	Piece(body []byte)
	// Left notes the end: complete, with the server's status; or not.
	Left(status int, complete bool)
}

// Refusal is an answer to the client in place of a server.
type Refusal struct {
	Status     int
	Text       string
	Reason     string // short, for a header; "": none
	RetryAfter int    // s; 0: none
}
