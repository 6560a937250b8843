package extproc

import (
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

	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
)

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

// parseAnswer reads an answer.
func parseAnswer(tb testing.TB, b []byte) answer {
	tb.Helper()
	a, err := readAnswer(b)
	if err != nil {
		tb.Fatalf("answer %x: %v", b, err)
	}
	return a
}

// TestTranscripts plays recorded messages of Envoy and holds the answers against those of the real picker.
func TestTranscripts(t *testing.T) {
	f, err := textfile.Open(t.Context(), shareddata.Path(t, "epp_cases/extproc.jsonl.gz"), nil)
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
		var r Transcript
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			t.Fatal(err)
		}
		n++
		if d, err := r.Play(t.Context()); err != nil || d != nil {
			t.Errorf("%s: %+v, %v", r.Name, d, err)
		}
	}
	if n != 11 {
		t.Errorf("%d transcripts, expected 11", n)
	}
}

// TestTranscriptDiffers: each kind of difference is found.
func TestTranscriptDiffers(t *testing.T) {
	header := func(k, v string) string {
		return fmt.Sprintf(`{"key":%q,"rawValue":%q}`, k, base64.StdEncoding.EncodeToString([]byte(v)))
	}
	headers := `{"in":{"requestHeaders":{"headers":{"headers":[` + header(":path", "/v1/completions") + `]}}},"out":[]}`
	body := base64.StdEncoding.EncodeToString([]byte(`{"prompt":"p","model":"m"}`))
	other := base64.StdEncoding.EncodeToString([]byte(`{"prompt":"q","model":"m"}`))
	ask := `{"in":{"requestBody":{"body":"` + body + `","endOfStream":true}},"out":`
	to := func(endpoint string) string {
		return `{"dynamicMetadata":{"envoy.lb":{"` + destinationKey + `":"` + endpoint + `"}},"requestHeaders":{}}`
	}
	sent := func(body string) string {
		return `{"requestBody":{"response":{"bodyMutation":{"streamedResponse":` +
			`{"body":"` + body + `","endOfStream":true}}}}}`
	}
	response := `{"in":{"responseHeaders":{"headers":{"headers":[` + header(":status", "200") + `]}}},"out":`
	right := ask + "[" + to("10.0.0.1:8000") + "," + sent(body) + "]}"
	for out, want := range map[string]string{
		right: "",
		ask + "[" + to("10.0.0.2:8000") + "," + sent(body) + "]}":         "",
		ask + "[" + to("10.0.0.1:8000") + "," + sent(other) + "]}":        "body",
		ask + "[" + to("10.0.0.1:8000") + "]}":                            "answers",
		ask + `[{"immediateResponse":{"status":{"code":"BadRequest"}}}]}`: "status",
		right + "," + response + "[]}":                                    "answers",
		right + "," + response + `[{"responseHeaders":{}}]}`:              "",
	} {
		var r Transcript
		if err := json.Unmarshal([]byte(`{"messages":[`+headers+","+out+"]}"), &r); err != nil {
			t.Fatal(err)
		}
		d, err := r.Play(t.Context())
		if err != nil || (d == nil) != (want == "") || d != nil && d.What != want {
			t.Errorf("%s: %+v, %v, expected %q", out, d, err, want)
		}
	}
}

// TestRequestTrailers: a request that ends with trailers is answered; the real picker lets it hang.
func TestRequestTrailers(t *testing.T) {
	p := &fixed{}
	c := dial(t, client(t), serve(t, New(Config{Picker: p, PickedHeader: "x-picked"})), processPath)
	c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
	c.send(bodyOf(requestBody, `{"model":"m","prompt":"x"}`, false))
	c.send(appendBytes(nil, field(requestTrailers), nil))
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
