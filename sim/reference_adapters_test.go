package sim

import (
	"cmp"
	"slices"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

type refAdapter struct {
	tier                 router.Tier
	slot, loading, fetch bool
	paid                 bool
	used, loaded         int
	from, to             tick.Ticks // its latest load beside the steps
	drainsFor            int        // row + 1, 0: none
	left                 int64
}

func (s *reference) slots(w *refWorker) (n int) {
	for _, a := range w.ad {
		if a.slot {
			n++
		}
	}
	return n
}

// unplaced is the number of rows that run, or are to, without a slot.
func (s *reference) unplaced(w *refWorker) (n int) {
	for row, a := range w.ad {
		if !a.slot && s.active(w, row) > 0 {
			n++
		}
	}
	return n
}

// slotFree says whether one more row can be loaded beside those in use.
func (s *reference) slotFree(w *refWorker) bool {
	n := 0
	for row, a := range w.ad {
		keeps := w.e.Scheduler == profile.SchedulerVLLM && row == len(s.ranks)
		if s.active(w, row) > 0 || a.loading || keeps {
			n++
		}
	}
	return n < w.e.MaxLorasPerBatch
}

func (s *reference) inHost(w *refWorker, row int) bool {
	return w.e.Scheduler == profile.SchedulerVLLM || row == len(s.ranks) || w.ad[row].tier >= router.Host
}

// victim is the row that loses its slot to a batch of rows; to a load beside
// the steps where batch is nil.
func (s *reference) victim(w *refWorker, batch []int) int {
	var rows []int
	for row := range w.ad {
		a := &w.ad[row]
		if a.slot && !a.loading && !slices.Contains(batch, row) && (batch != nil || s.active(w, row) == 0) {
			rows = append(rows, row)
		}
	}
	base := len(s.ranks)
	if slices.Contains(rows, base) && (len(rows) > 1 || w.e.Scheduler == profile.SchedulerVLLM) {
		rows = slices.DeleteFunc(rows, func(row int) bool { return row == base })
	}
	if len(rows) == 0 {
		return -1
	}
	return slices.MinFunc(rows, func(x, y int) int {
		if w.e.AdapterEviction == profile.EvictFIFO {
			return w.ad[x].loaded - w.ad[y].loaded
		}
		return cmp.Or(w.ad[x].used-w.ad[y].used, x-y)
	})
}

// take gives a row a slot.
func (s *reference) take(w *refWorker, row int, batch []int) {
	if s.slots(w) >= w.e.MaxLorasPerBatch {
		v := s.victim(w, batch)
		w.ad[v].slot = false
		if v < len(s.ranks) {
			w.ad[v].tier = router.Host
		}
	}
	w.clock++
	w.ad[row].slot, w.ad[row].loaded, w.ad[row].paid = true, w.clock, false
}

// keep makes room in host memory for a row that comes there, -1: for none.
func (s *reference) keep(w *refWorker, row int) {
	if row == len(s.ranks) || row >= 0 && w.ad[row].tier >= router.Host || w.e.MaxLoadedLoras == 0 {
		return
	}
	for {
		hosts, out := 0, -1
		for i := range s.ranks {
			a := &w.ad[i]
			if i == row || a.tier >= router.Host || a.loading || a.fetch {
				hosts++
			}
			if i == row || a.tier < router.Host || a.loading || a.fetch || s.active(w, i) > 0 {
				continue
			}
			if w.e.Scheduler == profile.SchedulerSGLang {
				if slices.ContainsFunc(w.waiting, func(q *refRequest) bool { return s.row(q) == i }) {
					continue
				}
			} else if a.slot {
				continue
			}
			if out < 0 || a.used < w.ad[out].used {
				out = i
			}
		}
		if hosts <= w.e.MaxLoadedLoras || out < 0 {
			return
		}
		w.ad[out].tier, w.ad[out].slot = s.home, false
	}
}

// load starts or queues the load of a row into a slot beside the steps.
func (s *reference) load(w *refWorker, row int) {
	w.clock++
	w.ad[row].used = w.clock
	s.take(w, row, nil)
	s.keep(w, row)
	w.ad[row].loading = true
	s.enqueue(w, refLoad{row, true}, w.costs.Load(s.ranks[row], w.ad[row].tier))
}

// fetch starts or queues bringing a row to host memory.
func (s *reference) fetch(w *refWorker, row int) {
	s.keep(w, row)
	w.ad[row].fetch = true
	s.enqueue(w, refLoad{row, false}, w.costs.Load(s.ranks[row], w.ad[row].tier)-w.costs.Load(s.ranks[row],
		router.Host))
}

func (s *reference) enqueue(w *refWorker, l refLoad, takes tick.Ticks) {
	a := &w.ad[l.row]
	a.from = s.now
	for _, q := range w.loads {
		a.from = max(a.from, w.ad[q.row].to)
	}
	a.to = a.from + takes
	w.loads = append(w.loads, l)
}

func (s *reference) loaded(w *refWorker) {
	l := w.loads[0]
	w.loads = w.loads[1:]
	a := &w.ad[l.row]
	if l.slot {
		a.loading, a.tier = false, router.GPU
	} else {
		a.fetch, a.tier = false, max(a.tier, router.Host)
	}
	if len(w.waiting) > 0 && (w.e.Scheduler == profile.SchedulerVLLM || w.e.HeadOfLine == profile.HeadOfLineBlock) {
		w.full = false
	}
}

// displaces says whether loads wait for steps, and a step's batch alone keeps
// its slots.
func (w *refWorker) displaces() bool {
	return w.e.Scheduler == profile.SchedulerSGLang && !w.modes && w.e.AdapterLoading == profile.LoadBlocking
}

// use gives a request its adapter and returns how long the step waits for it.
func (s *reference) use(w *refWorker, r *refRequest) (stall tick.Ticks) {
	row := s.row(r)
	a := &w.ad[row]
	r.cold += max(0, a.to-max(a.from, r.queuedAt))
	if a.slot && a.to > r.queuedAt {
		stall = max(0, a.to-s.now)
	}
	active := s.active(w, row)
	for _, q := range w.filling {
		if q == r {
			active-- // vLLM's reference has counted it already
		}
	}
	if !a.slot && active == 0 {
		if row < len(s.ranks) {
			d := w.costs.Load(s.ranks[row], a.tier)
			stall += d
			r.cold += d
		}
		a.paid = true
	}
	if !a.slot && !w.displaces() {
		s.take(w, row, nil)
		if row < len(s.ranks) {
			s.keep(w, row)
			a.tier = router.GPU
		}
	}
	w.clock++
	a.used = w.clock
	return stall
}

// place gives the adapters of a batch their slots, and returns the time of
// loads that nobody waits for yet.
func (s *reference) place(w *refWorker, batch []*refRequest) (load tick.Ticks) {
	var rows []int
	for _, r := range batch {
		rows = append(rows, s.row(r))
	}
	slices.SortFunc(rows, func(a, b int) int { // the base model first
		return (a+1)%(len(s.ranks)+1) - (b+1)%(len(s.ranks)+1)
	})
	rows = slices.Compact(rows)
	w.clock++
	for _, row := range rows {
		w.ad[row].used = w.clock
	}
	if !w.displaces() {
		return 0
	}
	for _, row := range rows {
		a := &w.ad[row]
		if a.slot {
			continue
		}
		if row < len(s.ranks) && !a.paid {
			load += w.costs.Load(s.ranks[row], a.tier)
		}
		s.take(w, row, rows)
		if row < len(s.ranks) {
			a.tier = router.GPU
		}
	}
	return load
}

// stampRunning marks the adapters of a decode step as used.
func (s *reference) stampRunning(w *refWorker) {
	w.clock++
	for row := range w.ad {
		if a := &w.ad[row]; a.slot && s.active(w, row) > 0 {
			a.used = w.clock
		}
	}
}

// choose returns the index in the queue of the request to prefill next, or -1.
func (s *reference) choose(w *refWorker) int {
	if w.merged() {
		return s.chooseMerged(w)
	}
	blocking := w.e.AdapterLoading == profile.LoadBlocking
	if w.e.HeadOfLine == profile.HeadOfLineBlock {
		k := slices.IndexFunc(w.waiting, func(r *refRequest) bool { return s.inHost(w, s.row(r)) })
		if k < 0 {
			return -1
		}
		row := s.row(w.waiting[k])
		a := &w.ad[row]
		switch {
		case a.loading && blocking, s.active(w, row) > 0 && !a.loading, a.slot && !a.loading && !w.displaces():
			return k
		case a.loading:
			return -1
		case !s.slotFree(w):
			w.full = len(w.loads) == 0
			return -1
		case !blocking && row < len(s.ranks):
			s.load(w, row)
			return -1
		}
		return k
	}
	for {
		s.sort(w)
		k := slices.IndexFunc(w.waiting, func(r *refRequest) bool {
			row := s.row(r)
			a := &w.ad[row]
			if !s.inHost(w, row) || a.drainsFor > 0 && float64(r.Budget()) > float64(float64(a.left)*1.2) {
				return false
			}
			if a.loading {
				return blocking
			}
			return a.slot && !w.displaces() || s.active(w, row) > 0 || s.slotFree(w)
		})
		if k < 0 {
			return -1
		}
		row := s.row(w.waiting[k])
		if blocking || w.ad[row].slot || row == len(s.ranks) {
			return k
		}
		s.load(w, row)
	}
}

// updateDraining is LoRADrainer.update_draining_state.
func (s *reference) updateDraining(w *refWorker) {
	threshold := tick.FromSeconds(w.e.LoraDrainWait)
	if w.e.HeadOfLine != profile.HeadOfLineSkip || threshold <= 0 {
		return
	}
	wait := make([]tick.Ticks, len(w.ad))
	for row := range wait {
		wait[row] = -1
	}
	running := make([]bool, len(w.ad))
	for row := range w.ad {
		w.ad[row].left = 0
	}
	for _, r := range w.waiting {
		wait[s.row(r)] = max(wait[s.row(r)], s.now-r.queuedAt)
	}
	n := 0
	for _, r := range w.running {
		row := s.row(r)
		if !running[row] {
			n++
		}
		running[row] = true
		w.ad[row].left = max(w.ad[row].left, int64(r.Budget())-r.generated)
	}
	if n >= w.e.MaxLorasPerBatch {
		var starving, eligible []int
		for row := range w.ad {
			drained := slices.ContainsFunc(w.ad, func(a refAdapter) bool { return a.drainsFor == row+1 })
			if wait[row] > threshold && !drained {
				starving = append(starving, row)
			}
			if running[row] && w.ad[row].drainsFor == 0 {
				eligible = append(eligible, row)
			}
		}
		slices.SortStableFunc(starving, func(a, b int) int { return cmp.Compare(wait[b], wait[a]) })
		for _, row := range starving {
			if len(eligible) == 0 {
				break
			}
			least := slices.MinFunc(eligible, func(a, b int) int { return cmp.Compare(w.ad[a].left, w.ad[b].left) })
			w.ad[least].drainsFor = row + 1
			eligible = slices.DeleteFunc(eligible, func(e int) bool { return e == least })
		}
	}
	for row := range w.ad {
		if !running[row] {
			w.ad[row].drainsFor = 0
		}
	}
}
