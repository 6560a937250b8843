package router

import "lorasim/trace"

// History keeps the latest requests for the router that replaces another one while requests run, for example when
// workers join or adapters are added. See [Router.Succeed].
type History struct {
	ring []seen          // request number n is at ring[n%len(ring)]
	n    int64           // requests seen
	byID map[int64]int64 // numbers of the requests in the ring
}

// seen is a request and what became of it.
type seen struct {
	id                      int64
	at                      float64 // s
	adapter, prompt, maxNew int32
	text                    *trace.Text
	worker                  int32 // None: its worker has left
	output                  int32 // tokens; 0: the request has not ended
	e2e, ttft               float64
}

// NewHistory returns a history that keeps the latest n requests.
func NewHistory(n int) *History {
	return &History{ring: make([]seen, n), byID: make(map[int64]int64, n)}
}

// Sent notes the worker to which a request was sent.
func (h *History) Sent(r Request, worker int, now float64) {
	if worker == None {
		return
	}
	s := h.at(h.n)
	if h.n >= int64(len(h.ring)) {
		delete(h.byID, s.id)
	}
	*s = seen{id: r.ID, at: now, adapter: r.Adapter, prompt: r.Prompt, maxNew: r.MaxNew, text: r.Text,
		worker: int32(worker)}
	h.byID[r.ID] = h.n
	h.n++
}

// Finished notes the end of a request.
func (h *History) Finished(f Event) {
	if n, ok := h.byID[f.ID]; ok && h.at(n).worker != None {
		s := h.at(n)
		s.output, s.e2e, s.ttft, s.worker = max(f.Output, 1), f.E2E, f.TTFT, f.Worker
	}
}

// Ended is a request that has ended. Times in s.
type Ended struct {
	Worker, Adapter, Output int32
	Sent                    float64 // time of routing, on the clock of the view
	TTFT, E2E               float64
}

// Ended returns the requests that have ended, in the order of their routing.
func (h *History) Ended() []Ended {
	var list []Ended
	for n := h.oldest(); n < h.n; n++ {
		if s := h.at(n); s.output > 0 && s.worker != None {
			list = append(list, Ended{s.worker, s.adapter, s.output, s.at, s.ttft, s.e2e})
		}
	}
	return list
}

func (h *History) at(n int64) *seen { return &h.ring[n%int64(len(h.ring))] }

// oldest is the number of the first request that the history holds.
func (h *History) oldest() int64 { return max(0, h.n-int64(len(h.ring))) }

// vacate forgets that requests were sent to a slot, whose worker has left.
func (h *History) vacate(slot int) {
	for n := h.oldest(); n < h.n; n++ {
		if s := h.at(n); int(s.worker) == slot {
			s.worker = None
		}
	}
}
