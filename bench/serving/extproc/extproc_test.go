package extproc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
	"lorasim/router/epp"
)

// fixed picks one endpoint for everything, as the recordings do.
type fixed struct {
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
		return nil, noWorker
	}
	return t, nil
}

func (t *fixedTicket) Endpoint() string          { return "10.0.0.1:8000" }
func (t *fixedTicket) Body() ([]byte, [2]string) { return t.body, t.model }
func (t *fixedTicket) Piece([]byte)              { t.p.tokens++ }
func (t *fixedTicket) Left(int, bool)            { t.p.left++ }

// conn is a stream of Envoy's to a server.
type conn struct {
	tb   testing.TB
	in   *io.PipeWriter
	resp *http.Response
	stop context.CancelFunc
}

// serve starts a server and returns its address.
func serve(tb testing.TB, s *Server) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: s}
	Configure(srv)
	go func() { _ = srv.Serve(l) }()
	tb.Cleanup(func() { srv.Close() })
	return l.Addr().String()
}

// client speaks HTTP/2 without TLS.
func client(tb testing.TB) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	tb.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func dial(tb testing.TB, c *http.Client, address, path string) *conn {
	tb.Helper()
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, r)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	resp, err := c.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { stop(); w.Close(); resp.Body.Close() })
	return &conn{tb, w, resp, stop}
}

func (c *conn) send(m []byte) {
	c.tb.Helper()
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))
	if _, err := c.in.Write(append(frame, m...)); err != nil {
		c.tb.Fatal(err)
	}
}

// receive reads one answer; nil at the end.
func (c *conn) receive() []byte {
	c.tb.Helper()
	var head [5]byte
	if _, err := io.ReadFull(c.resp.Body, head[:]); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		c.tb.Fatal(err)
	}
	m := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(c.resp.Body, m); err != nil {
		c.tb.Fatal(err)
	}
	return m
}

// answer is a ProcessingResponse, as far as tests look.
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

