// Package admission rejects requests before a policy routes them: requests of an adapter above its rate limit, and
// requests that would wait too long, or in too long a queue, on every worker.
package admission

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"lorasim/router"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// admission implements router.Admission.
type admission struct {
	shed Shedding
	rate RateLimit

	ttft    Predictor     // nil: shed has no TTFT
	policy  router.Policy // of the router that it is for
	buckets []bucket      // by adapter; last: the base model
}

// Predictor predicts the time to first token of requests. Package router/planroute has one.
type Predictor interface {
	// Sent notes that a request is sent to a worker, before the view counts it there; Finished notes its end.
	Sent(r router.Request, worker int, v *router.View)
	Finished(e router.Event)
	// Look notes the state of the workers, before Predict.
	Look(v *router.View)
	// Predict returns the time to first token of a request on a worker, s.
	Predict(r router.Request, worker int, v *router.View) float64
}

// bucket holds the requests that an adapter may send at once: burst of them at
// first and at most, rate more in every second.
type bucket struct{ spent, at float64 }

// Add gives a router an admission. It returns an error if shed has a limit of the time to first token and env has no
// step times. Without any limit, all requests are admitted. predict makes the predictor for that limit; nil: there is
// none.
func Add(rt *router.Router, shed Shedding, rate RateLimit, env router.Env,
	predict func(router.Env) Predictor) error {
	if shed == (Shedding{}) && rate == (RateLimit{}) {
		return nil
	}
	a, err := newAdmission(shed, rate, env, predict)
	if err != nil {
		return err
	}
	rt.Admission = a
	if a.ttft == nil {
		return nil
	}
	a.policy = rt.Policy
	if !rt.ReadsKV {
		rt.ReadsKV, rt.ReadsFewKV = true, true
	}
	return nil
}

func newAdmission(shed Shedding, rate RateLimit, env router.Env,
	predict func(router.Env) Predictor) (*admission, error) {
	a := &admission{shed: shed, rate: rate, buckets: make([]bucket, len(env.Adapters)+1)}
	if shed.TTFT > 0 {
		if err := env.NeedCosts(); err != nil {
			return nil, fmt.Errorf("shed ttft %w", err)
		}
		if predict == nil {
			return nil, errors.New("shed ttft needs a predictor of times to first token")
		}
		a.ttft = predict(env)
	}
	return a, nil
}

// Shedding says when load is shed: when every worker is beyond one of the limits. The zero value sheds nothing.
type Shedding struct {
	TTFT  float64 // s to the first token, as predicted; 0: no limit
	Queue int     // waiting requests; 0: no limit
}

// ParseShedding parses "ttft:MS", "queue:N", or both joined by +.
func ParseShedding(text string) (s Shedding, err error) {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, "+") {
		rule, err := settings.Parse("shed", shedKinds(), part)
		if err != nil {
			return Shedding{}, err
		}
		if seen[rule.Name] {
			return Shedding{}, fmt.Errorf("%s is given twice", rule.Name)
		}
		seen[rule.Name] = true
		rule.Value.set(&s)
	}
	return s, nil
}

// RateLimit is the rate limit of each adapter: a token bucket. The zero value limits nothing.
type RateLimit struct {
	Rate  float64 `arg:"1" required:"yes" check:">0" unit:"req/s" help:"requests/s of each adapter"`
	Burst float64 `check:">=1" unit:"requests" help:"size of the token bucket; default: the rate, at least 1"`
}

// ParseRateLimit parses "R" or "R,burst=B".
func ParseRateLimit(text string) (l RateLimit, err error) {
	if _, err := settings.Decode(text, &l); err != nil {
		return RateLimit{}, err
	}
	l.Burst = cmp.Or(l.Burst, max(l.Rate, 1))
	return l, nil
}

// shedding is one rule that sheds load.
type shedding interface{ set(s *Shedding) }

type shedTTFT struct {
	MS float64 `arg:"1" required:"yes" check:">=0.001" unit:"ms" help:"longest predicted time to first token"`
}

func (o *shedTTFT) set(s *Shedding) { s.TTFT = o.MS / 1000 }

type shedQueue struct {
	N int32 `arg:"1" required:"yes" check:">=1" unit:"requests" help:"waiting requests on a worker from which it counts as full"`
}

func (o *shedQueue) set(s *Shedding) { s.Queue = int(o.N) }

func shedKinds() []settings.Kind[shedding] {
	return []settings.Kind[shedding]{
		{Name: "ttft", Summary: "the predicted TTFT exceeds the limit on every worker",
			New: func() shedding { return &shedTTFT{} }},
		{Name: "queue", Summary: "every worker has this number of waiting requests",
			New: func() shedding { return &shedQueue{} }},
	}
}

// ShedForms returns the forms of one part of what sheds load.
func ShedForms() []settings.Form { return settings.Forms(shedKinds()) }

// RateForms returns the form of a rate limit.
func RateForms() []settings.Form { return settings.FormOf[RateLimit]() }

// Refuse implements router.Admission.
func (a *admission) Refuse(r router.Request, v *router.View) (reason string, after float64) {
	k := len(a.buckets) - 1
	if r.Adapter != trace.BaseModel {
		k = min(int(r.Adapter), k)
	}
	b := bucket{max(0, a.buckets[k].spent-a.rate.Rate*(v.Now-a.buckets[k].at)), v.Now}
	if a.rate.Rate > 0 && b.spent+1 > a.rate.Burst+1e-9 { // arrivals at exactly the limit pass in spite of rounding
		return "over the rate limit of its adapter", (b.spent + 1 - a.rate.Burst) / a.rate.Rate
	}
	if reason, after = a.overload(r, v); reason == "" {
		b.spent++
		a.buckets[k] = b
	}
	return reason, after
}

// Sent implements router.Admission.
func (a *admission) Sent(r router.Request, worker int, v *router.View) {
	if a.ttft != nil {
		a.ttft.Sent(r, worker, v)
	}
}

// Note implements router.Admission.
func (a *admission) Note(e router.Event) {
	if a.ttft != nil && e.Kind == router.Finished {
		a.ttft.Finished(e)
	}
}

// overload returns the reason to reject a request by load, "" if some worker can take it.
func (a *admission) overload(r router.Request, v *router.View) (reason string, after float64) {
	queue := math.MaxInt
	if a.shed.Queue > 0 {
		for _, w := range v.Usable() {
			queue = min(queue, w.Queued)
		}
		if queue != math.MaxInt && queue >= a.shed.Queue {
			return "shed: the queues of all workers are too long", 1
		}
	}
	if a.ttft != nil {
		a.ttft.Look(v)
		if least := a.firstToken(r, v); least > a.shed.TTFT && !math.IsInf(least, 1) {
			return "shed: its predicted TTFT exceeds the limit", least - a.shed.TTFT
		}
	}
	return "", 0
}

// firstToken predicts the time to first token of a request, s: on the worker that the policy would pick, or on the best
// worker if the policy has no Preview. It is infinite if no worker is usable: the router then reports that.
func (a *admission) firstToken(r router.Request, v *router.View) float64 {
	if a.policy != nil {
		if j := a.policy.Preview(r, v); j != router.None {
			return a.ttft.Predict(r, j, v)
		}
	}
	least := math.Inf(1)
	for j := range v.Usable() {
		least = min(least, a.ttft.Predict(r, j, v))
	}
	return least
}
