package router

// Stale shows policies a cluster as a router sees it that asks the workers how
// they are only every so often, but for what they keep of prompts, of which they
// tell without being asked. What the router knows by itself is current: the
// requests that it sent and that came back, with their tokens and adapters, and
// which workers it was told to drain. What only workers can report is as old as the last time they were asked: whether
// they are well, their limits, their KV caches, and which adapters they hold.
//
// It keeps a copy of what was reported and refreshes it in the first
// [Stale.Update] after the period has passed; called on a timer of that period, it
// behaves as a router that polls.
//
//	late := router.NewStale(0.5)
//	w := rt.Policy.Route(req, late.Update(&live))
//
// A policy may thus pick a worker that has gone down since.
type Stale struct {
	period   float64
	taken    float64  // s: when reported was copied
	reported []Worker // as they were then
	view     View
}

// NewStale returns a Stale whose reports are always less than period seconds
// old; with a period of 0 or less it passes the live view through.
func NewStale(period float64) *Stale { return &Stale{period: period} }

// Update returns the view that policies are to see now; the workers' ages say
// how old their reports are. It is valid until the next call.
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

// Outputs estimates how many tokens requests will generate. Their budget,
// max_new_tokens, does not tell: clients ask for a constant and stop earlier. The
// estimate is the mean of the adapter's latest outputs, before that of all
// adapters', before that a guess, and never above the budget. Who drives a router
// keeps one and fills in [Request.Expected].
type Outputs struct {
	all mean
	by  []mean
}

// NewOutputs knows nothing yet of so many adapters.
func NewOutputs(adapters int) *Outputs { return &Outputs{by: make([]mean, adapters)} }

// Grow makes room for so many adapters more.
func (o *Outputs) Grow(adapters int) { o.by = append(o.by, make([]mean, adapters)...) }

// Expect returns the tokens expected of a request, at least 1; a budget of 0 is
// not known.
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

// Ended notes the output of a request that ended well.
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
		Expected: max(int32(a.left()+0.5), 1)}
}

// left is what a request that has generated some tokens still may: at least a
// quarter of what was expected, at most its budget.
func (a *InFlight) left() float64 {
	expected := orGuess(a.Expected, a.MaxNew)
	left := max(expected-float64(a.Generated), expected/4)
	return min(left, float64(max(a.MaxNew-a.Generated, 1)))
}
