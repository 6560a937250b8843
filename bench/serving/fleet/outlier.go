package fleet

import (
	"cmp"
	"math"
	"strings"
	"time"
)

// An Outlier has the rules by which workers that fail requests are ejected. An ejected worker gets no new requests for
// some time. The rules are those of Envoy's outlier detection; their Envoy names stand in brackets. A field of 0 has
// its default; a field below 0 disables its rule.
//
// An ejection ends with a trial. The worker takes one request at a time at first, and more with each success. After
// Consecutive successes it takes its full share again. A failure within the trial ejects the worker again, for twice
// the time. Health probes neither end an ejection nor reset a count.
type Outlier struct {
	Consecutive int           // failures in a row [consecutive_5xx]; default 5
	Share       float64       // share of requests that fail [failure_percentage_threshold], 0 to 1; default 0.3
	BaseTime    time.Duration // length of a first ejection [base_ejection_time]; default 10 s
	MaxTime     time.Duration // longest ejection [max_ejection_time]; default 5 min
	// MaxEjected is the largest share of workers that may be ejected [max_ejection_percent]; default 0.5. The last
	// usable worker is never ejected.
	MaxEjected float64
	// SlowStart is the number of requests in flight on a worker that has not served one since it came up [slow start].
	// The limit holds as long as another worker takes more requests; below 1: no limit. It bounds the number of
	// requests that a worker can fail before it is ejected.
	SlowStart int
	// Hung is the time without an answer to probes after which requests on the worker are cut, if they received
	// nothing in that time either; default 10 s.
	Hung time.Duration
}

const (
	shareWindow   = 15.0             // s: shares count over one to two of these
	shareRequests = 20               // fewest requests to judge a share [failure_percentage_request_volume]
	peerRequests  = 5                // fewest requests of another worker to compare with
	stallAfter    = 10 * time.Second // silence that ejects a worker on which streams wait for their first byte
	stallCut      = time.Minute      // silence after which such streams are cut
)

func (o Outlier) withDefaults() Outlier {
	o.Consecutive = cmp.Or(o.Consecutive, 5)
	o.Share = cmp.Or(o.Share, 0.3)
	o.BaseTime = cmp.Or(o.BaseTime, 10*time.Second)
	o.MaxTime = max(cmp.Or(o.MaxTime, 5*time.Minute), o.BaseTime)
	o.MaxEjected = cmp.Or(o.MaxEjected, 0.5)
	o.Hung = cmp.Or(o.Hung, 10*time.Second)
	if !o.enabled() {
		o.SlowStart = 0
	}
	return o
}

// enabled reports whether workers are ejected at all.
func (o *Outlier) enabled() bool { return o.BaseTime > 0 && o.MaxEjected > 0 }

// span returns the length of the level-th ejection in a row, s.
func (o *Outlier) span(level int) float64 {
	return min(o.BaseTime.Seconds()*math.Exp2(float64(level-1)), o.MaxTime.Seconds())
}

// A Reason is the reason of an ejection.
type Reason string

// Reasons of ejections.
const (
	ConsecutiveFailures Reason = "consecutive_failures" // requests in a row failed
	FailurePercentage   Reason = "failure_percentage"   // too large a share of its requests failed
	FailedTrial         Reason = "failed_trial"         // a request of a trial failed
	Stalled             Reason = "stalled"              // it answers probes, but sends nothing on any stream
)

// Reasons lists all reasons.
var Reasons = []Reason{ConsecutiveFailures, FailurePercentage, FailedTrial, Stalled}

// words returns a reason for people.
func words(r Reason) string { return strings.ReplaceAll(string(r), "_", " ") }

type hostState uint8

const (
	serving hostState = iota
	ejected           // until host.until
	onTrial           // takes 1 + host.passed requests at a time
)

// host is the state of a worker, or of an adapter on a worker, in outlier detection. It is guarded by Fleet.mu. Times
// are seconds of wall time.
type host struct {
	state   hostState
	reason  Reason  // of the latest ejection
	streak  int     // failures in a row
	level   int     // ejections in a row: each lasts twice as long as the one before
	until   float64 // end of the ejection
	back    float64 // when the worker returned to service
	trial   uint32  // number of the latest trial, from 1
	running int     // its requests in flight
	passed  int     // its requests that succeeded

	now, before tally // of this window and the one before
	began       float64
}

