package extproc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"lorasim/router/epp"
)

// A Transcript is a recorded exchange between Envoy and an endpoint picker. It has messages in the JSON form of
// protocol buffers, each with the picker's answers.
type Transcript struct {
	Name     string            `json:"name"`     // name of the recording
	Rewrites map[string]string `json:"rewrites"` // names of models and their replacements
	Messages []exchange        `json:"messages"`
}

type exchange struct {
	In  recorded   `json:"in"`
	Out []expected `json:"out"`
}

// A TranscriptDifference is the first message whose answers differ from the recorded ones.
type TranscriptDifference struct {
	Message       int
	What          string // "answers" (number or kinds), "status", "destination" or "body"
	Expected, Got any
}

// recorded is a message of Envoy.
type recorded struct {
	RequestHeaders, ResponseHeaders *struct {
		Headers     struct{ Headers []recordedHeader }
		EndOfStream bool
	}
	RequestBody, ResponseBody *struct {
		Body        []byte
		EndOfStream bool
	}
}

type recordedHeader struct {
	Key      string
	RawValue string
}

// expected is a recorded answer, as far as ours must agree: ours does not echo request headers.
type expected struct {
	DynamicMetadata   map[string]map[string]string
	RequestHeaders    json.RawMessage
	ResponseHeaders   json.RawMessage
	ImmediateResponse *struct {
		Status struct{ Code string }
	}
	RequestBody, ResponseBody *struct {
		Response struct {
			BodyMutation struct {
				StreamedResponse struct {
					Body        []byte
					EndOfStream bool
				}
			}
		}
	}
}

// statuses are the names of HTTP statuses in envoy/type/v3/http_status.proto that pickers answer with.
var statuses = map[string]uint64{
	"BadRequest": 400, "NotFound": 404, "PayloadTooLarge": 413, "TooManyRequests": 429, "InternalServerError": 500,
	"ServiceUnavailable": 503,
}

