package router

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Admission refuses requests before a policy is asked where to send them: those of
// an adapter that sends more than its rate, and those that would wait too long, or
// in too long a queue, on every worker.
type Admission struct {
	wait  float64 // s to the first token, as predicted; 0: no limit
	queue int     // waiting requests; 0: no limit
	rate  float64 // requests/s of each adapter; 0: no limit
	burst float64

	workers []Spec
	buckets []bucket // by adapter; last: the base model
}

// bucket holds the requests that an adapter may send at once: burst of them at
// first and at most, rate more in every second.
type bucket struct{ spent, at float64 }

// NewAdmission reads what sheds load, "ttft:MS" and "queue:N", joined by +, and the
// rate of each adapter, "R" or "R,burst=B"; nil where both are empty.
func NewAdmission(shed, rate string, env Env) (*Admission, error) {
	if shed == "" && rate == "" {
		return nil, nil
	}
	a := &Admission{workers: env.Workers, buckets: make([]bucket, len(env.Adapters)+1)}
	if err := a.parseShed(shed); err != nil {
		return nil, err
	}
	if err := a.parseRate(rate); err != nil {
		return nil, err
	}
	if a.wait > 0 {
		if err := env.needCosts(); err != nil {
			return nil, fmt.Errorf("shed ttft %w", err)
		}
	}
	return a, nil
}

// CheckShed and CheckRate say what is wrong with the texts.
func CheckShed(text string) error { return new(Admission).parseShed(text) }

func CheckRate(text string) error { return new(Admission).parseRate(text) }

func (a *Admission) parseShed(text string) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, "+") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		x, err := strconv.ParseFloat(value, 64)
		switch {
		case name == "ttft" && a.wait > 0 || name == "queue" && a.queue > 0:
			return fmt.Errorf("%s is given twice", name)
		case name == "ttft" && err == nil && x > 0 && !math.IsInf(x, 0):
			a.wait = x / 1000
		case name == "queue" && err == nil && x >= 1 && x <= math.MaxInt32 && x == math.Trunc(x):
			a.queue = int(x)
		default:
			return fmt.Errorf("%q, expected ttft:MS with MS > 0, queue:N with a whole N >= 1, or both joined by +", part)
		}
	}
	return nil
}

func (a *Admission) parseRate(text string) error {
	if text == "" {
		return nil
	}
	rate, burst, given := strings.Cut(text, ",")
	r, err := strconv.ParseFloat(strings.TrimSpace(rate), 64)
	b := max(r, 1)
	if given && err == nil {
		value, ok := strings.CutPrefix(strings.TrimSpace(burst), "burst=")
		if b, err = strconv.ParseFloat(value, 64); !ok {
			b = 0
		}
	}
	if err != nil || !(r > 0) || !(b >= 1) || math.IsInf(r, 0) || math.IsInf(b, 0) {
		return fmt.Errorf("%q, expected R or R,burst=B with R > 0 requests/s and B >= 1 requests", text)
	}
	a.rate, a.burst = r, b
	return nil
}

// Refuse says why a request is not taken, "" if it is, and in how many seconds it
// may be worth another try.
func (a *Admission) Refuse(r Request, v *View) (reason string, after float64) {
	if a == nil {
		return "", 0
	}
	k := len(a.buckets) - 1
	if isAdapter(r.Adapter) {
		k = min(int(r.Adapter), k)
	}
	b := bucket{max(0, a.buckets[k].spent-a.rate*(v.Now-a.buckets[k].at)), v.Now}
	if a.rate > 0 && b.spent+1 > a.burst+1e-9 { // who comes at the very rate is not refused for a rounding
		return "over the rate limit of its adapter", (b.spent + 1 - a.burst) / a.rate
	}
	if reason, after = a.shed(r, v); reason == "" {
		b.spent++
		a.buckets[k] = b
	}
	return reason, after
}

// shed says why no worker should have the request, "" if one should.
func (a *Admission) shed(r Request, v *View) (reason string, after float64) {
	if a.wait == 0 && a.queue == 0 {
		return "", 0
	}
	least, queue := math.Inf(1), math.MaxInt
	for j, w := range v.usable() {
		queue = min(queue, w.Queued)
		if a.wait > 0 {
			least = min(least, a.workers[j].firstToken(r, w, v))
		}
	}
	switch {
	case queue == math.MaxInt: // no worker is usable, which is not for us to say
	case a.queue > 0 && queue >= a.queue:
		return "shed: the queues of all workers are too long", 1
	case a.wait > 0 && least > a.wait:
		return "shed: its first token would come too late on every worker", least - a.wait
	}
	return "", 0
}

// firstToken is when a worker gives a request its first token, s from now, as far as
// the router can tell: after its adapter's load, the prompts that wait, its own, and a
// decode step that is under way. Where its requests have not all seats or memory, those in
// excess wait for others to end; all of these do once in the time that a request runs.
func (s *Spec) firstToken(r Request, w *Worker, v *View) float64 {
	kv := max(min(w.Tokens, w.KVCapacity), 0)
	step := s.Cost.DecodeStep(max(min(w.Running+1, w.MaxRunning), 1), kv, w.MaxRank)
	t := s.Cost.Prefill(w.QueuedToks + int64(r.Prompt))
	if w.Running > 0 {
		t += step
	}
	if st := w.adapter(r.Adapter); isAdapter(r.Adapter) && st.Tier < GPU && st.Running+st.Queued == 0 {
		t += s.Cost.AdapterLoad(v.Adapters[r.Adapter].Rank, st.Tier)
	}
	excess := 0.0
	if w.MaxRunning > 0 {
		excess = float64(w.Load()+1-w.MaxRunning) / float64(w.MaxRunning)
	}
	if w.KVCapacity > 0 {
		excess = max(excess, float64(w.Tokens+int64(r.Prompt)+int64(r.Expected)-w.KVCapacity)/float64(w.KVCapacity))
	}
	return t + max(excess, 0)*step*float64(max(r.Expected, 1))
}
