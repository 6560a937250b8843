package faultworker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// request is the part of a request that the worker uses.
type request struct {
	kind    Kind
	path    string
	body    []byte // its first bytes
	id      string
	adapter string // "": none
	tokens  int
	stream  bool
	usage   bool // a last event with the usage is wanted
	close   bool
}

const (
	keptBody      = 64 << 10 // bytes of a body that are read into memory
	defaultTokens = 16
)

// The fields are found without parsing the body: only the beginning of the body is kept.
var (
	ridField    = regexp.MustCompile(`"rid"\s*:\s*"([^"]*)"`)
	tokensField = regexp.MustCompile(`"max_(?:new_|completion_)?tokens"\s*:\s*(\d{1,9})`)
	streamField = regexp.MustCompile(`"stream"\s*:\s*true`)
	usageField  = regexp.MustCompile(`"include_usage"\s*:\s*true`)
	modelField  = regexp.MustCompile(`"model"\s*:\s*"([^"]*)"`)
	loraField   = regexp.MustCompile(`"lora_path"\s*:\s*"([^"]*)"`)
	nameField   = regexp.MustCompile(`"lora_name"\s*:\s*"([^"]*)"`)
)

func field(re *regexp.Regexp, body []byte) string {
	if m := re.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return ""
}

var kinds = map[string]Kind{
	"/generate": Generate, "/v1/completions": Generate, "/v1/chat/completions": Generate,
	"/health": Health, "/health_generate": Health, "/server_info": Info, "/get_server_info": Info, "/version": Info,
	"/v1/models": Models, "/metrics": Metrics, "/v1/loads": Metrics,
	"/load_lora_adapter": Load, "/v1/load_lora_adapter": Load, "/unload_lora_adapter": Unload,
	"/v1/unload_lora_adapter": Unload,
}

// readRequest reads a request with its body.
func readRequest(r *http.Request) (*request, error) {
	q := &request{kind: Other, path: r.URL.Path, id: r.Header.Get("X-Request-Id"), tokens: defaultTokens,
		close: r.Close}
	if k, ok := kinds[q.path]; ok {
		q.kind = k
	}
	var err error
	if q.body, err = io.ReadAll(io.LimitReader(r.Body, keptBody)); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	if q.id == "" {
		q.id = field(ridField, q.body)
	}
	if n, err := strconv.Atoi(field(tokensField, q.body)); err == nil {
		q.tokens = n
	}
	q.stream, q.usage = streamField.Match(q.body), usageField.Match(q.body)
	return q, nil
}

// conn is one connection, served by its own goroutine.
type conn struct {
	net.Conn
	w       *Worker
	in      *bufio.Reader
	dead    <-chan struct{} // closed when the worker is stopped
	watched chan struct{}   // closed when watch has ended; nil: it never began
	gone    chan struct{}   // closed when the client has hung up
	every   time.Duration   // between the bytes of what is written; 0: at once
}

// begin serves a connection in its own goroutine. in and first hold what a server has already read of it, or are
// nil.
func (w *Worker) begin(nc net.Conn, in *bufio.Reader, first *request) {
	c := &conn{Conn: nc, w: w, in: in, gone: make(chan struct{})}
	if c.in == nil {
		c.in = bufio.NewReader(c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.dead:
		reset(nc)
		return
	default:
	}
	c.dead = w.dead
	w.conns[nc] = struct{}{}
	w.accepted++
	w.served.Go(func() {
		c.converse(first)
		nc.Close()
		w.mu.Lock()
		delete(w.conns, nc)
		w.mu.Unlock()
		if c.watched != nil {
			<-c.watched
		}
	})
}

// Read waits while the worker is frozen.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.pass()
	return n, err
}

// Write waits while the worker is frozen.
func (c *conn) Write(p []byte) (int, error) {
	c.w.pass()
	if c.every == 0 {
		return c.Conn.Write(p)
	}
	for i := range p {
		if !c.sleep(c.every) {
			return i, io.ErrClosedPipe
		}
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// converse serves requests until one ends the connection.
func (c *conn) converse(q *request) {
	for {
		if q == nil {
			r, err := http.ReadRequest(c.in)
			if err != nil {
				return
			}
			if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
				io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n") // a failure shows when the body is read
			}
			if told := c.w.cfg.Asked; told != nil {
				told(r.Method, r.URL.Path, r.Header)
			}
			if q, err = readRequest(r); err != nil {
				return
			}
		}
		c.watch()
		if err := c.serve(q); err != nil || q.close {
			return
		}
		if !c.await() {
			return
		}
		select {
		case <-c.gone:
			return
		default:
		}
		q = nil
	}
}

// await waits for the next request, which watch sees; until then watch has the reader.
func (c *conn) await() bool {
	var late <-chan time.Time
	if d := c.w.cfg.Idle; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c.watched:
		return true
	case <-late:
		return false
	}
}

// watch waits until the client hangs up or sends its next request.
func (c *conn) watch() {
	c.watched = make(chan struct{})
	go func() {
		defer close(c.watched)
		if _, err := c.in.Peek(1); err != nil {
			close(c.gone)
		}
	}()
}

// sleep returns false if the client hung up, or the worker was stopped, meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	var due <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-due:
		select {
		case <-c.gone:
			return false
		default:
			return true
		}
	case <-c.gone:
	case <-c.dead:
	}
	return false
}

// hang waits for the client to hang up, or the worker to be stopped.
func (c *conn) hang() { c.sleep(-1) }

// whole writes a reply with a body of a known length.
func (c *conn) whole(status int, header, body string) error {
	if !strings.Contains(header, "Content-Type:") {
		header += "Content-Type: application/json\r\n"
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status),
		header, len(body), body)
	return err
}