// Play sends the recorded messages to a picker with one endpoint and compares the answers. It returns nil if all
// agree. The endpoint is the recorded destination, because the recording does not contain the set of endpoints. There
// is no endpoint if the recorded picker answered that no server is available. Bodies agree if they are the same JSON,
// however they are cut into pieces.
func (r *Transcript) Play(ctx context.Context) (*TranscriptDifference, error) {
	out := &answers{}
	s := New(Config{Picker: r.picker()})
	st := &stream{s: s, c: &call{out: out, rc: http.NewResponseController(out)}, ctx: ctx}
	defer st.leave()
	for i := range r.Messages {
		raw, err := r.Messages[i].In.bytes()
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		m, err := parse(raw)
		if err == nil {
			err = st.take(m)
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		got, err := out.take()
		if err != nil {
			return nil, fmt.Errorf("answer to message %d: %w", i, err)
		}
		want, err := readExpected(r.Messages[i].Out)
		if err != nil {
			return nil, fmt.Errorf("recorded answer to message %d: %w", i, err)
		}
		if d := differ(joined(got), joined(want)); d != nil {
			d.Message = i
			return d, nil
		}
	}
	return nil, nil
}

// picker returns a picker with the recorded destination as its only endpoint.
func (r *Transcript) picker() *fixed {
	p := &fixed{rewrites: r.Rewrites, endpoint: "10.0.0.1:8000"}
	for _, m := range r.Messages {
		for _, x := range m.Out {
			p.endpoint = cmp.Or(x.DynamicMetadata["envoy.lb"][destinationKey], p.endpoint)
			if no := x.ImmediateResponse; no != nil && no.Status.Code == "ServiceUnavailable" {
				p.nobody = true
			}
		}
	}
	return p
}

// fixed picks one endpoint for everything, as the recorded picker did.
type fixed struct {
	endpoint string
	rewrites map[string]string
	nobody   bool
	left     int
	tokens   int
}

type fixedTicket struct {
	p     *fixed
	body  []byte
	model [2]string
}

// Pick implements Picker.
func (p *fixed) Pick(_ context.Context, a *Ask) (Ticket, *Refusal) {
	t := &fixedTicket{p: p}
	if !a.Get {
		b, reason := epp.ParseBody(epp.GIE, a.Path, a.Body)
		if reason != nil {
			return nil, &Refusal{Status: reason.Status, Text: reason.Error()}
		}
		if to := cmp.Or(a.Rewrite, p.rewrites[b.Model]); to != "" {
			t.body, t.model = b.For(to), [2]string{to, b.Model}
		}
	}
	if p.nobody || a.Subset != nil && len(*a.Subset) == 0 {
		return nil, noWorker("no worker is available")
	}
	return t, nil
}

func (t *fixedTicket) Endpoint() string          { return cmp.Or(t.p.endpoint, "10.0.0.1:8000") }
func (t *fixedTicket) Body() ([]byte, [2]string) { return t.body, t.model }
func (t *fixedTicket) Piece([]byte) error        { t.p.tokens++; return nil }
func (t *fixedTicket) Busy(string)               {}
func (t *fixedTicket) Left(int, bool)            { t.p.left++ }

// bytes is the message on the wire.
func (r *recorded) bytes() ([]byte, error) {
	for _, h := range []struct {
		kind kind
		of   *struct {
			Headers     struct{ Headers []recordedHeader }
			EndOfStream bool
		}
	}{{requestHeaders, r.RequestHeaders}, {responseHeaders, r.ResponseHeaders}} {
		if h.of == nil {
			continue
		}
		var hs []header
		for _, x := range h.of.Headers.Headers {
			v, err := base64.StdEncoding.DecodeString(x.RawValue)
			if err != nil {
				return nil, fmt.Errorf("header %q: %w", x.Key, err)
			}
			hs = append(hs, header{x.Key, string(v)})
		}
		return headersOf(h.kind, h.of.EndOfStream, hs...), nil
	}
	if b := r.RequestBody; b != nil {
		return bodyOf(requestBody, string(b.Body), b.EndOfStream), nil
	}
	if b := r.ResponseBody; b != nil {
		return bodyOf(responseBody, string(b.Body), b.EndOfStream), nil
	}
	return nil, errors.New("expected requestHeaders, requestBody, responseHeaders or responseBody")
}

// headersOf are the bytes of a message with headers.
func headersOf(k kind, end bool, hs ...header) []byte {
	var list []byte
	for _, h := range hs {
		list = appendBytes(list, 1, appendBytes(appendString(nil, 1, h.key), 3, []byte(h.value)))
	}
	m := appendBytes(nil, 1, list)
	if end {
		m = appendVarint(m, 3, 1)
	}
	return appendBytes(nil, field(k), m)
}

// bodyOf are the bytes of a message with a piece of a body.
func bodyOf(k kind, piece string, end bool) []byte {
	m := appendBytes(nil, 1, []byte(piece))
	if end {
		m = appendVarint(m, 2, 1)
	}
	return appendBytes(nil, field(k), m)
}

// answer is a ProcessingResponse.
type answer struct {
	Kind      kind // 0: immediate
	Set       map[string]string
	Removed   []string
	Clear     bool
	Body      []byte
	End       bool
	Status    uint64
	Immediate string
	Endpoint  string // of the dynamic metadata
}

// readExpected turns recorded answers into the form of ours.
func readExpected(list []expected) (out []answer, err error) {
	for _, x := range list {
		a := answer{Endpoint: x.DynamicMetadata["envoy.lb"][destinationKey]}
		body := x.RequestBody
		switch {
		case x.ImmediateResponse != nil:
			if a.Status = statuses[x.ImmediateResponse.Status.Code]; a.Status == 0 {
				return nil, fmt.Errorf("unknown status %q", x.ImmediateResponse.Status.Code)
			}
		case x.RequestHeaders != nil:
			a.Kind = requestHeaders
		case x.ResponseHeaders != nil:
			a.Kind = responseHeaders
		case x.ResponseBody != nil:
			a.Kind, body = responseBody, x.ResponseBody
		case body != nil:
			a.Kind = requestBody
		default:
			return nil, errors.New("of no known kind")
		}
		if a.Kind == requestBody || a.Kind == responseBody {
			s := body.Response.BodyMutation.StreamedResponse
			a.Body, a.End = s.Body, s.EndOfStream
		}
		out = append(out, a)
	}
	return out, nil
}

// joined puts the pieces of a body together.
func joined(list []answer) (out []answer) {
	for _, a := range list {
		if n := len(out); n > 0 && a.Kind == out[n-1].Kind && (a.Kind == requestBody || a.Kind == responseBody) {
			out[n-1].Body, out[n-1].End = append(slices.Clone(out[n-1].Body), a.Body...), a.End
		} else {
			out = append(out, a)
		}
	}
	return out
}

// differ is the first difference between the answers to one message.
func differ(got, want []answer) *TranscriptDifference {
	kinds := func(list []answer) (ks []kind) {
		for _, a := range list {
			ks = append(ks, a.Kind)
		}
		return ks
	}
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		switch {
		case g.Status != w.Status:
			return &TranscriptDifference{What: "status", Expected: w.Status, Got: g.Status}
		case g.Kind != w.Kind:
			return &TranscriptDifference{What: "answers", Expected: kinds(want), Got: kinds(got)}
		case g.Kind == requestHeaders &&
			(g.Endpoint != w.Endpoint || g.Set[destinationKey] != w.Endpoint || !g.Clear):
			return &TranscriptDifference{What: "destination", Expected: w.Endpoint, Got: g.Endpoint}
		case g.End != w.End || !sameBody(g.Body, w.Body):
			return &TranscriptDifference{What: "body", Expected: string(w.Body), Got: string(g.Body)}
		}
	}
	if len(got) != len(want) {
		return &TranscriptDifference{What: "answers", Expected: kinds(want), Got: kinds(got)}
	}
	return nil
}

