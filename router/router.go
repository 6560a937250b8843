// Package router decides where requests go. A [Policy] picks a worker for each
// request from a [View] of the cluster; it is pure: no clock, no I/O, its own
// seeded generator. The simulator and the live client ask the same policies.
//
// Policies are named in specs such as "least-loaded" or "bounded-hash:c=1.25",
// which [New] turns into a [Router]:
//
//	import _ "lorasim/router/builtin" // registers the policies
//
//	env := router.Env{Workers: router.Alike(4, spec), Adapters: adapters}
//	rt, err := router.New("affinity-spill:threshold=4", env)
//	d := rt.Route(router.Request{ID: 7, Adapter: 2}, &view) // d.Worker
//
// This package is the contract of policies, planners and admission with those that drive them: the simulator and the
// fleet of real workers. It contains no policy. The policies are in packages below it:
//
//   - router/policies: small policies, a file each; router/planroute: plan-and-route;
//     router/epp and router/script: endpoint pickers of Kubernetes, and programs in Starlark
//   - router/builtin lists all of them
//   - router/admission: load shedding and rate limits
//   - router/choose, router/place, router/prefixindex, router/average: what policies share
//
// No policy picks a worker that is down or draining. Those that fix the worker
// of an adapter go to another one meanwhile, each in an order it documents; the
// answer is [None] only when no worker is usable.
//
// A router knows which requests it sent and which came back, but learns late what
// only workers can tell: [Stale]. Policies believe the signals of the view,
// however old. Those that look for the emptiest KV cache or the place of an
// adapter herd when signals are late: until the next report every request goes to
// the worker that looked best, so that load swings instead of levelling
// (Mitzenmacher, "How useful is old information?", 2000).
//
// # Policies of other programs
//
// A program adds a policy with [Register]; docs/own-policy.md shows one. What every policy must keep to:
//
//   - Route returns a usable worker ([View.Usable]), or [None] if there is none, or a refusal.
//   - It neither keeps nor changes the [View], whose contents change after the call.
//   - The same seed, requests and views give the same workers: random numbers come from [Env.Rand], time from View.Now,
//     and the order of a Go map decides nothing.
//   - State belongs to the policy that Build returns. Runs build policies of their own and share nothing.
//   - Build sets [Router.ReadsKV] and [Router.ReadsPrefixes] if Route reads these signals; else they are not kept up.
package router

import (
	"context"
	"errors"
	"slices"

	"lorasim/ilp"
	"lorasim/trace"
)

// Request is what a router may know of a request. The output length is never part of it.
type Request struct {
	ID      int64
	Adapter int32 // index into View.Adapters; trace.BaseModel: no adapter
	Prompt  int32 // prompt tokens
	MaxNew  int32 // max_new_tokens of the request: a limit, not the length of the output
	// Expected is the estimated output length, tokens: an estimate of [Outputs], or the true length in runs that
	// bound the gain of better estimates. 0: no estimate.
	Expected int32
	// Text identifies the first Known tokens of the prompt; nil: unknown.
	Text  *trace.Text
	Known int32
	// Hint is what Router.ReadBody returned for the body of a real request; nil: none. It is for the policy alone.
	Hint any
}

// CostModel predicts times of work on one worker, s. Policies that weigh ranks or loads use it.
type CostModel interface {
	// DecodeStep returns the length of a decode step of the given batch, whose requests use the given number of
	// adapters. A batch of 0 costs the fixed part of a step, so that the difference between two batches is the cost of
	// the additional requests. Each KV token adds the same time, whatever the rest of the step.
	DecodeStep(running, adapters int, kvTokens int64, maxRank int) float64
	// Prefill returns the time to prefill the given prompt tokens in chunks.
	Prefill(tokens int64) float64
	// AdapterLoad returns the time to load an adapter of the given rank into a GPU slot.
	AdapterLoad(rank int, from Tier) float64
	// Copy returns the time to send the given bytes of KV cache to another worker.
	Copy(bytes float64) float64
}

var errNeedsCosts = errors.New("needs the step times of the workers (a cost model)")

// Env is the environment in which a policy is built.
type Env struct {
	Workers  []Spec // Workers are the cluster's workers, at least one.
	Adapters []trace.Adapter
	Seed     uint64

	Interval  float64    // time between plans where a spec does not give it, s; 0: the policy's own
	Threshold float64    // requests above the mean that trigger dLoRA's plans; 0: its own
	Moving    Moving     // how requests in flight are moved
	Solver    ilp.Solver // solver of plans; nil: the embedded one

	// Context ends the run: the wait for files of a spec that are pipes, and plans. nil: nothing ends it.
	Context context.Context
}

