package vllmruns

import (
	"slices"
	"sort"

	"lorasim/router"
)

// scrapes is what reading the server's metrics does to its front end.
//
// vLLM exports which adapters have requests as the labels of a gauge,
// vllm:lora_requests_info (PrometheusStatLogger.record in v1/metrics/loggers.py):
// each list of adapters that it has ever seen, in the order in which they came to
// have requests, stays as a time series of its own. So the page of metrics grows
// with every such list, and whenever it is read, every two seconds in these runs,
// the front end renders all of it and does nothing else. The engine goes on, in
// a process of its own; but requests wait to be taken in, and what it generated
// meanwhile reaches its client in one piece. With 8 adapters there are few lists,
// with 128 of them the page takes most of a second at the end of an hour; where
// every adapter always has requests, the list never changes.
type scrapes struct {
	seen   [2]int64            // counts of the worker's requests and their tokens at the latest look
	listed []bool              // whether an adapter is in active
	active []int32             // adapters with requests, in the order in which they came to have them
	known  map[uint64]struct{} // lists seen
	names  int64               // adapters in all of them
	next   float64             // s
	stalls []stall
}

// stall is a time, s, in which the front end renders metrics. before is the sum
// of all stalls before it.
type stall struct{ from, to, before float64 }

const (
	scrapeEvery = 2.0 // s: the interval of the series in the table of runs
	// Times to render a list, s: one of it and one of each name in it, both
	// labels together. From ITL / TPOT of the calibration runs without a queue.
	scrapeList = 18.5e-6
	scrapeName = 0.1e-6
)

// watch takes note of the adapters with requests up to a time, s.
func (s *scrapes) watch(to float64, w *router.Worker) {
	for s.next <= to {
		d := scrapeList*float64(len(s.known)) + scrapeName*float64(s.names)
		if d > 0 {
			last := stall{}
			if n := len(s.stalls); n > 0 {
				last = s.stalls[n-1]
			}
			s.stalls = append(s.stalls, stall{s.next, s.next + d, last.before + last.to - last.from})
		}
		s.next += max(scrapeEvery, d)
	}
	if now := [2]int64{int64(w.Running + w.Queued), w.Tokens}; now != s.seen || s.listed == nil {
		s.seen = now
		s.look(w)
	}
}

// look takes note of the list of adapters with requests, if it is a new one.
func (s *scrapes) look(w *router.Worker) {
	if s.listed == nil {
		s.listed = make([]bool, len(w.Adapters))
	}
	has := func(a int32) bool { return w.Adapters[a].Running+w.Adapters[a].Queued > 0 }
	n := len(s.active)
	s.active = slices.DeleteFunc(s.active, func(a int32) bool {
		s.listed[a] = has(a)
		return !s.listed[a]
	})
	changed := len(s.active) < n
	for a := range int32(len(w.Adapters)) {
		if !s.listed[a] && has(a) {
			s.listed[a] = true
			s.active = append(s.active, a)
			changed = true
		}
	}
	if !changed {
		return
	}
	hash := uint64(14695981039346656037) // FNV-1a
	for _, a := range s.active {
		hash = (hash ^ uint64(a)) * 1099511628211
	}
	if s.known == nil {
		s.known = map[uint64]struct{}{}
	}
	if _, ok := s.known[hash]; !ok {
		s.known[hash] = struct{}{}
		s.names += int64(len(s.active))
	}
}

// after is the time at which the front end deals with what comes at time t.
func (s *scrapes) after(t float64) float64 {
	if k := s.index(t); k >= 0 && t < s.stalls[k].to {
		return s.stalls[k].to
	}
	return t
}

// index is the latest stall that began by time t, -1 if there is none.
func (s *scrapes) index(t float64) int {
	return sort.Search(len(s.stalls), func(k int) bool { return s.stalls[k].from > t }) - 1
}

// pieces is in how many pieces n tokens reach the client that are generated
// evenly between two times: those of a stall come in one.
func (s *scrapes) pieces(n, from, to float64) float64 {
	a, b := s.index(from), s.index(to)
	if b < 0 || !(to > from) {
		return n
	}
	until := func(k int, t float64) float64 {
		if k < 0 {
			return 0
		}
		return s.stalls[k].before + min(t, s.stalls[k].to) - s.stalls[k].from
	}
	bundled := (until(b, to) - until(a, from)) * n / (to - from)
	return max(n-max(bundled-float64(b-a), 0), 1)
}