// tally counts requests that ended.
type tally struct{ ok, failed int }

// roll starts a new window when the present one is over.
func (h *host) roll(now float64) {
	switch age := now - h.began; {
	case age >= 2*shareWindow:
		h.now, h.before, h.began = tally{}, tally{}, now
	case age >= shareWindow:
		h.now, h.before, h.began = tally{}, h.now, now
	}
}

// recent returns the counts of the two windows together.
func (h *host) recent() (ok, failed int) {
	return h.now.ok + h.before.ok, h.now.failed + h.before.failed
}

// closed reports whether the worker takes no further request.
func (h *host) closed() bool {
	return h.state == ejected || h.state == onTrial && h.running > h.passed
}

// tick starts the trial when the ejection is over.
func (h *host) tick(now float64) {
	if h.state == ejected && now >= h.until {
		h.try()
	}
}

func (h *host) try() { h.state, h.trial, h.running, h.passed = onTrial, h.trial+1, 0, 0 }

// enter books a request. It returns the number of the trial to which the request belongs, or 0. The caller passes this
// number to leave.
func (h *host) enter() uint32 {
	if h.state != onTrial {
		return 0
	}
	h.running++
	return h.trial
}

func (h *host) leave(trial uint32) {
	if h.trying(trial) {
		h.running--
	}
}

// trying reports whether a trial is the present one.
func (h *host) trying(trial uint32) bool { return trial != 0 && trial == h.trial && h.state == onTrial }

// succeed notes a success of a request that belongs to a trial; 0: to none. It reports whether the worker returns to
// full service.
func (h *host) succeed(o *Outlier, now float64, trial uint32) (back bool) {
	h.roll(now)
	h.now.ok++
	h.streak = 0
	if !h.trying(trial) {
		return false
	}
	if h.passed++; h.passed < max(o.Consecutive, 1) {
		return false
	}
	h.state, h.back, h.now, h.before = serving, now, tally{}, tally{}
	return true
}

// eject starts an ejection. Healthy time cancels earlier ejections: each takes as much time as it lasted itself.
func (h *host) eject(o *Outlier, now float64, why Reason) {
	if h.state == serving {
		for healthy := now - h.back; h.level > 0 && healthy >= o.span(h.level); h.level-- {
			healthy -= o.span(h.level)
		}
	}
	h.level++
	h.state, h.reason, h.until, h.streak = ejected, why, now+o.span(h.level), 0
}

// fail notes a failure and returns the reason for an ejection, or "". The iterator peers yields the hosts of other
// usable workers; nil: nothing is known of a worker.
func (h *host) fail(o *Outlier, now float64, trial uint32, peers func(yield func(*host) bool)) Reason {
	h.roll(now)
	h.now.failed++
	h.streak++
	switch {
	case h.trying(trial):
		return FailedTrial
	case h.state != serving: // it was sent before
		return ""
	}
	inRow := o.Consecutive > 0 && h.streak >= o.Consecutive
	ok, failed := h.recent()
	n := ok + failed
	share := o.Share > 0 && n >= shareRequests && float64(failed) >= o.Share*float64(n)
	if !inRow && !share {
		return ""
	}
	// Requests that fail everywhere, as those of a client that sends what no worker can serve, make no worker
	// an outlier: there must be one that does better, if there is one to compare with.
	better, known := false, false
	for p := range peers {
		if p == nil {
			continue
		}
		p.roll(now)
		pok, pfailed := p.recent()
		m := pok + pfailed
		if m < peerRequests {
			continue
		}
		known = true
		// twice the failures, or half the successes
		better = better || failed*m >= 2*pfailed*n || 2*ok*m <= pok*n
	}
	switch {
	case inRow && (better || !known):
		return ConsecutiveFailures
	case share && better:
		return FailurePercentage
	}
	return ""
}
