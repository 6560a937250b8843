package router

import (
	"iter"

	"lorasim/trace"
)

// History keeps the latest requests for the router that replaces another one while requests run, for example when
// workers join or adapters are added. See [Router.Succeed].
type History struct {
	ring []PastRequest   // request number n is at ring[n%len(ring)]
	n    int64           // requests seen
	byID map[int64]int64 // numbers of the requests in the ring
}

// PastRequest is a request that was sent to a worker, and what became of it.
type PastRequest struct {
	ID                      int64
	Sent                    float64 // time of routing, on the clock of the view, s
	Adapter, Prompt, MaxNew int32
	Text                    *trace.Text
	Worker                  int32   // None: its worker has left
	Output                  int32   // tokens; 0: the request has not ended
	E2E, TTFT               float64 // s
}

// NewHistory returns a history that keeps the latest n requests.
func NewHistory(n int) *History {
	return &History{ring: make([]PastRequest, n), byID: make(map[int64]int64, n)}
}

// Sent notes the worker to which a request was sent.
func (h *History) Sent(r Request, worker int, now float64) {
	if worker == None {
		return
	}
	s := h.at(h.n)
	if h.n >= int64(len(h.ring)) {
		delete(h.byID, s.ID)
	}
	*s = PastRequest{ID: r.ID, Sent: now, Adapter: r.Adapter, Prompt: r.Prompt, MaxNew: r.MaxNew, Text: r.Text,
		Worker: int32(worker)}
	h.byID[r.ID] = h.n
	h.n++
}

// Finished notes the end of a request.
func (h *History) Finished(f Event) {
	if n, ok := h.byID[f.ID]; ok && h.at(n).Worker != None {
		s := h.at(n)
		s.Output, s.E2E, s.TTFT, s.Worker = max(f.Output, 1), f.E2E, f.TTFT, f.Worker
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
		if s := h.at(n); s.Output > 0 && s.Worker != None {
			list = append(list, Ended{s.Worker, s.Adapter, s.Output, s.Sent, s.TTFT, s.E2E})
		}
	}
	return list
}

// Latest yields at most n of the latest requests, the oldest of them first.
func (h *History) Latest(n int) iter.Seq[*PastRequest] {
	return func(yield func(*PastRequest) bool) {
		for i := max(h.oldest(), h.n-int64(n)); i < h.n; i++ {
			if !yield(h.at(i)) {
				return
			}
		}
	}
}

// All yields all requests that the history keeps, the oldest first.
func (h *History) All() iter.Seq[*PastRequest] { return h.Latest(len(h.ring)) }

func (h *History) at(n int64) *PastRequest { return &h.ring[n%int64(len(h.ring))] }

// oldest is the number of the first request that the history holds.
func (h *History) oldest() int64 { return max(0, h.n-int64(len(h.ring))) }

// vacate forgets that requests were sent to a slot, whose worker has left.
func (h *History) vacate(slot int) {
	for n := h.oldest(); n < h.n; n++ {
		if s := h.at(n); int(s.Worker) == slot {
			s.Worker = None
		}
	}
}
