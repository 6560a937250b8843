package extproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"lorasim/bench/serving/httpapi"
)

// stream is one request with its response.
type stream struct {
	s   *Server
	c   *call
	ctx context.Context

	ask     Ask
	body    []byte
	ended   bool // the request has been answered
	ticket  Ticket
	status  int
	renamer *httpapi.Renamer // gives the client the name of the model that it used; nil: that is the server's
	over    bool             // the response is complete
	refused bool
}

// maxPiece bounds a piece of a body: some proxies take at most 64 KiB.
const maxPiece = 62_000

// consumed are headers for the picker, which servers do not get.
var consumed = []string{
	"x-gateway-inference-objective", "x-gateway-inference-fairness-id", "x-gateway-model-name-rewrite",
	"x-llm-d-inference-objective", "x-llm-d-inference-fairness-id", "x-llm-d-model-name-rewrite",
	"test-epp-endpoint-selection",
}

// run answers messages until the stream ends.
func (st *stream) run() error {
	for !st.refused {
		raw, err := st.c.receive()
		switch {
		case errors.Is(err, io.EOF) || st.ctx.Err() != nil:
			return nil
		case errors.Is(err, errMessage):
			return err
		case err != nil:
			return nil // Envoy reset the stream
		}
		m, err := parse(raw)
		if err != nil {
			return err
		}
		if err := st.take(m); err != nil {
			return err
		}
		if err := st.c.flush(); err != nil {
			return nil
		}
	}
	return nil
}

// take answers one message.
func (st *stream) take(m *message) error {
	switch m.kind {
	case requestHeaders:
		return st.takeHeaders(m)
	case requestBody:
		return st.takeBody(m)
	case requestTrailers:
		if !st.ended {
			if err := st.route(false); err != nil || st.refused {
				return err
			}
		}
		return st.c.send(answerTrailers(requestTrailers))
	case responseHeaders:
		return st.takeResponse(m)
	case responseBody:
		return st.takePiece(m)
	}
	st.over = true
	if err := st.rest(); err != nil {
		return err
	}
	return st.c.send(answerTrailers(responseTrailers))
}

// takeHeaders notes what the headers say. Without a body it routes at once.
func (st *stream) takeHeaders(m *message) error {
	first := func(keys ...string) string {
		for _, k := range keys {
			if v := m.get(k); v != "" {
				return v
			}
		}
		return ""
	}
	st.ask = Ask{Path: m.get(":path"), Get: m.end, Subset: m.subset,
		Objective: first("x-llm-d-inference-objective", "x-gateway-inference-objective"),
		Rewrite:   first("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"),
		Selected:  m.get("test-epp-endpoint-selection"), ContentType: m.get("content-type")}
	if m.end {
		return st.route(true)
	}
	return nil
}

// takeBody collects the body. Envoy waits for the answer to the headers meanwhile.
func (st *stream) takeBody(m *message) error {
	if st.ended {
		return errors.New("body data after the end of the body")
	}
	if m.subsetOf(&st.ask); len(st.body)+len(m.body) > st.s.cfg.MaxBody {
		return st.refuse(&Refusal{Status: 413, Text: fmt.Sprintf("the body is longer than %d bytes", st.s.cfg.MaxBody)})
	}
	st.body = append(st.body, m.body...)
	if !m.end {
		return nil
	}
	return st.route(true)
}

// subsetOf notes the subset hint of a message that has one.
func (m *message) subsetOf(a *Ask) {
	if m.subset != nil {
		a.Subset = m.subset
	}
}

// route picks an endpoint and answers headers and body. end: the body's last piece has said so; else trailers follow.
func (st *stream) route(end bool) error {
	st.ended, st.ask.Body = true, st.body
	ticket, no := st.s.cfg.Picker.Pick(st.ctx, &st.ask)
	if no != nil {
		return st.refuse(no)
	}
	st.ticket = ticket
	set := []header{{destinationKey, ticket.Endpoint()}}
	body := st.body
	changed, model := ticket.Body()
	if changed != nil {
		body, st.renamer = changed, httpapi.NewRenamer(model[0], model[1])
	}
	if !st.ask.Get {
		set = append(set, header{"content-length", strconv.Itoa(len(body))})
	}
	answer := withDestination(answerHeaders(requestHeaders, set, consumed, true), ticket.Endpoint())
	if err := st.c.send(answer); err != nil || st.ask.Get {
		return err
	}
	st.body, st.ask.Body = nil, nil
	return st.pieces(requestBody, body, end)
}

// pieces sends a body to the server, even an unchanged one: Envoy drops what the picker does not send back.
func (st *stream) pieces(k kind, body []byte, end bool) error {
	for len(body) > maxPiece {
		if err := st.c.send(answerBody(k, body[:maxPiece], false)); err != nil {
			return err
		}
		body = body[maxPiece:]
	}
	return st.c.send(answerBody(k, body, end))
}

// refuse answers the client.
func (st *stream) refuse(no *Refusal) error {
	st.refused = true
	st.s.cfg.Refused(no)
	set := []header{{"content-type", "application/json"}}
	if no.Reason != "" {
		set = append(set, header{"x-llm-d-request-dropped-reason", no.Reason})
	}
	if no.RetryAfter > 0 {
		set = append(set, header{"retry-after", strconv.Itoa(no.RetryAfter)})
	}
	if err := st.c.send(immediate(no.Status, errorBody(no), set)); err != nil {
		return err
	}
	return st.c.flush()
}

// takeResponse answers the headers of the response.
func (st *stream) takeResponse(m *message) error {
	st.status, _ = strconv.Atoi(m.get(":status"))
	st.over = m.end
	var set []header
	if h := st.s.cfg.PickedHeader; h != "" && st.ticket != nil {
		set = append(set, header{h, st.ticket.Endpoint()})
	}
	if m.get("content-encoding") != "" {
		st.renamer = nil // names in a compressed response stay as they are
	}
	var remove []string
	if st.renamer != nil {
		remove = []string{"content-length"}
	}
	if after := m.get("retry-after"); st.ticket != nil && (st.status == 429 || st.status == 503) {
		st.ticket.Busy(after)
	}
	return st.c.send(answerHeaders(responseHeaders, set, remove, false))
}

// takePiece passes on a piece of the response.
func (st *stream) takePiece(m *message) error {
	if len(m.body) > 0 && st.ticket != nil && st.status/100 == 2 {
		if err := st.ticket.Piece(m.body); err != nil { // which makes Envoy reset the response
			return err
		}
	}
	st.over = st.over || m.end
	body := m.body
	if st.renamer != nil {
		body = st.renamer.Piece(body)
		if m.end {
			body = append(bytes.Clone(body), st.renamer.End()...)
		}
	}
	return st.pieces(responseBody, body, m.end)
}

// rest sends what is left of the response's body before its trailers.
func (st *stream) rest() error {
	if st.renamer == nil {
		return nil
	}
	if rest := st.renamer.End(); len(rest) > 0 {
		return st.pieces(responseBody, rest, false)
	}
	return nil
}

// leave reports the end of the request to its ticket, however the stream ended.
func (st *stream) leave() {
	if st.ticket != nil {
		st.ticket.Left(st.status, st.over)
	}
}
