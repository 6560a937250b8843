// Package record describes the outcome of single requests. The simulator, the live client and the importer write a
// [Request] for each request; package bench/result computes every metric from them. An [Observer] also sees the tokens
// of a simulated run. [Counters] count what a worker did.
package record

import (
	"fmt"
	"slices"

	"lorasim/sim/tick"
)

// Status is how a request ended. Every request has exactly one status.
type Status uint8

// The statuses of an ended request.
const (
	OK         Status = iota // all tokens arrived
	Failed                   // accepted, then an error
	Rejected                 // refused by the worker or the router
	Aborted                  // cancelled by the client
	Unfinished               // in flight at the end of the run's window
	NumStatus                // number of statuses
)

var statusNames = [NumStatus]string{"ok", "failed", "rejected", "aborted", "unfinished"}

// String returns the name of a status: ok, failed, rejected, aborted or unfinished.
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

// Streaming says whether a client received tokens as they came. A client without streaming receives all tokens at the
// end of the reply, so its TTFT equals its E2E.
type Streaming string

// The values of Streaming.
const (
	StreamingUnknown Streaming = ""
	Streamed         Streaming = "yes"
	NotStreamed      Streaming = "no"
)

// StreamingIf returns Streamed or NotStreamed.
func StreamingIf(streamed bool) Streaming {
	if streamed {
		return Streamed
	}
	return NotStreamed
}

// ParseStreaming parses "yes" and "no". Any other text is StreamingUnknown.
func ParseStreaming(s string) Streaming {
	if k := Streaming(s); k == Streamed || k == NotStreamed {
		return k
	}
	return StreamingUnknown
}

// Request is the record of one request. Times are seconds since the start of the run. If Status is OK, then Arrival <=
// Sent <= FirstToken <= Finish. The time of an event that did not happen is NaN.
type Request struct {
	ID         int64
	Adapter    int32   // index into the workload's adapters; -1: base model
	Rank       int32   // LoRA rank of the adapter; 0: base model or unknown
	Arrival    float64 // arrival in the workload
	Sent       float64 // sent by the client
	FirstToken float64 // first token seen by the client; if simulated, NaN unless the request is OK or Unfinished
	Finish     float64 // last token, or failure, seen by the client

	Prompt    int32 // tokens
	Output    int32 // tokens received
	Requested int32 // requested max_new_tokens
	Cached    int32 // prompt tokens found in a prefix cache

	WorkerFirst int32   // first worker; -1: none
	WorkerLast  int32   // last worker
	Migrations  int32   // moves to another worker
	ColdLoad    float64 // time spent waiting for adapter weights, s
	Status      Status
	Error       string    // reason, if Status is not OK
	Streamed    Streaming // whether the client received tokens as they came

	// The version of the adapter that served the request; 0: the adapter had no new versions during the run. Behind is
	// the number of newer versions when the request came, VersionAge the time since the version's publication at
	// admission, and VersionWait the time that the request waited for it, s.
	Version, Behind         int32
	VersionAge, VersionWait float64

	// Gaps are the times between consecutive tokens, s; nil: not recorded.
	Gaps []float64
}

// ClientQueue returns the time that a request waited in the client before it was sent, s.
func (r *Request) ClientQueue() float64 { return r.Sent - r.Arrival }

// E2E returns the latency from sending to the last token, s.
func (r *Request) E2E() float64 { return r.Finish - r.Sent }

// TTFT returns the latency from sending to the first token, s.
func (r *Request) TTFT() float64 { return r.FirstToken - r.Sent }

// Ticks converts a time of a [Request] from seconds to ticks. NaN and negative times become 0; times above tick.Max
// become tick.Max.
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
	Start tick.Ticks // start of step 0
	First tick.Ticks // length of step 0
	Incr  tick.Ticks // growth of the length from one step to the next
	Count int64      // number of steps
	Batch int64      // requests in the batch, so tokens per step
}

// End returns when the first n steps of the run are over.
func (s Steps) End(n int64) tick.Ticks {
	return s.Start + s.First*tick.Ticks(n) + s.Incr*tick.Ticks(n*(n-1)/2)
}

// Until returns the smallest number of steps that end at t or later, between 1 and Count.
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

// Observer receives the ends of requests and the tokens of a run, for metrics. It is apart from the [Stream] of events:
// tokens come in runs of steps, and an event for each would cost more than the step. The simulator calls an Observer
// from one goroutine. Tokens come in the order of simulated time.
type Observer interface {
	// Done reports the end of a request, once for each request. The record is valid only during the call.
	Done(r *Request)
	// Tokens reports n first tokens, seen at time at. The first token after a repeated prefill counts, too.
	Tokens(at tick.Ticks, n int64)
	// Steps reports a run of decode steps. All their tokens count. The gap before a token is the length of its step,
	// except for step 0: its gaps are reported through Gap, because they may include other work.
	Steps(s Steps)
	// Gap reports n inter-token gaps of length d.
	Gap(d tick.Ticks, n int64)
}

// Ends is an [Observer] that observes only the ends of requests.
type Ends func(*Request)

// Done implements Observer.
func (f Ends) Done(r *Request) { f(r) }

// Tokens implements Observer.
func (Ends) Tokens(tick.Ticks, int64) {}

// Steps implements Observer.
func (Ends) Steps(Steps) {}

// Gap implements Observer.
func (Ends) Gap(tick.Ticks, int64) {}
