package emulate

import (
	"errors"
	"math"
	"slices"

	"lorasim/bench/serving/httpapi"
	simengine "lorasim/sim/engine"
	"lorasim/sim/record"
	"lorasim/trace"
)

// job is a request in flight with the tokens it generates.
type job struct {
	w      *Worker
	index  int // among the jobs of its reply
	stream *stream
	prompt int
	chain  chain
	eos    int     // of the chain; 0 where EOS is ignored
	total  int     // tokens it will have, unless it ends early
	ids    []int32 // the prompt
	out    []int32
	cached int32    // tokens of the prompt found in the prefix cache
	end    progress // once ended
}

// order is a client's request, independent of the interface.
type order struct {
	rid       string
	adapter   string // "": base model
	prompt    []int32
	budget    int
	ignoreEOS bool
	flow      int // of the engine's measures
}

// start submits an order to the engine, which pokes the channel whenever there is news.
func (w *Worker) start(o order, news chan struct{}) (*job, error) {
	if len(o.prompt) == 0 {
		return nil, errNoPrompt
	}
	if o.budget < 1 || o.budget > math.MaxInt32 || len(o.prompt) > math.MaxInt32 {
		return nil, errBudget(o.budget)
	}
	r := trace.Request{Prompt: int32(len(o.prompt)), Output: int32(o.budget), MaxNew: int32(o.budget)}
	known := false
	if r.Adapter, known = w.lookup(o.adapter); !known && o.adapter != "" {
		return nil, errUnknownAdapter{o.adapter}
	}
	j := &job{w: w, prompt: len(o.prompt), ids: o.prompt, chain: newChain(o.adapter)}
	for _, t := range o.prompt {
		j.chain.feed(t)
	}
	if !o.ignoreEOS {
		j.eos = w.cfg.EOSEvery
		r.Output = int32(untilEOS(j.chain, j.eos, o.budget))
	}
	j.total = int(r.Output)
	if w.profile.Engine.PrefixCache {
		w.identify(&r, o.prompt, j)
	}
	var err error
	if j.stream, err = w.eng.submit(r, &o, news); err != nil {
		return nil, err
	}
	return j, nil
}

// identify gives the engine the identities of the blocks of a prompt and its reply, of at least 16 tokens each, so
// that the engine finds prefixes shared with other requests.
func (w *Worker) identify(r *trace.Request, prompt []int32, j *job) {
	size := w.profile.Engine.PageSize
	block := (16 + size - 1) / size * size
	all, c := slices.Grow(slices.Clone(prompt), j.total), j.chain
	for range j.total {
		all = append(all, c.next(j.eos))
	}
	var hashes []uint64
	h := chain(0)
	for i, t := range all {
		if h.feed(t); (i+1)%block == 0 {
			hashes = append(hashes, uint64(h))
		}
	}
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	r.Text = w.seen.Prompt(hashes[:len(prompt)/block], int32(block))
	if r.Reply = w.seen.Prompt(hashes, int32(block)); r.Reply == r.Text {
		r.Reply = nil
	}
}

// untilEOS is the number of tokens up to EOS, at most the budget.
func untilEOS(c chain, eosEvery, budget int) int {
	if eosEvery == 0 {
		return budget
	}
	for n := 1; n < budget; n++ {
		if c.next(eosEvery) == EOS {
			return n
		}
	}
	return budget
}

// take generates the tokens that have come, if there are at least n or the job has ended. It returns them, and false if
// there is nothing new.
func (j *job) take(n int) (fresh []int32, ok bool) {
	p, from := j.stream.look(), len(j.out)
	// the end comes with the last token
	if j.ended() || !p.ended && (p.tokens-from < n || p.tokens >= j.total) {
		return nil, false
	}
	for len(j.out) < p.tokens {
		j.out = append(j.out, j.chain.next(j.eos))
	}
	if j.cached = p.cached; p.ended {
		j.end = p
	}
	return j.out[from:], true
}

func (j *job) cancel()     { j.w.eng.do(func() { j.w.eng.srv.Cancel(j.stream.id) }) }
func (j *job) ended() bool { return j.end.ended }

// failure returns the reason for which a job has no reply at all, or nil.
func (j *job) failure() error {
	switch {
	case !j.ended():
		return nil
	case j.end.status == record.Aborted && j.w.cfg.API == httpapi.VLLM && j.w.draining.Load() &&
		j.w.cfg.Ending == Fail:
		return errGone{}
	}
	return j.end.failure()
}

// failure returns the reason for which a request was not run, or nil.
func (p *progress) failure() error {
	switch {
	case p.status == record.Rejected && simengine.Overloaded(p.reason):
		return errFull(p.reason)
	case p.status == record.Rejected:
		return errNeverFits(p.reason)
	case p.status == record.Failed:
		return errors.New(p.reason)
	}
	return nil
}

// finish returns the type of the finish reason of a job that has ended.
func (j *job) finish() string {
	switch {
	case j.end.status == record.Aborted:
		return "abort"
	case len(j.out) > 0 && j.out[len(j.out)-1] == EOS:
		return "stop"
	}
	return "length"
}
