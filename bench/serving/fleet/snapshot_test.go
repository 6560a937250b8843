package fleet

import (
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/trace"
)

// A snapshot lists adapters by memory, and a limited number of requests of each worker, the oldest first.
func TestSnapshot(t *testing.T) {
	_, f := planned(t)
	k := f.workers[1]
	k.loras.grow(len(f.catalog.adapters) - len(k.loras.rows))
	for a := range int32(3) {
		k.loras.add(a)
	}
	k.view.Slots = 1
	k.loras.used(2)
	k.loras.begin(5, false)
	k.loras.begin(0, true)
	const each = mostDrawn + 10
	for i := range int64(2 * each) {
		r := &Request{Request: router.Request{ID: i, Adapter: trace.BaseModel, Prompt: 7}, booked: float64(-i)}
		k.books.add(r, 0)
		if i < each {
			k.books.start(r)
		}
	}
	s := f.Snapshot()
	w := s.Workers[1]
	if len(s.Workers) != 3 || len(s.Adapters) != 20 || !slices.Equal(w.Slot, []int32{2}) ||
		!slices.Equal(w.Host, []int32{0, 1}) || !slices.Equal(w.Loading, []int32{5}) {
		t.Errorf("worker 1 has %v in slots, %v in host memory, %v under way", w.Slot, w.Host, w.Loading)
	}
	running := 0
	for _, r := range s.Requests {
		if r.Worker != 1 || r.Adapter != trace.BaseModel || r.Prompt != 7 || r.Running != (r.ID < each) {
			t.Errorf("%+v", r)
		}
		if r.Running {
			running++
		}
	}
	if w.Running != each || w.Queued != each || running != mostDrawn || len(s.Requests) != 2*mostDrawn ||
		s.Requests[0].ID != 2*each-1 {
		t.Errorf("%d running and %d waiting requests; %d of %d drawn ones run", w.Running, w.Queued, running,
			len(s.Requests))
	}
}

// Percentiles are those of the sorted values, interpolated.
func TestPercentiles(t *testing.T) {
	var values []float64
	for i := range 101 {
		values = append(values, float64((i*37)%101))
	}
	if got := percentiles(values); *got != (Percentiles{50, 90, 99}) {
		t.Errorf("of 0 to 100: %+v", got)
	}
	if got := percentiles([]float64{3}); *got != (Percentiles{3, 3, 3}) {
		t.Errorf("of 3: %+v", got)
	}
	if got := percentiles([]float64{4, 2}); got.P50 != 3 || got.P90 != 3.8 {
		t.Errorf("of 2 and 4: %+v", got)
	}
}

// A worker without requests has no latencies.
func TestLatencies(t *testing.T) {
	_, f := planned(t)
	for i := range int64(10) {
		q := router.Request{ID: i, Adapter: trace.BaseModel}
		f.history.Sent(q, 1, float64(i))
		f.history.Finished(router.Event{Kind: router.Finished, ID: i, Worker: 1, Output: 11, E2E: 3, TTFT: 1})
	}
	list := f.Latencies()
	if len(list) != 3 || list[0].Requests != 0 || list[0].E2E != nil {
		t.Fatalf("%+v", list)
	}
	l := list[1]
	if l.Requests != 10 || l.TTFT.P99 != 1 || l.TPOT.P50 != 0.2 || l.E2E.P90 != 3 {
		t.Errorf("%+v", l)
	}
}