// Spec describes a worker; it does not change during a run. The zero value of a field means "unknown", except for
// HostSlots.
type Spec struct {
	Cost         CostModel // nil: policies that need step times return an error
	MaxRunning   int       // limit of running requests
	Slots        int       // GPU adapter slots
	HostSlots    int       // limit of adapters in host memory; 0: no limit
	AdapterBytes []float64 // size of each adapter
	Memory       float64   // bytes of GPU memory for KV cache and adapters
	KVBytes      float64   // bytes of one KV token
	PageSize     int       // KV tokens per page; 0: 1
	// FrontEnd is the time that a request occupies the server's front end, s. FirstUse is the additional time of
	// the first request of an adapter, s. Requests pass the front end one at a time.
	FrontEnd, FirstUse float64
	// Blocks says that a request whose adapter has no slot blocks the requests behind it. Otherwise they overtake
	// it.
	Blocks bool
	// FetchesInSteps says that the worker also loads adapters into host memory within its steps, as vLLM does: no
	// request runs meanwhile, unless LoadsOverlap.
	FetchesInSteps bool
	// LoadsOverlap says that steps go on while an adapter is loaded: only the adapter's requests wait.
	LoadsOverlap bool
	// Mixes says that the worker computes prompts in steps that also decode the running requests, as vLLM does.
	// Otherwise decoding stops in steps that compute prompts.
	Mixes bool
	// Ahead says that the worker forms a step while the one before it runs, as vLLM's asynchronous scheduling and
	// sglang's overlap schedule do.
	Ahead bool
	// StepTokens is the largest number of prompt tokens in a step.
	StepTokens int64
	// PrefixCache says that the worker keeps computed prompts for later prompts with the same beginning.
	PrefixCache bool
}

// Alike returns n workers with the same description.
func Alike(n int, s Spec) []Spec {
	return slices.Repeat([]Spec{s}, n)
}

// NeedCosts returns an error if the cost model of a worker is missing.
func (e *Env) NeedCosts() error {
	if slices.ContainsFunc(e.Workers, func(s Spec) bool { return s.Cost == nil }) {
		return errNeedsCosts
	}
	return nil
}

// unlimited returns the environment with HostSlots 0 (no limit) where host memory has room for every
// adapter, so that a limit that is never reached changes no decision.
func (e Env) unlimited() Env {
	e.Workers = slices.Clone(e.Workers)
	for j := range e.Workers {
		if w := &e.Workers[j]; w.HostSlots >= len(e.Adapters) {
			w.HostSlots = 0
		}
	}
	return e
}

// Moving is how requests in flight move to another worker.
type Moving string

// Ways to move requests.
const (
	MoveNone      Moving = "none"      // requests are not moved
	MoveQueued    Moving = "queued"    // only waiting requests that have never run
	MoveRecompute Moving = "recompute" // the KV cache is dropped and prefilled again
	MoveCopy      Moving = "copy"      // decoding stops while the KV cache is copied
	// the KV cache is copied while decoding goes on; only the rest is copied in a pause
	MovePrecopy Moving = "precopy"
)

// Movings returns all ways to move requests.
func Movings() []Moving {
	return []Moving{MoveNone, MoveQueued, MoveRecompute, MoveCopy, MovePrecopy}
}

// Router is a policy with its planner and admission, ready for one run.
type Router struct {
	Name   string // the spec from which it was made
	Policy Policy

	// Placement lists for each worker the adapters in its host memory at the start; nil: every adapter on every
	// worker, as far as host memory allows.
	Placement [][]int32
	// ReadsKV says that the policy reads KVUsed.
	ReadsKV bool
	// ReadsFewKV says that the policy calls View.Read, if set, before it reads KVUsed.
	ReadsFewKV bool
	// ReadsPrefixes says that the policy reads which prompts share prefixes.
	ReadsPrefixes bool
	// Admission rejects requests before the policy routes them; nil: all are admitted.
	Admission Admission
	// ReadBody reads the body of a real request for the policy: the result becomes Request.Hint. It may be called at
	// any time, concurrently. It returns nil for a body that the policy makes nothing of. nil: the policy reads no
	// bodies.
	ReadBody func(path string, body []byte) any
	// Poll is the time between two Polled events, s; 0: the policy needs none.
	Poll float64
	// Places says that decisions of the policy may change the placement (Decision.Change).
	Places bool
	// Planner is the policy's planner; nil: it has none.
	Planner Planner
	// Prefetch says that workers load adapters of waiting requests into free slots early.
	Prefetch bool
}
