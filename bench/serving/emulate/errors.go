package emulate

import (
	"errors"
	"fmt"
	"net/http"
)

// The reasons for which a request is refused. The interfaces answer them in words of their own.
type (
	// errBody: the body is no JSON, or a field has another type.
	errBody struct {
		error
		at string // the field, or the offset in the text; "": unknown
	}
	errContentType    struct{}                     // the body is not said to be JSON
	errEncoding       struct{}                     // the body is no UTF-8
	errUnknownAdapter struct{ name string }        // a request for an adapter that is not loaded
	errAlreadyLoaded  struct{ name string }        // a load of an adapter that is loaded
	errNoAdapter      struct{ Adapter }            // a load from a path where no adapter lies
	errBaseName       string                       // a load under the name of the base model
	errUnnamed        struct{}                     // a load or unload without a name, or a load without a path
	errFull           string                       // the queue is full
	errNeverFits      string                       // the prompt or the budget is too large for the worker
	errSampling       string                       // a value of a sampling parameter
	errNoModel        string                       // a name of no model
	errBudget         int                          // the number of tokens asked for
	errGone           struct{}                     // the worker has aborted the request, since it ends
	errMissing        string                       // the field that is missing
	errValue          struct{ param, text string } // another value that is not allowed
	errMaxTokens      struct {                     // more tokens asked for than the context length
		param           string
		budget, context int
	}
)

// missing refuses a body that lacks a field.
func missing(field string) error { return errBody{error: errMissing(field), at: field} }

// errNoPrompt refuses a prompt without tokens.
var errNoPrompt = errors.New("the prompt is empty")

func (e errUnknownAdapter) Error() string { return fmt.Sprintf("the adapter %s is not loaded", e.name) }
func (e errAlreadyLoaded) Error() string {
	return fmt.Sprintf("the adapter %s is loaded already", e.name)
}
func (e errNoAdapter) Error() string { return fmt.Sprintf("there is no adapter at %s", e.Path) }
func (e errBaseName) Error() string {
	return fmt.Sprintf("%s is the name of the base model", string(e))
}
func (e errUnnamed) Error() string   { return "the name or the path of the adapter is empty" }
func (e errFull) Error() string      { return string(e) }
func (e errNeverFits) Error() string { return string(e) }
func (e errBudget) Error() string {
	return fmt.Sprintf("%d tokens asked for, expected at least 1", int(e))
}
func (e errEncoding) Error() string { return "the body is not UTF-8" }
func (e errContentType) Error() string {
	return "Unsupported Media Type: Only 'application/json' is allowed"
}
func (e errGone) Error() string     { return "Internal server error" }
func (e errMissing) Error() string  { return string(e) + " is missing" }
func (e errSampling) Error() string { return string(e) }
func (e errNoModel) Error() string  { return fmt.Sprintf("The model '%s' does not exist.", string(e)) }
func (e errValue) Error() string    { return e.text }
func (e errMaxTokens) Error() string {
	return fmt.Sprintf("%s=%d cannot be greater than max_model_len=%d", e.param, e.budget, e.context)
}

// refusal is the answer to a request that is refused.
type refusal struct {
	status     int
	kind, text string
	param      any // name of the parameter; nil: none
}

// plain is the object of most errors.
func (r *refusal) plain() object {
	return object{"message": r.text, "type": r.kind, "param": r.param, "code": r.status}
}

// anthropicKinds are the types of errors of /v1/messages.
var anthropicKinds = map[int]string{http.StatusBadRequest: "invalid_request_error",
	http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error",
	http.StatusServiceUnavailable: "overloaded_error"}
