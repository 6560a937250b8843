package router

import (
	"math"
	"testing"

	"lorasim/trace"
)

// fixedTwin predicts the same latencies for all requests, and keeps the future.
type fixedTwin struct{ future *Future }

func (f *fixedTwin) Simulate(_ *Router, x *Future) (*Outcome, error) {
	f.future = x
	o := &Outcome{}
	for range x.Requests {
		o.E2E, o.TTFT = append(o.E2E, 2), append(o.TTFT, 0.5)
	}
	return o, nil
}

// A snapshot has the requests that have ended until then, with the workers that served them; a twin gets all of them
// and the state of the workers.
func TestSnapshot(t *testing.T) {
	env := testEnv(3, 4)
	v, h := testView(env), NewHistory(32)
	v.Workers[1].Adapters[2].Tier = GPU
	v.Workers[1].Slots = 1
	v.Workers[2].Up = false
	for i := range int64(40) {
		v.Now = float64(i)
		h.Sent(Request{ID: i, Adapter: trace.BaseModel, Prompt: 10, MaxNew: 10}, int(i%2), v.Now)
		if i%4 != 3 { // else it does not end
			h.Finished(Finished{ID: i, Worker: int32(i % 2), Output: 5, E2E: 3, TTFT: 1, Now: v.Now})
		}
	}
	s := h.Snapshot(v)
	h.Finished(Finished{ID: 39, Worker: 1, Output: 5, E2E: 3, TTFT: 1})
	if list := s.Ended(); len(list) != 24 || list[0].Sent != 8 || list[23].Sent != 38 ||
		!math.IsNaN(list[0].PredictedE2E) {
		t.Errorf("%d requests have ended, expected 24: %+v", len(list), list)
	}
	twin := &fixedTwin{}
	list, err := s.Replay(twin, []float64{1, 2, 1}, nil)
	if err != nil || len(list) != 18 { // all but a quarter of 32 requests, of which a quarter has not ended
		t.Fatalf("%d requests, %v", len(list), err)
	}
	for i, r := range list {
		if want := (Replayed{Worker: int32(int(r.Sent) % 2), Adapter: trace.BaseModel, Output: 5, Sent: r.Sent, TTFT: 1,
			E2E: 3, PredictedTTFT: 0.5, PredictedE2E: 2}); r != want ||
			r.Sent < 16 || i > 0 && r.Sent <= list[i-1].Sent {
			t.Errorf("request %d is %+v, expected %+v", i, r, want)
		}
	}
	f := twin.future
	if len(f.Requests) != 32 || f.Requests[0].Arrival != 0 || f.Requests[31].Arrival != 31 || f.Slower[1] != 2 {
		t.Errorf("the twin gets %d requests, factors %v", len(f.Requests), f.Slower)
	}
	if st := f.State; len(st.Down) != 1 || st.Down[0] != 2 || len(st.Slots[1]) != 1 || st.Slots[1][0] != 2 {
		t.Errorf("%+v", st)
	}
	if list, err := NewHistory(8).Snapshot(v).Replay(twin, nil, nil); list != nil || err != nil {
		t.Errorf("of no request: %v, %v", list, err)
	}
}
