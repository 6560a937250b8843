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
		adapters := to.Adapters
		*to = *from
		to.Adapters, to.counted, to.flight = adapters, false, nil
		to.copyStates(from)
	}
}

// know sets a worker to what a router knows that was told of it by an old report
// and sees its own requests itself.
func (w *Worker) know(reported, live *Worker) {
	adapters := w.Adapters
	*w = *reported
	w.Adapters = adapters
	w.copyStates(reported)
	w.Draining, w.Ejected = live.Draining, live.Ejected
	w.Running, w.Queued = live.Running, live.Queued
	w.Tokens, w.QueuedToks = live.Tokens, live.QueuedToks
	w.MaxRank = live.MaxRank
	w.ActiveLoras, w.WaitingLoras, w.FlightLoras = live.ActiveLoras, live.WaitingLoras, live.FlightLoras
	w.copyRequests(live)
}
