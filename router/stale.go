package router

// Stale gives policies the view of a router that polls its workers. The router's own knowledge is current: the
// requests that it sent and that ended, with their tokens and adapters, and which workers drain. Signals that only
// workers report are as old as the latest poll: health, limits, KV cache use and adapters held. Cached prefixes are
// current, because workers report them as events.
//
// Stale copies what was reported. The first [Stale.Update] after the period refreshes the copy; called on a timer
// of that period, Stale behaves as a router that polls.
//
//	late := router.NewStale(0.5)
//	w := rt.Policy.Route(req, late.Update(&live))
//
// A policy may thus pick a worker that has failed since the latest poll.
type Stale struct {
	period   float64
	taken    float64  // s: when reported was copied
	reported []Worker // as they were then
	view     View
}

// NewStale returns a Stale whose reports are less than period seconds old. With a period of 0 or less it passes the
// live view through.
func NewStale(period float64) *Stale { return &Stale{period: period} }

// Update returns the view for policies at this time; the workers' ages tell how old their reports are. The view is
// valid until the next call.
func (s *Stale) Update(live *View) *View {
	if !(s.period > 0) {
		return live
	}
	elapsed := live.Now - s.taken
	if len(live.Workers) != len(s.reported) || elapsed < 0 || elapsed >= s.period {
		s.refresh(live)
		elapsed = 0
	}
	s.view.Now, s.view.Adapters, s.view.Prefixes = live.Now, live.Adapters, live.Prefixes
	for i := range s.view.Workers {
		s.view.Workers[i].know(&s.reported[i], &live.Workers[i])
		s.view.Workers[i].Age = s.reported[i].Age + elapsed
	}
	return &s.view
}

// refresh copies the workers into the memory of the last copy.
func (s *Stale) refresh(live *View) {
	s.taken = live.Now
	if len(s.reported) != len(live.Workers) {
		s.reported = make([]Worker, len(live.Workers))
		s.view.Workers = make([]Worker, len(live.Workers))
	}
	for i := range live.Workers {
		from, to := &live.Workers[i], &s.reported[i]
		adapters := append(to.Adapters[:0], from.Adapters...)
		*to = *from
		to.Adapters = adapters
	}
}

// know sets a worker to what a router knows that was told of it by an old report
// and sees its own requests itself.
func (w *Worker) know(reported, live *Worker) {
	adapters := append(w.Adapters[:0], reported.Adapters...)
	*w = *reported
	w.Adapters = adapters
	w.Draining, w.Ejected = live.Draining, live.Ejected
	w.Running, w.Queued = live.Running, live.Queued
	w.Tokens, w.QueuedToks = live.Tokens, live.QueuedToks
	w.MaxRank = live.MaxRank
	w.ActiveLoras, w.WaitingLoras, w.FlightLoras = live.ActiveLoras, live.WaitingLoras, live.FlightLoras
	for k := range live.Adapters {
		adapters[k].Running, adapters[k].Queued = live.Adapters[k].Running, live.Adapters[k].Queued
	}
}

// Outputs estimates how many tokens requests will generate. The limit max_new_tokens is a poor estimate, because
// clients send a constant and most outputs end earlier. The estimate is the mean of the adapter's latest outputs;
// without any, the mean over all adapters; without any, a constant. It never exceeds the limit. The caller of a
// router keeps one Outputs and sets [Request.Expected].
type Outputs struct {
	all mean
	by  []mean
}

// NewOutputs returns an estimator without observations for n adapters.
func NewOutputs(adapters int) *Outputs { return &Outputs{by: make([]mean, adapters)} }

// Grow adds n adapters.
func (o *Outputs) Grow(adapters int) { o.by = append(o.by, make([]mean, adapters)...) }

// Expect returns the expected output of a request, tokens, at least 1. A limit of 0 is unknown.
func (o *Outputs) Expect(adapter, budget int32) int32 {
	expected := o.all.or(guessOutput)
	if isAdapter(adapter) {
		expected = o.by[adapter].or(expected)
	}
	n := max(int32(expected+0.5), 1)
	if budget > 0 {
		n = min(n, budget)
	}
	return n
}

// Ended notes the output length of a request that ended successfully.
func (o *Outputs) Ended(adapter, output int32) {
	o.all.add(float64(output))
	if isAdapter(adapter) {
		o.by[adapter].add(float64(output))
	}
}

// output is the expected output, tokens; where nobody estimated, a guess.
func (r Request) output() float64 { return orGuess(r.Expected, r.MaxNew) }

func orGuess(expected, budget int32) float64 {
	switch {
	case expected > 0:
		return float64(expected)
	case budget > 0:
		return min(guessOutput, float64(budget))
	}
	return guessOutput
}

// rest is a request as it goes to another worker: what it has generated (a preempted request may have
// generated some) is computed again with its prompt, and is no longer expected as output.
func (a *InFlight) rest() Request {
	return Request{ID: a.ID, Adapter: a.Adapter, Prompt: a.Prompt + a.Generated, MaxNew: a.MaxNew - a.Generated,
		Expected: max(int32(a.left()+0.5), 1), Text: a.Text, Known: a.Known}
}

// left is what a request that has generated some tokens still may: at least a
// quarter of what was expected, at most its budget.
func (a *InFlight) left() float64 {
	expected := orGuess(a.Expected, a.MaxNew)
	left := max(expected-float64(a.Generated), expected/4)
	return min(left, float64(max(a.MaxNew-a.Generated, 1)))
}