// sameBody reports whether two bodies are equal, or the same JSON: the recorded picker sorts keys.
func sameBody(a, b []byte) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// answers collects what a stream writes.
type answers struct{ buf bytes.Buffer }

func (o *answers) Header() http.Header         { return http.Header{} }
func (o *answers) Write(b []byte) (int, error) { return o.buf.Write(b) }
func (o *answers) WriteHeader(int)             {}

// Flush implements http.Flusher.
func (o *answers) Flush() {}

// take reads the answers since the last call.
func (o *answers) take() (out []answer, err error) {
	c := &call{in: &o.buf}
	for o.buf.Len() > 0 {
		b, err := c.receive()
		if err != nil {
			return nil, err
		}
		a, err := readAnswer(slices.Clone(b))
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// readAnswer reads a ProcessingResponse.
func readAnswer(b []byte) (a answer, err error) {
	a.Set = map[string]string{}
	err = fields(b, func(n field, content []byte, _ uint64) error {
		switch {
		case n <= 4:
			a.Kind = kind(n + 1)
			return fields(content, func(_ field, b []byte, _ uint64) error { return a.readCommon(b) })
		case n <= 6:
			a.Kind = kind(n + 1)
		case n == 7:
			return a.readImmediate(content)
		case n == 8:
			return a.readMetadata(content)
		}
		return nil
	})
	return a, err
}

// readCommon reads a CommonResponse.
func (a *answer) readCommon(b []byte) error {
	return fields(b, func(n field, content []byte, number uint64) error {
		switch n {
		case 2:
			return a.readMutation(content)
		case 3:
			return fields(content, func(_ field, streamed []byte, _ uint64) error {
				return fields(streamed, func(n field, content []byte, number uint64) error {
					if n == 1 {
						a.Body = content
					}
					a.End = a.End || n == 2 && number == 1
					return nil
				})
			})
		case 5:
			a.Clear = number == 1
		}
		return nil
	})
}

// readMutation reads a HeaderMutation.
func (a *answer) readMutation(b []byte) error {
	return fields(b, func(n field, content []byte, _ uint64) error {
		if n == 2 {
			a.Removed = append(a.Removed, string(content))
			return nil
		}
		var m message
		err := fields(content, func(n field, content []byte, number uint64) error {
			if n == 3 && number != overwrite {
				return fmt.Errorf("append_action %d, expected %d", number, overwrite)
			}
			if n != 1 {
				return nil
			}
			return m.parseHeader(content)
		})
		for _, h := range m.headers {
			a.Set[h.key] = h.value
		}
		return err
	})
}

// readImmediate reads an ImmediateResponse.
func (a *answer) readImmediate(b []byte) error {
	return fields(b, func(n field, content []byte, _ uint64) error {
		switch n {
		case 1:
			return fields(content, func(_ field, _ []byte, v uint64) error {
				a.Status = v
				return nil
			})
		case 2:
			return a.readMutation(content)
		case 3:
			a.Immediate = string(content)
		}
		return nil
	})
}

// readMetadata reads the endpoint of the dynamic metadata: a Struct with the one entry envoy.lb, a Struct with the one
// entry of the destination.
func (a *answer) readMetadata(b []byte) error {
	return fields(b, func(_ field, namespace []byte, _ uint64) error {
		_, value, err := entry(namespace)
		if err != nil {
			return err
		}
		return fields(value, func(_ field, inner []byte, _ uint64) error {
			return fields(inner, func(_ field, destination []byte, _ uint64) error {
				_, v, err := entry(destination)
				if err != nil {
					return err
				}
				return eachString(v, func(s string) { a.Endpoint = s })
			})
		})
	})
}
