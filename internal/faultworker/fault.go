package faultworker

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"time"
)

// Fault is something that a worker does wrong.
type Fault string

// The faults. Those that say "executed" count the request as executed; "tokens" are Rule.Tokens.
const (
	None        Fault = ""
	Cut         Fault = "cut"          // executed; closes the connection (FIN) after so many tokens
	Reset       Fault = "reset"        // executed; resets the connection (RST) after so many tokens
	ResetFirst  Fault = "reset-first"  // resets the connection before a reply; not executed
	Drop        Fault = "drop"         // executed; closes the connection without a reply
	Hang        Fault = "hang"         // reads the request, never answers; not executed
	Stall       Fault = "stall"        // executed; sends the head and so many tokens, then nothing more
	Trickle     Fault = "trickle"      // executed; sends one byte of the reply every Rule.After
	Garbage     Fault = "garbage"      // executed; a reply of status 200 whose body is not JSON
	NotHTTP     Fault = "not-http"     // executed; bytes that are no HTTP
	Counts      Fault = "counts"       // executed; each event after so many tokens states that there are Rule.Number
	Second      Fault = "second"       // executed; a second reply, to nobody, Rule.After the first
	Answer      Fault = "answer"       // Rule.Status, Rule.Header and Rule.Text instead of a reply; not executed
	Endless     Fault = "endless"      // a body of Rule.Text that is repeated for ever; not executed
	EndlessHead Fault = "endless-head" // a head without end; not executed
	Endless1xx  Fault = "endless-1xx"  // provisional replies without end; not executed
	TooShort    Fault = "too-short"    // executed; Content-Length promises more than comes before the connection closes
	TooLong     Fault = "too-long"     // executed; more comes than Content-Length says
	Redirect    Fault = "redirect"     // 307 to the URL Rule.Text; not executed
	Crash       Fault = "crash"        // executed; then the worker dies
	Slow        Fault = "slow"         // answers Rule.After later
)

// Faults lists all faults.
var Faults = []Fault{Cut, Reset, ResetFirst, Drop, Hang, Stall, Trickle, Garbage, NotHTTP, Counts, Second, Answer,
	Endless, EndlessHead,
	Endless1xx, TooShort, TooLong, Redirect, Crash, Slow}

// Kind is a kind of request.
type Kind string

// The kinds of requests.
const (
	Any      Kind = ""
	Generate Kind = "generate" // generate, completions, chat completions
	Health   Kind = "health"
	Info     Kind = "info"    // server_info, version
	Models   Kind = "models"  // v1/models
	Metrics  Kind = "metrics" // the load signal: vLLM's /metrics, sglang's /v1/loads
	Load     Kind = "load"    // of an adapter
	Unload   Kind = "unload"  // of an adapter
	Other    Kind = "other"
)

// Rule says which requests a worker gets wrong, and how. The first rule of a worker that applies counts.
type Rule struct {
	On    Kind    `json:"on"`
	Share float64 `json:"share"` // of the requests of that kind, spread evenly; 0: all
	Mark  string  `json:"mark"`  // only requests whose body has it; "": all

	Do     Fault         `json:"do"`
	Tokens int           `json:"tokens"` // that are sent first
	After  time.Duration `json:"after"`
	Number int64         `json:"number"` // of Counts
	Status int           `json:"status"` // of Answer; 0: 200
	Header string        `json:"header"` // of Answer: lines that end with \r\n
	Text   string        `json:"text"`   // of Answer, Endless, Redirect and Garbage

	seen int // requests of its kind and mark
}

// applies says whether a rule applies to the next request of a kind; called with Worker.mu held.
func (r *Rule) applies(q *request) bool {
	if r.On != Any && r.On != q.kind || !bytes.Contains(q.body, []byte(r.Mark)) {
		return false
	}
	share := r.Share
	if share <= 0 {
		share = 1
	}
	r.seen++
	return int(float64(r.seen)*share+1e-9) > int(float64(r.seen-1)*share+1e-9)
}

func (r *Rule) check() error {
	if r.Do != None && !slices.Contains(Faults, r.Do) {
		return fmt.Errorf("unknown fault %q, expected one of %v", r.Do, Faults)
	}
	if r.Share < 0 || r.Share > 1 {
		return fmt.Errorf("share is %v, expected 0 to 1", r.Share)
	}
	return nil
}

// GzipBomb returns zeros that gzip has compressed, size bytes of them.
func GzipBomb(size int64) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.CopyN(z, zeros{}, size) // into memory
	z.Close()
	return b.String()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