func parseAnswer(tb testing.TB, b []byte) (a answer) {
	tb.Helper()
	a.Set = map[string]string{}
	check := func(err error) {
		if err != nil {
			tb.Fatalf("answer %x: %v", b, err)
		}
	}
	mutated := func(b []byte) error {
		return fields(b, func(n protowire.Number, content []byte, _ uint64) error {
			if n == 2 {
				a.Removed = append(a.Removed, string(content))
				return nil
			}
			var m message
			err := fields(content, func(n protowire.Number, content []byte, number uint64) error {
				if n == 3 && number != overwrite {
					tb.Errorf("append_action %d, expected %d", number, overwrite)
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
	common := func(b []byte) error {
		return fields(b, func(n protowire.Number, content []byte, number uint64) error {
			switch n {
			case 2:
				return mutated(content)
			case 3:
				return fields(content, func(_ protowire.Number, streamed []byte, _ uint64) error {
					return fields(streamed, func(n protowire.Number, content []byte, number uint64) error {
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
	check(fields(b, func(n protowire.Number, content []byte, _ uint64) error {
		switch {
		case n <= 4:
			a.Kind = kind(n + 1)
			return fields(content, func(_ protowire.Number, b []byte, _ uint64) error { return common(b) })
		case n <= 6:
			a.Kind = kind(n + 1)
		case n == 7:
			return fields(content, func(n protowire.Number, content []byte, _ uint64) error {
				switch n {
				case 1:
					return fields(content, func(_ protowire.Number, _ []byte, v uint64) error {
						a.Status = v
						return nil
					})
				case 2:
					return mutated(content)
				case 3:
					a.Immediate = string(content)
				}
				return nil
			})
		case n == 8:
			_, value, err := entry(content[2:])
			check(err)
			return fields(value, func(_ protowire.Number, inner []byte, _ uint64) error {
				return fields(inner, func(_ protowire.Number, b []byte, _ uint64) error {
					_, v, err := entry(b)
					check(err)
					return eachString(v, func(s string) { a.Endpoint = s })
				})
			})
		}
		return nil
	}))
	return a
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
	return appendBytes(nil, protowire.Number(k), m)
}

// bodyOf are the bytes of a message with a piece of a body.
func bodyOf(k kind, piece string, end bool) []byte {
	m := appendBytes(nil, 1, []byte(piece))
	if end {
		m = appendVarint(m, 2, 1)
	}
	return appendBytes(nil, protowire.Number(k), m)
}

// recorded is a message in the JSON form of protocol buffers.
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

func (r *recorded) bytes(tb testing.TB) []byte {
	for k, h := range map[kind]*struct {
		Headers     struct{ Headers []recordedHeader }
		EndOfStream bool
	}{requestHeaders: r.RequestHeaders, responseHeaders: r.ResponseHeaders} {
		if h == nil {
			continue
		}
		var hs []header
		for _, x := range h.Headers.Headers {
			v, err := base64.StdEncoding.DecodeString(x.RawValue)
			if err != nil {
				tb.Fatal(err)
			}
			hs = append(hs, header{x.Key, string(v)})
		}
		return headersOf(k, h.EndOfStream, hs...)
	}
	if b := r.RequestBody; b != nil {
		return bodyOf(requestBody, string(b.Body), b.EndOfStream)
	}
	if b := r.ResponseBody; b != nil {
		return bodyOf(responseBody, string(b.Body), b.EndOfStream)
	}
	tb.Fatalf("a message of no kind: %+v", r)
	return nil
}

// expected is a recorded answer, as far as ours must agree: ours does not echo request headers.
type expected struct {
	DynamicMetadata   map[string]map[string]string
	RequestHeaders    json.RawMessage
	ResponseHeaders   json.RawMessage
	ImmediateResponse *struct {
		Body   []byte
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

// sameBody: bodies are equal, or the same JSON: the real picker sorts keys.
func sameBody(a, b []byte) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// compare holds an answer against a recorded one.
func compare(t *testing.T, name string, got answer, want *expected) {
	t.Helper()
	switch {
	case want.ImmediateResponse != nil:
		codes := map[string]uint64{"BadRequest": 400, "ServiceUnavailable": 503}
		if got.Kind != 0 || got.Status != codes[want.ImmediateResponse.Status.Code] {
			t.Errorf("%s: %+v, expected an immediate response %s", name, got, want.ImmediateResponse.Status.Code)
		}
	case want.RequestHeaders != nil:
		if to := want.DynamicMetadata["envoy.lb"][destinationKey]; got.Kind != requestHeaders || !got.Clear ||
			got.Endpoint != to || got.Set[destinationKey] != to {
			t.Errorf("%s: %+v, expected the destination %s", name, got, to)
		}
	case want.ResponseHeaders != nil:
		if got.Kind != responseHeaders {
			t.Errorf("%s: %+v, expected an answer to response headers", name, got)
		}
	default:
		b, k := want.RequestBody, requestBody
		if want.ResponseBody != nil {
			b, k = want.ResponseBody, responseBody
		}
		s := b.Response.BodyMutation.StreamedResponse
		if got.Kind != k || got.End != s.EndOfStream || !sameBody(got.Body, s.Body) {
			t.Errorf("%s: %+v, expected %q, end %v", name, got, s.Body, s.EndOfStream)
		}
	}
}

// TestTranscripts plays recorded messages of Envoy and holds the answers against those of the real picker.
func TestTranscripts(t *testing.T) {
	f, err := textfile.Open(shareddata.Path(t, "epp_cases/extproc.jsonl.gz"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for {
		text, err := f.Line()
		if errors.Is(err, io.EOF) {
			break
		}
		var c struct {
			Name     string
			Rewrites map[string]string
			Messages []struct {
				In  recorded
				Out []expected
			}
		}
		if err := errors.Join(err, json.Unmarshal(text, &c)); err != nil {
			t.Fatal(err)
		}
		n++
		t.Run(c.Name, func(t *testing.T) {
			p := &fixed{rewrites: c.Rewrites, nobody: c.Name == "nobody there"}
			conn := dial(t, client(t), serve(t, New(Config{Picker: p})), processPath)
			for i, m := range c.Messages {
				conn.send(m.In.bytes(t))
				for k := 0; k < len(m.Out); k++ {
					name := fmt.Sprintf("message %d, answer %d", i, k)
					want := m.Out[k]
					got := parseAnswer(t, conn.receive())
					if b := want.RequestBody; b != nil { // the real picker cuts at another length
						for !want.RequestBody.Response.BodyMutation.StreamedResponse.EndOfStream {
							k++
							s := &want.RequestBody.Response.BodyMutation.StreamedResponse
							next := m.Out[k].RequestBody.Response.BodyMutation.StreamedResponse
							s.Body, s.EndOfStream = append(s.Body, next.Body...), next.EndOfStream
						}
						for !got.End {
							more := parseAnswer(t, conn.receive())
							got.Body, got.End = append(got.Body, more.Body...), more.End
						}
					}
					compare(t, name, got, &want)
				}
			}
		})
	}
	if n != 11 {
		t.Errorf("%d transcripts, expected 11", n)
	}
}

// TestRequestTrailers: a request that ends with trailers is answered; the real picker lets it hang.
func TestRequestTrailers(t *testing.T) {
	p := &fixed{}
	c := dial(t, client(t), serve(t, New(Config{Picker: p, PickedHeader: "x-picked"})), processPath)
	c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
	c.send(bodyOf(requestBody, `{"model":"m","prompt":"x"}`, false))
	c.send(appendBytes(nil, protowire.Number(requestTrailers), nil))
	var kinds []kind
	for range 3 {
		a := parseAnswer(t, c.receive())
		kinds = append(kinds, a.Kind)
		if a.End {
			t.Error("a piece of the body says that it is the last, but trailers follow")
		}
	}
	if want := []kind{requestHeaders, requestBody, requestTrailers}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("answers %v, expected %v", kinds, want)
	}
	c.send(headersOf(responseHeaders, false, header{":status", "200"}))
	if a := parseAnswer(t, c.receive()); a.Set["x-picked"] != "10.0.0.1:8000" {
		t.Errorf("headers %v, expected the endpoint in x-picked", a.Set)
	}
}

// TestPieces: a long body goes on in pieces of at most 62,000 bytes, unchanged.
func TestPieces(t *testing.T) {
	p := &fixed{}
	c := dial(t, client(t), serve(t, New(Config{Picker: p})), processPath)
	body := `{"prompt":"` + strings.Repeat("word ", 50000) + `","model":"m"}`
	c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
	for rest := body; rest != ""; {
		n := min(len(rest), 100000)
		c.send(bodyOf(requestBody, rest[:n], n == len(rest)))
		rest = rest[n:]
	}
	if a := parseAnswer(t, c.receive()); a.Set["content-length"] != fmt.Sprint(len(body)) {
		t.Errorf("content-length %s, expected %d", a.Set["content-length"], len(body))
	}
	var got []byte
	for end := false; !end; {
		a := parseAnswer(t, c.receive())
		if len(a.Body) > maxPiece {
			t.Errorf("a piece of %d bytes, expected at most %d", len(a.Body), maxPiece)
		}
		got, end = append(got, a.Body...), a.End
	}
	if string(got) != body {
		t.Error("the body changed")
	}
}

// TestTooLong: a body beyond the limit gets status 413.
func TestTooLong(t *testing.T) {
	c := dial(t, client(t), serve(t, New(Config{Picker: &fixed{}, MaxBody: 10})), processPath)
	c.send(headersOf(requestHeaders, false))
	c.send(bodyOf(requestBody, "01234567890", true))
	if a := parseAnswer(t, c.receive()); a.Status != 413 {
		t.Errorf("%+v, expected status 413", a)
	}
	if c.receive() != nil || c.resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("trailers %v, expected the end of the stream with status 0", c.resp.Trailer)
	}
}

// TestHealth: health checks say whether requests can be served.
func TestHealth(t *testing.T) {
	ready := true
	s := New(Config{Picker: &fixed{}, Ready: func() bool { return ready }})
	address, c := serve(t, s), client(t)
	check := func(want byte) {
		t.Helper()
		h := dial(t, c, address, checkPath)
		h.send(nil)
		h.in.Close()
		if m := h.receive(); len(m) != 2 || m[1] != want {
			t.Errorf("health %x, expected status %d", m, want)
		}
	}
	check(1)
	ready = false
	check(2)
	ready = true
	s.Drain()
	check(2)
	bad := dial(t, c, address, "/envoy.service.auth.v3.Authorization/Check")
	if _, err := io.Copy(io.Discard, bad.resp.Body); err != nil || bad.resp.Trailer.Get("Grpc-Status") != "12" {
		t.Errorf("unknown method: %v, %v; expected status 12", bad.resp.Trailer, err)
	}
}

// FuzzParse: no message brings the parser down, and what it reads of a message that it wrote is what was written.
func FuzzParse(f *testing.F) {
	f.Add(headersOf(requestHeaders, true, header{":path", "/x"}))
	f.Add(bodyOf(responseBody, "abc", true))
	f.Add([]byte{0x42, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err == nil && m.kind == 0 {
			t.Error("a message of no kind")
		}
	})
}

func BenchmarkStream(b *testing.B) {
	address, cl := serve(b, New(Config{Picker: &fixed{}})), client(b)
	b.ReportAllocs()
	for b.Loop() {
		c := dial(b, cl, address, processPath)
		c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
		c.send(bodyOf(requestBody, `{"model":"m","prompt":"hello"}`, true))
		c.receive()
		c.receive()
		c.send(headersOf(responseHeaders, false, header{":status", "200"}))
		c.receive()
		c.send(bodyOf(responseBody, `{"choices":[]}`, true))
		c.receive()
		c.in.Close()
		for c.receive() != nil {
		}
	}
}
