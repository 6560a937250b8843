package result

import (
	"fmt"

	"lorasim/internal/format"
	"lorasim/sim/record"
)

// Endings counts the requests of a run by how they ended.
type Endings struct {
	Requests int64 `json:"requests"` // all, however they ended
	Failed   int64 `json:"failed"`
	Rejected int64 `json:"rejected"`
	Aborted  int64 `json:"aborted"`
	// Unfinished counts requests cut off at the end of the run's window.
	Unfinished int64 `json:"unfinished,omitempty"`
	// Unsent counts requests of the workload that were never sent because the run was
	// stopped. Requests does not include them.
	Unsent int64 `json:"unsent,omitempty"`
	// Reasons lists why requests did not succeed, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	// CompletedSet is a fingerprint of the requests that succeeded. Two runs of one
	// workload with the same fingerprint completed the same requests. 0 means unknown, or
	// that no request succeeded.
	CompletedSet int64 `json:"completed_set,omitempty"`
}

// A Reason is one reason why requests did not succeed.
type Reason struct {
	Status string `json:"status"` // text of a record.Status
	Reason string `json:"reason"`
	Count  int64  `json:"count"` // number of requests
}

// Of returns a pointer to the count of a status other than record.OK. For record.OK it
// points to a new 0.
func (e *Endings) Of(s record.Status) *int64 {
	switch s {
	case record.Failed:
		return &e.Failed
	case record.Rejected:
		return &e.Rejected
	case record.Aborted:
		return &e.Aborted
	case record.Unfinished:
		return &e.Unfinished
	}
	return new(int64)
}

// Endings returns the counts of how the requests of the run ended; nil if unknown.
func (r *Result) Endings() *Endings {
	if r.Extra != nil {
		return &r.Extra.Endings
	}
	return r.Ended
}

// Unsuccessful returns the number of requests that were sent and did not succeed.
func (e *Endings) Unsuccessful() int64 { return e.Failed + e.Rejected + e.Aborted + e.Unfinished }

// shownReasons is how many reasons the lines below a block give.
const shownReasons = 5

// Shortfall returns lines on the requests that did not succeed, with the reasons, such as
// "1241 of 8819 rejected: prompt over the context length 4096". It returns nil if all
// succeeded, or if that is unknown.
func (r *Result) Shortfall() []string {
	e := r.Endings()
	if e == nil || e.Unsuccessful()+e.Unsent == 0 {
		return nil
	}
	var lines []string
	rest := e.Unsuccessful()
	line := func(n int64, status, reason string) {
		lines = append(lines, fmt.Sprintf("%d of %d %s: %s", n, e.Requests, status, reason))
		rest -= n
	}
	for _, q := range e.Reasons[:min(len(e.Reasons), shownReasons)] {
		line(q.Count, q.Status, format.Clip(q.Reason, maxReasonLen))
	}
	if len(lines) == 0 {
		for status := record.Failed; status < record.NumStatus; status++ {
			if n := *e.Of(status); n > 0 {
				line(n, status.String(), "no reason known")
			}
		}
	} else if rest > 0 {
		line(rest, "not completed", "other reasons")
	}
	if e.Unsent > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d not sent: the run was stopped", e.Unsent, e.Requests+e.Unsent))
	}
	return lines
}

// NoSuccess returns an error if requests were sent and none succeeded.
func (r *Result) NoSuccess() error {
	e := r.Endings()
	if n, _ := r.Metrics.Get(Completed); e == nil || n > 0 || e.Requests == 0 {
		return nil
	}
	why := ""
	if lines := r.Shortfall(); len(lines) > 0 {
		why = ": " + lines[0]
	}
	return fmt.Errorf("no request succeeded%s", why)
}

// setBits is the width of a fingerprint in bits. A float64, as in tables of numbers, holds
// it exactly.
const setBits = 52

// completedSet adds a request to a fingerprint: the sum of the ids, each mixed as in
// SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014). The order does not matter.
func completedSet(sum int64, r *record.Request) int64 {
	z := uint64(r.ID) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((uint64(sum) + (z ^ z>>31)) & (1<<setBits - 1))
}

// InferStreaming sets Streamed, if it is unknown, from the run's configuration or metrics.
// Only streaming clients see gaps between tokens. A run with more output tokens than
// replies and no gap did not stream.
func (r *Result) InferStreaming() {
	if disabled, ok := r.Config["disable_stream"].(bool); ok && r.Streamed == record.StreamingUnknown {
		r.Streamed = record.StreamingIf(!disabled)
	}
	mean, ok := r.Metrics.Get(MeanITL)
	if !ok || r.Streamed != record.StreamingUnknown {
		return
	}
	p99, ok := r.Metrics.Get(P99ITL)
	tokens, _ := r.Metrics.Get(TotalOutputTokens)
	completed, _ := r.Metrics.Get(Completed)
	switch {
	case mean > 0:
		r.Streamed = record.Streamed
	case ok && p99 == 0 && tokens > completed && completed > 0:
		r.Streamed = record.NotStreamed
	}
}
