package faultworker

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// A Fault is a way in which a worker misbehaves.
type Fault string

// The faults. Those marked "executed" count the request as executed. "Tokens" means Rule.Tokens.
const (
	None        Fault = ""
	Cut         Fault = "cut"          // executed; closes the connection (FIN) after Tokens
	Reset       Fault = "reset"        // executed; resets the connection (RST) after Tokens
	ResetFirst  Fault = "reset-first"  // resets the connection before a reply; not executed
	Drop        Fault = "drop"         // executed; closes the connection without a reply
	Hang        Fault = "hang"         // reads the request, never answers; not executed
	Stall       Fault = "stall"        // executed; sends the head and Tokens, then nothing more
	Trickle     Fault = "trickle"      // executed; sends one byte of the reply every Rule.After
	Garbage     Fault = "garbage"      // executed; a reply of status 200 whose body is not JSON
	NotHTTP     Fault = "not-http"     // executed; bytes that are not HTTP
	Counts      Fault = "counts"       // executed; each event after Tokens states a count of Rule.Number tokens
	Second      Fault = "second"       // executed; sends a second, unrequested reply Rule.After the first
	Answer      Fault = "answer"       // Rule.Status, Rule.Header and Rule.Text instead of a reply; not executed
	Endless     Fault = "endless"      // a body that repeats Rule.Text without end; not executed
	EndlessHead Fault = "endless-head" // a head without end; not executed
	Endless1xx  Fault = "endless-1xx"  // provisional replies without end; not executed
	TooShort    Fault = "too-short"    // executed; closes the connection before Content-Length bytes are sent
	TooLong     Fault = "too-long"     // executed; sends more than Content-Length bytes
	Redirect    Fault = "redirect"     // 307 to the URL Rule.Text; not executed
	Crash       Fault = "crash"        // executed; then the worker stops, as by Stop
	Slow        Fault = "slow"         // delays the reply by Rule.After
)

// faults lists all faults.
var faults = []Fault{Cut, Reset, ResetFirst, Drop, Hang, Stall, Trickle, Garbage, NotHTTP, Counts, Second, Answer,
	Endless, EndlessHead,
	Endless1xx, TooShort, TooLong, Redirect, Crash, Slow}

// Kind is a kind of request.
type Kind string

// The kinds of requests.
const (
	Any      Kind = ""
	Generate Kind = "generate" // generate, completions, chat completions: requests that execute
	Health   Kind = "health"
	Info     Kind = "info"    // server_info, version
	Models   Kind = "models"  // v1/models
	Metrics  Kind = "metrics" // the load signal: vLLM's /metrics, sglang's /v1/loads
	Load     Kind = "load"    // load an adapter
	Unload   Kind = "unload"  // unload an adapter
	Other    Kind = "other"
)

// A Rule selects requests and the fault of their replies. A worker applies its first rule that matches.
type Rule struct {
	On    Kind    `json:"on"`
	Share float64 `json:"share"` // share of the matching requests that fail, spread evenly; 0: all
	Mark  string  `json:"mark"`  // only requests whose body contains Mark; "": all

	Do     Fault         `json:"do"`
	Tokens int           `json:"tokens"` // tokens that are sent before the fault
	After  time.Duration `json:"after"`
	Number int64         `json:"number"` // token count that Counts reports
	Status int           `json:"status"` // HTTP status of Answer; 0: 200
	Header string        `json:"header"` // header lines of Answer, each ending with \r\n
	Text   string        `json:"text"`   // body of Answer, Endless and Garbage; URL of Redirect

	seen int // requests of its kind and mark
}

// applies reports whether a rule applies to the next request of a kind. The caller holds Worker.mu.
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
	if r.Do != None && !slices.Contains(faults, r.Do) {
		return fmt.Errorf("unknown fault %q, expected one of %v", r.Do, faults)
	}
	if r.Share < 0 || r.Share > 1 {
		return fmt.Errorf("share is %v, expected 0 to 1", r.Share)
	}
	return nil
}
