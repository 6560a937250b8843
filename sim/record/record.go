// Package record holds what became of one request. The simulator, the live
// client and the importer all speak it; bench/result derives every metric from
// it.
package record

import (
	"fmt"
	"slices"

	"lorasim/sim/tick"
)

// Status is how a request ended. Every request ends in exactly one.
type Status uint8

// The ways a request can end.
const (
	OK         Status = iota // all its tokens arrived
	Failed                   // accepted, then broke
	Rejected                 // refused by the worker or the router
	Aborted                  // given up by the client
	Unfinished               // still under way when the run's window ended
	NumStatus
)

var statusNames = [NumStatus]string{"ok", "failed", "rejected", "aborted", "unfinished"}

func (s Status) String() string {
	if s < NumStatus {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// ParseStatus is the inverse of Status.String.
func ParseStatus(s string) (Status, error) {
	if i := slices.Index(statusNames[:], s); i >= 0 {
		return Status(i), nil
	}
	return 0, fmt.Errorf("unknown status %q: expected ok, failed, rejected, aborted or unfinished", s)
}

// Streaming says whether a client read replies as they came. One that did not
// saw all tokens of a reply at its end, so that TTFT is E2E.
type Streaming string

// The kinds of clients.
const (
	StreamingUnknown Streaming = ""
	Streamed         Streaming = "yes"
	NotStreamed      Streaming = "no"
)

// StreamingIf is Streamed if streamed holds, else NotStreamed.
func StreamingIf(streamed bool) Streaming {
	if streamed {
		return Streamed
	}
	return NotStreamed
}

// ParseStreaming reads what a file says; all but yes and no is
// StreamingUnknown.
func ParseStreaming(s string) Streaming {
	if k := Streaming(s); k == Streamed || k == NotStreamed {
		return k
	}
	return StreamingUnknown
}

// Request is the fate of one request. Times are seconds since the start of the
// run and obey Arrival <= Sent <= FirstToken <= Finish where Status is OK; a
// time that never came is NaN.
type Request struct {
	ID         int64
	Adapter    int32   // index into the workload's adapters; -1: base model
	Rank       int32   // LoRA rank of the adapter; 0: base model or unknown
	Arrival    float64 // scheduled by the workload
	Sent       float64 // left the client
	FirstToken float64 // first token seen by the client; simulated: of successful and unfinished requests alone
	Finish     float64 // last token, or failure, seen by the client

	Prompt    int32 // tokens
	Output    int32 // tokens received
	Requested int32 // max_new_tokens asked for
	Cached    int32 // of the prompt, found in a prefix cache

	WorkerFirst int32 // -1: never reached a worker
	WorkerLast  int32
	Migrations  int32
	ColdLoad    float64 // s spent waiting for adapter weights
	Status      Status
	Error       string // why Status is not OK
	Streamed    Streaming

	// Gaps are the times between consecutive tokens (s), where recorded.
	Gaps []float64
}

// ClientQueue is the time a request waited in the client before it was sent, s.
func (r *Request) ClientQueue() float64 { return r.Sent - r.Arrival }

// E2E is the latency from sending to the last token, s.
func (r *Request) E2E() float64 { return r.Finish - r.Sent }

// TTFT is the latency from sending to the first token, s.
func (r *Request) TTFT() float64 { return r.FirstToken - r.Sent }

// Ticks converts a time of a request in seconds; one that never came counts as 0.
func Ticks(s float64) tick.Ticks {
	if !(s > 0) {
		return 0
	}
	return tick.FromSeconds(min(s, tick.Max.Seconds()))
}

// Steps is a run of consecutive decode steps of one worker, each giving one
// token to every request of a batch. Step i of Count (from 0) lasts
// First + i*Incr and its tokens appear at its end.
type Steps struct {
	Start tick.Ticks // when step 0 begins
	First tick.Ticks // length of step 0
	Incr  tick.Ticks // growth of the length from one step to the next
	Count int64      // number of steps
	Batch int64      // requests in the batch, so tokens per step
}

// End returns when the first n steps of the run are over.
func (s Steps) End(n int64) tick.Ticks {
	return s.Start + s.First*tick.Ticks(n) + s.Incr*tick.Ticks(n*(n-1)/2)
}

// Until is the smallest number of steps, at least 1 and at most all, that end at t
// or later.
func (s Steps) Until(t tick.Ticks) int64 {
	d, last := t-s.Start, s.First+s.Incr*tick.Ticks(s.Count-1)
	if s.Count == 1 || d <= s.First {
		return 1
	}
	// no step is longer than the longest, none shorter than the shortest: where
	// they hardly differ that leaves nothing to search
	longest, shortest := max(s.First, last), max(min(s.First, last), 1)
	least, most := min(int64((d-1)/longest)+1, s.Count), min(int64((d-1)/shortest)+1, s.Count)
	for least < most {
		if k := (least + most) / 2; s.End(k) < t {
			least = k + 1
		} else {
			most = k
		}
	}
	return least
}

// Observer watches a run. The simulator calls it from one goroutine, in the
// order of simulated time for token events.
type Observer interface {
	// Done reports a request's end, once for each. The record is only valid
	// during the call.
	Done(r *Request)
	// Tokens reports n first (or first after a re-prefill) tokens seen at time at.
	Tokens(at tick.Ticks, n int64)
	// Steps reports a run of decode steps. All their tokens count; the gap
	// before each token is the length of its step, except for step 0, whose
	// gaps are reported through Gap because they may span other work.
	Steps(s Steps)
	// Gap reports n inter-token gaps of length d.
	Gap(d tick.Ticks, n int64)
}

// Ends is an observer that wants to know how requests end, and nothing else.
type Ends func(*Request)

// Done implements Observer.
func (f Ends) Done(r *Request) { f(r) }

// Tokens implements Observer.
func (Ends) Tokens(tick.Ticks, int64) {}

// Steps implements Observer.
func (Ends) Steps(Steps) {}

// Gap implements Observer.
func (Ends) Gap(tick.Ticks, int64) {}
