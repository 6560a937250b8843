package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
)

// Why the gateway gives up on a worker's answer.
var (
	errFirstByte = errors.New("the worker sent no first byte in time (--first-token-timeout)")
	errIdle      = errors.New("the worker sent nothing for too long (--idle-timeout)")
)

// serve sends the request to workers until one answers, and notifies the fleet of those that failed it.
func (d *dispatch) serve() (*http.Response, error) {
	resp, err := d.offer()
	bad := resp != nil && (resp.StatusCode >= http.StatusInternalServerError || d.foreign(resp.StatusCode) ||
		d.keyRefused(resp.StatusCode))
	if bad {
		if a, ok := resp.Body.(*answer); ok {
			d.answered(a, resp, a.peek())
		}
	}
	d.tell(resp != nil && !bad)
	switch {
	case resp == nil:
	case d.keyRefused(resp.StatusCode):
		return nil, d.withhold(resp, &refusal{status: http.StatusBadGateway, text: noKeyIs})
	case !d.line.fits(resp):
		return nil, d.withhold(resp, &refusal{status: resp.StatusCode, text: d.answer.peek()})
	}
	return resp, err
}

// tell notifies the fleet of the workers that have failed the request.
func (d *dispatch) tell(served bool) {
	if len(d.faults) > 0 {
		d.g.cfg.Fleet.Requests.Tried(&d.fr, d.faults, served)
		d.faults = d.faults[:0]
	}
}

// withhold ends a response that the client does not get, and returns what it gets instead.
func (d *dispatch) withhold(resp *http.Response, no *refusal) error {
	d.answer.end(io.EOF)
	resp.Body.Close()
	d.answer = nil
	return no
}

// fault notes that a worker failed the request.
func (d *dispatch) fault(w int, err error) {
	if errors.Is(err, fleet.ErrLeft) {
		return // by order of the operator
	}
	d.g.cfg.Fleet.Refused(w, err)
	d.faults = append(d.faults, d.fr.Fault(w, err))
}

// answered notes an error that a worker answered, if it speaks against the worker.
func (d *dispatch) answered(a *answer, resp *http.Response, text string) {
	switch err := fmt.Errorf("status %d: %s", resp.StatusCode, text); {
	case d.keyRefused(resp.StatusCode):
		err = fmt.Errorf("%s (--api-key): %w", noKeyIs, err)
		d.g.workers.Log("worker %d (%s): %v", a.w, d.g.cfg.Fleet.URL(a.w), err)
		d.fault(a.w, err)
	case fleet.IsFailure(resp.StatusCode, resp.Header, text) || d.foreign(resp.StatusCode):
		d.fault(a.w, err)
	}
}

// foreign reports whether no engine answers a request for a model with this status: a redirect, or success without a
// reply.
func (d *dispatch) foreign(status int) bool {
	return d.parsed.json && (status == http.StatusNoContent || status == http.StatusResetContent || status/100 == 3)
}

// peek returns the text of an error response. The client still gets the whole response.
func (a *answer) peek() string {
	body, _ := io.ReadAll(io.LimitReader(a.ReadCloser, 1<<16)) // what is there of it is good enough for a message
	a.ReadCloser = putBack(body, a.ReadCloser)
	return fleet.ErrorText(body)
}

// Cut aborts the attempt on a worker; see fleet.Request.
func (d *dispatch) Cut(w int, cause error) {
	if a := d.now.Load(); a != nil && a.w == w {
		a.cancel(cause)
	}
}

// begin begins an attempt on a worker.
func (d *dispatch) begin(w int) *answer {
	a := &answer{d: d, w: w, usage: httpapi.NewCounts()}
	a.ctx, a.cancel = context.WithCancelCause(d.r.Context())
	d.now.Store(a)
	return a
}

// wait puts a time limit on the next bytes, in place of the one that runs; 0: none.
func (a *answer) wait(d time.Duration) {
	switch {
	case d <= 0:
	case a.timer == nil:
		a.timer = time.AfterFunc(d, a.late)
	default:
		a.timer.Reset(d) // before the gateway waits: the former limit may be over
	}
	a.waits.Store(d > 0)
}

// late gives up on an answer that the gateway waits for, which it does not while its client is slow.
func (a *answer) late() {
	if a.waits.Load() {
		if a.begun.Load() {
			a.cancel(errIdle)
		} else {
			a.cancel(errFirstByte)
		}
	}
}

// cause is why the gateway itself has given up the attempt; nil: it has not.
func (a *answer) cause() error {
	if a.ctx.Err() == nil || a.d.r.Context().Err() != nil {
		return nil
	}
	return context.Cause(a.ctx)
}

// form is the form of an answer's body, which determines when the body is complete.
type form uint8

const (
	otherForm form = iota
	eventForm      // a stream of server-sent events
	tokenForm      // one that ends with [DONE]
)

var doneMark = []byte("[DONE]")

// generates reports whether the streams of a path end with [DONE].
func generates(path string) bool {
	return path == "/generate" || strings.HasSuffix(path, "/completions")
}

// computes reports whether the request makes a model compute. Other requests do not show that a worker is well.
func (d *dispatch) computes() bool { return !strings.HasSuffix(d.r.URL.Path, "tokenize") }

