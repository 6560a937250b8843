package result

import (
	"fmt"

	"lorasim/internal/format"
	"lorasim/sim/record"
)

// Endings says how the requests of a run ended.
type Endings struct {
	Requests int64 `json:"requests"` // all, however they ended
	Failed   int64 `json:"failed"`
	Rejected int64 `json:"rejected"`
	Aborted  int64 `json:"aborted"`
	// Unfinished counts requests cut off at the end of the run's window.
	Unfinished int64 `json:"unfinished,omitempty"`
	// Unsent counts requests of the workload that a run that was stopped never
	// sent; they are not among Requests.
	Unsent int64 `json:"unsent,omitempty"`
	// Reasons lists why requests did not succeed, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	// CompletedSet is a fingerprint of the set of requests that succeeded: two
	// runs of one workload with the same fingerprint completed the same
	// requests. 0: not known, or none did.
	CompletedSet int64 `json:"completed_set,omitempty"`
}

// Reason is one reason why requests did not succeed.
type Reason struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Of is the number of requests that ended in a way other than record.OK.
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

// Endings returns how the requests of the run ended; nil where that is not
// known.
func (r *Result) Endings() *Endings {
	if r.Extra != nil {
		return &r.Extra.Endings
	}
	return r.Ended
}

// Unsuccessful is the number of requests that did not succeed.
func (e *Endings) Unsuccessful() int64 { return e.Failed + e.Rejected + e.Aborted + e.Unfinished }

// shownReasons is how many reasons the lines below a block give.
const shownReasons = 5

// Shortfall says in lines such as "1241 of 8819 rejected: prompt over the
// context length 4096" which requests did not succeed, and why; none where all
// did, or where that is not known.
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

// NoSuccess is an error where requests were sent and not one succeeded.
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

// setBits is the width of a fingerprint: a float64 holds it exactly, as tables
// of numbers have it.
const setBits = 52

// completedSet adds a request to a fingerprint, in any order: the sum of the
// ids, each mixed as in SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
func completedSet(sum int64, r *record.Request) int64 {
	z := uint64(r.ID) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((uint64(sum) + (z ^ z>>31)) & (1<<setBits - 1))
}

// InferStreaming tells from a run's numbers whether its client streamed, where
// nothing says so: gaps between tokens are seen by those alone that do. A run
// that generated more tokens than replies and saw no gap did not stream.
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
