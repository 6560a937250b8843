package router

import "slices"

// Stale gives policies the view of a router that polls its workers. The router's own knowledge is current: the
// requests that it sent and that ended, with their tokens and adapters, and which workers drain. Signals that only
// workers report are as old as the latest poll: health, limits and KV cache use. Adapters held are those of the poll,
// changed as the router's running requests tell ([residents]). Cached prefixes are current, because workers report them
// as events.
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
	reported []Worker // as they were then; their adapters are held as far as is known now
	held     []residents
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
		s.held[i].run(&s.reported[i], &live.Workers[i])
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
		s.held = make([]residents, len(live.Workers))
	}
	for i := range live.Workers {
		from, to := &live.Workers[i], &s.reported[i]
		adapters := to.Adapters
		*to = *from
		to.Adapters, to.counted, to.flight = adapters, false, nil
		to.copyStates(from)
		s.held[i].report(to)
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

// residents are the adapters that a worker holds, as a router knows them that reads reports and sees its own requests
// run. An adapter of a running request is in a slot. Where all slots are in use, the one used the longest time ago has
// left its slot; and likewise the host memory, if that is limited.
type residents struct {
	recent []int32 // adapters that have run and are held, the one that ran last at the end
	hosted int     // adapters in host memory, if that is limited
}

// report takes over what a worker reports.
func (h *residents) report(w *Worker) {
	h.recent = slices.DeleteFunc(h.recent, func(a int32) bool { return w.Adapter(a).Tier < Host })
	if h.hosted = 0; w.HostSlots > 0 {
		h.hosted = w.Hosted()
	}
}

// run notes the running requests. reported has what the worker has reported, and is changed.
func (h *residents) run(reported, live *Worker) {
	for _, f := range live.InFlight() {
		if f.Running == 0 {
			continue
		}
		if i := slices.Index(h.recent, f.Adapter); i >= 0 {
			h.recent = slices.Delete(h.recent, i, i+1)
		}
		h.recent = append(h.recent, f.Adapter)
		if st := reported.Row(f.Adapter); st.Tier != GPU {
			was := st.Tier
			st.Tier, st.Loading = GPU, false
			h.makeRoom(reported, live, was)
		}
	}
	reported.SlotsIdle = max(reported.SlotsUsed-live.ActiveLoras, 0)
}

// makeRoom takes the adapters away that have made way for one that came from a tier.
func (h *residents) makeRoom(reported, live *Worker, came Tier) {
	if reported.SlotsUsed < reported.Slots || reported.Slots == 0 {
		reported.SlotsUsed++
	} else {
		h.leave(reported, live, GPU, Host)
	}
	if came >= Host || reported.HostSlots == 0 {
		return
	}
	if h.hosted < reported.HostSlots {
		h.hosted++
	} else {
		h.leave(reported, live, Host, came)
	}
}

// leave moves the adapter that was used the longest time ago from one tier to another, unless it is pinned or runs.
// Adapters whose use is not known were used before the others.
func (h *residents) leave(reported, live *Worker, from, to Tier) {
	oldest, at := None, len(h.recent)
	for a, st := range reported.Rows() {
		if st.Tier != from || st.Pinned || live.Adapter(a).Running > 0 {
			continue
		}
		if i := slices.Index(h.recent, a); i < at {
			oldest, at = int(a), i
		}
	}
	if oldest == None {
		return
	}
	reported.Row(int32(oldest)).Tier = to
	if at >= 0 && (to < Host || reported.HostSlots == 0) {
		h.recent = slices.Delete(h.recent, at, at+1)
	}
}
