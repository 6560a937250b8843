package sim

import (
	"slices"

	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
)

type refAdapter struct {
	tier          router.Tier
	slot, loading bool
	used, loaded  int
	from, to      tick.Ticks // its latest load beside the steps
}

func (s *reference) victim(w *refWorker) int {
	best, key := -1, 0
	for row := range w.ad {
		a := &w.ad[row]
		if !a.slot || a.loading || s.active(w, row) > 0 || w.e.Scheduler == profile.SchedulerVLLM && row == len(s.ranks) {
			continue
		}
		k := a.used
		if w.e.AdapterEviction == profile.EvictFIFO {
			k = a.loaded
		}
		if row == w.drained {
			k = -1
		}
		if best < 0 || k < key {
			best, key = row, k
		}
	}
	return best
}

func (s *reference) slotFree(w *refWorker) bool {
	n := 0
	for _, a := range w.ad {
		if a.slot {
			n++
		}
	}
	return n < w.e.MaxLorasPerBatch || s.victim(w) >= 0
}

// take gives a row a slot and returns the time its load takes.
func (s *reference) take(w *refWorker, row int) tick.Ticks {
	n := 0
	for _, a := range w.ad {
		if a.slot {
			n++
		}
	}
	if n >= w.e.MaxLorasPerBatch {
		v := s.victim(w)
		w.ad[v].slot = false
		if v < len(s.ranks) {
			w.ad[v].tier = router.Host
		}
		if v == w.drained {
			w.drained = -1
		}
	}
	w.clock++
	w.ad[row].slot, w.ad[row].used, w.ad[row].loaded = true, w.clock, w.clock
	if s.unslotted(w) < 0 {
		w.drained = -1
	}
	if row == len(s.ranks) {
		return 0
	}
	t := w.costs.Load(s.ranks[row], w.ad[row].tier)
	if w.ad[row].tier < router.Host && w.e.MaxLoadedLoras > 0 {
		hosts, out := 1, -1
		for i := range s.ranks {
			a := &w.ad[i]
			if i != row && (a.tier >= router.Host || a.slot) {
				hosts++
			}
			if i != row && a.tier == router.Host && !a.slot && (out < 0 || a.used < w.ad[out].used) {
				out = i
			}
		}
		if hosts > w.e.MaxLoadedLoras && out >= 0 {
			w.ad[out].tier = s.home
		}
	}
	return t
}

func (s *reference) load(w *refWorker, row int) {
	t := s.take(w, row)
	w.ad[row].loading = true
	a := &w.ad[row]
	a.from = s.now
	for _, q := range w.loads {
		a.from = max(a.from, w.ad[q].to)
	}
	a.to = a.from + t
	w.loads = append(w.loads, row)
}

func (s *reference) loaded(w *refWorker) {
	row := w.loads[0]
	w.loads = w.loads[1:]
	w.ad[row].loading = false
	w.ad[row].tier = router.GPU
	if len(w.waiting) > 0 {
		w.full = false
	}
}

// choose returns the index in the queue of the request to prefill next, or -1.
func (s *reference) choose(w *refWorker) int {
	if w.merged() {
		return s.chooseMerged(w)
	}
	blocking := w.e.AdapterLoading == profile.LoadBlocking
	if w.e.HeadOfLine == profile.HeadOfLineBlock {
		row := s.row(w.waiting[0])
		a := &w.ad[row]
		switch {
		case a.slot && !a.loading:
			return 0
		case a.slot && blocking:
			return 0
		case a.slot:
			return -1
		case !s.slotFree(w):
			w.full = len(w.loads) == 0
			return -1
		case !blocking && row < len(s.ranks):
			s.load(w, row)
			return -1
		}
		return 0
	}
	for {
		k := slices.IndexFunc(w.waiting, func(r *refRequest) bool {
			row := s.row(r)
			a := &w.ad[row]
			if row == w.drained {
				return false
			}
			if a.loading {
				return blocking
			}
			return a.slot || s.slotFree(w)
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

// unslotted is the index of the first waiting request whose adapter has no slot.
func (s *reference) unslotted(w *refWorker) int {
	return slices.IndexFunc(w.waiting, func(r *refRequest) bool { return !w.ad[s.row(r)].slot })
}

func (s *reference) starvation(w *refWorker) {
	if w.e.HeadOfLine != profile.HeadOfLineSkip || w.e.StarvationS <= 0 {
		return
	}
	k := s.unslotted(w)
	if w.drained >= 0 {
		if k < 0 {
			w.drained = -1
		}
		return
	}
	if k < 0 || w.full || s.slotFree(w) || s.now < w.waiting[k].queuedAt+tick.FromSeconds(w.e.StarvationS) {
		return
	}
	// the adapter with the least remaining budget; of equals the one that got its slot first
	var rows []int
	for row := range w.ad {
		if w.ad[row].slot && !w.ad[row].loading && s.active(w, row) > 0 {
			rows = append(rows, row)
		}
	}
	left := func(row int) (n int64) {
		for _, r := range w.running {
			if s.row(r) == row {
				n += int64(r.Budget()) - r.generated
			}
		}
		return n
	}
	if len(rows) > 0 {
		w.drained = slices.MinFunc(rows, func(a, b int) int {
			if left(a) != left(b) {
				return int(left(a) - left(b))
			}
			return w.ad[a].loaded - w.ad[b].loaded
		})
	}
}
