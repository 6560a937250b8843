package router

// Stale shows policies a cluster as a router sees it that learns the state of
// its workers only every so often. It keeps a copy of the view and refreshes
// it in the first [Stale.Update] after the period has passed; called on a timer
// of that period, it behaves as a router that polls.
//
//	late := router.NewStale(0.5)
//	w := rt.Policy.Route(req, late.Update(&live))
//
// All signals of a worker are late alike, health included: a policy may pick a
// worker that has gone down since.
type Stale struct {
	period float64
	taken  float64   // s: when the copy was made
	ages   []float64 // s: age of each worker's signals at that time
	view   View
}

// NewStale returns a Stale whose copy is always less than period seconds old;
// with a period of 0 or less it passes the live view through.
func NewStale(period float64) *Stale { return &Stale{period: period} }

// Update returns the view that policies are to see now. Its time and adapters
// are the live ones, its workers are the copy, and their ages say how old
// their signals are. It is valid until the next call.
func (s *Stale) Update(live *View) *View {
	if !(s.period > 0) {
		return live
	}
	elapsed := live.Now - s.taken
	if len(live.Workers) != len(s.view.Workers) || elapsed < 0 || elapsed >= s.period {
		s.refresh(live)
		elapsed = 0
	}
	s.view.Now, s.view.Adapters = live.Now, live.Adapters
	for i := range s.view.Workers {
		s.view.Workers[i].Age = s.ages[i] + elapsed
	}
	return &s.view
}

// refresh copies the workers into the memory of the last copy.
func (s *Stale) refresh(live *View) {
	s.taken = live.Now
	if len(s.view.Workers) != len(live.Workers) {
		s.view.Workers = make([]Worker, len(live.Workers))
		s.ages = make([]float64, len(live.Workers))
	}
	for i := range live.Workers {
		from, to := &live.Workers[i], &s.view.Workers[i]
		adapters := append(to.Adapters[:0], from.Adapters...)
		*to = *from
		to.Adapters = adapters
		s.ages[i] = from.Age
	}
}