// take makes the answer the body of a response.
func (a *answer) take(resp *http.Response) {
	a.ReadCloser, a.status = resp.Body, resp.StatusCode
	a.d.line.streams = resp.ContentLength < 0
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Encoding") == "" {
		stream, ends := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"),
			generates(a.d.r.URL.Path)
		switch {
		case ends && (stream || a.d.parsed.stream): // one that was asked for may not be there
			a.form = tokenForm
		case stream:
			a.form = eventForm
		}
	}
	if resp.Header.Get("Content-Encoding") != "" {
		a.renamer = nil
	}
	resp.Body = a
}

func (a *answer) isStream() bool { return a.form == tokenForm || a.form == eventForm }

// note looks at a part of the answer.
func (a *answer) note(part []byte) {
	if a.said == nil && a.isStream() {
		if at := bytes.Index(part, []byte(errorEvent)); at >= 0 {
			event := part[at:]
			a.said = bytes.Clone(event[:min(len(event), longestError)])
		}
	}
	a.usage.Note(part)
	if n := len(a.tail); len(part) >= n {
		copy(a.tail[:], part[len(part)-n:])
	} else {
		copy(a.tail[:], a.tail[len(part):])
		copy(a.tail[n-len(part):], part)
	}
}

// longestError bounds an event with an error, bytes.
const longestError = 4 << 10

// saidError returns the error that a stream of status 200 told in an event. Status is
// that which the error names, 0: none. The engines name 5xx for faults of their own: vLLM
// ends the streams of a dead engine core with code 500 and [DONE]
// (create_streaming_error_response). sglang tells what is wrong with a request with code
// 400 or none.
func (a *answer) saidError() (status int, text string) {
	return errorIn(eventData(a.said))
}

// errorIn returns the error in the data of an event.
func errorIn(event []byte) (status int, text string) {
	var e struct {
		Error json.RawMessage `json:"error"`
		Meta  struct {
			Finish json.RawMessage `json:"finish_reason"`
		} `json:"meta_info"`
	}
	json.Unmarshal(event, &e) // of another form: without a status
	if status, text := abortOf(e.Meta.Finish); status > 0 {
		return status, text
	}
	return fleet.StatusOf(e.Error), fleet.ErrorText(event)
}

// refusalOf returns the fault that an error event in place of content tells of. It returns nil if another worker would
// say the same.
func refusalOf(event []byte) *fault {
	status, text := errorIn(event)
	if status < http.StatusInternalServerError && status != http.StatusTooManyRequests ||
		status == http.StatusNotImplemented {
		return nil
	}
	f := answered(status, text)
	if fleet.IsFailure(status, nil, text) {
		f.err = fmt.Errorf("an event of status %d: %s", status, text)
	}
	return f
}

// fault returns the defect of an answer that the worker has ended, or nil if none is visible.
func (a *answer) fault() error {
	if a.form == tokenForm && !bytes.Contains(a.tail[:], doneMark) {
		return errors.New("the stream ended early")
	}
	if a.said == nil {
		return nil
	}
	if status, text := a.saidError(); fleet.IsFailure(status, nil, text) {
		return fmt.Errorf("an event of status %d: %s", status, text)
	}
	return nil
}

// finish notes how the answer ended. A stream that breaks ends with an event that says so, in the form of the engines,
// and then the connection breaks too: it must not look whole.
func (a *answer) finish(err error) {
	if !errors.Is(err, io.EOF) {
		err = a.why(err)
	}
	a.err = err
	if a.isStream() && !errors.Is(err, io.EOF) && a.d.r.Context().Err() == nil {
		a.last = a.farewell(err)
	}
	a.end(err)
}

// farewell is the event with which a stream ends that broke.
func (a *answer) farewell(err error) []byte {
	text := "the connection to the worker broke"
	if errors.Is(err, errIdle) || errors.Is(err, errFirstByte) || errors.Is(err, errAborted) ||
		fleet.IsHang(err) {
		text = err.Error()
	}
	event := lastEvent(http.StatusBadGateway, text)
	if a.events > 0 && !bytes.HasSuffix(a.tail[:], []byte("\n\n")) && !bytes.HasSuffix(a.tail[:], []byte("\r\n\r\n")) {
		event = append([]byte("\n\n"), event...) // ends the event under way
	}
	return event
}

// lastEvent is an event with an error of the gateway.
func lastEvent(status int, text string) []byte {
	said, _ := json.Marshal(map[string]any{"error": map[string]any{"message": text,
		"type": strings.ReplaceAll(http.StatusText(status), " ", ""), "code": status}})
	return fmt.Appendf(nil, "data: %s\n\n", said)
}

// rename renames the model in the n bytes that were read to p, and returns how many bytes are there then.
func (a *answer) rename(p []byte, n int, err error) int {
	out := a.renamer.Piece(p[:n])
	if n = copy(p, out); n < len(out) || err != nil {
		a.rest = append([]byte(nil), out[n:]...)
	}
	if err != nil {
		a.rest = append(a.rest, a.renamer.End()...)
		a.renamer = nil
	}
	return n
}

// drain reads the bytes that follow the worker's answer.
func (a *answer) drain(p []byte) (int, error) {
	if len(a.rest) > 0 {
		n := copy(p, a.rest)
		a.rest = a.rest[n:]
		return n, nil
	}
	if len(a.last) == 0 {
		return 0, a.err
	}
	n := copy(p, a.last)
	a.last = a.last[n:]
	return n, nil
}
