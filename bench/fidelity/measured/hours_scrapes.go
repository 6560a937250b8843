package measured

import (
	"slices"
	"sort"

	"lorasim/router"
)

// scrapes is the effect of metrics scrapes on the server's front end.
//
// vLLM exports the adapters with requests as labels of a gauge, vllm:lora_requests_info
// (PrometheusStatLogger.record in v1/metrics/loggers.py). Each distinct list of adapters, in the
// order in which they came to have requests, stays as a time series of its own. The metrics page
// therefore grows with every new list. A scrape every two seconds makes the front end render the
// whole page and do nothing else. The engine goes on in a process of its own, but new requests
// wait, and the tokens generated meanwhile reach their client in one piece. With 8 adapters there
// are few lists. With 128 adapters the page takes most of a second at the end of an hour. If every
// adapter always has requests, the list never changes.
type scrapes struct {
	seen   [2]int64            // the worker's counts of requests and of their tokens at the latest look
	listed []bool              // whether an adapter is in active
	active []int32             // adapters with requests, in the order in which they got them
	known  map[uint64]struct{} // hashes of lists seen
	names  int64               // number of adapters in all lists
	next   float64             // time of the next scrape, s
	stalls []stall
}

// stall is a time, s, in which the front end renders metrics. before is the total length of all
// earlier stalls.
type stall struct{ from, to, before float64 }

const (
	scrapeEvery = 2.0 // s: the interval of the series in the table of runs
	// Times to render a list, s: a fixed part and a part for each name in it, for both labels
	// together. They come from ITL / TPOT of the calibration runs without a queue.
	scrapeList = 18.5e-6
	scrapeName = 0.1e-6
)

// watch records the adapters with requests up to a time, s.
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

// look records the list of adapters with requests if it is new.
func (s *scrapes) look(w *router.Worker) {
	if s.listed == nil {
		s.listed = make([]bool, w.NumAdapters())
	}
	has := func(a int32) bool { return w.Adapter(a).Running+w.Adapter(a).Queued > 0 }
	n := len(s.active)
	s.active = slices.DeleteFunc(s.active, func(a int32) bool {
		s.listed[a] = has(a)
		return !s.listed[a]
	})
	changed := len(s.active) < n
	for a := range int32(len(s.listed)) {
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

// after returns the time at which the front end handles an event of time t.
func (s *scrapes) after(t float64) float64 {
	if k := s.index(t); k >= 0 && t < s.stalls[k].to {
		return s.stalls[k].to
	}
	return t
}

// index returns the index of the latest stall that began by time t, or -1.
func (s *scrapes) index(t float64) int {
	return sort.Search(len(s.stalls), func(k int) bool { return s.stalls[k].from > t }) - 1
}

// pieces returns the number of pieces in which n tokens reach the client if they are generated
// evenly between two times. The tokens of a stall arrive in one piece.
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
