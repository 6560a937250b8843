package trace

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCollectAndLimit(t *testing.T) {
	w := &Workload{Adapters: Names(3, []int{8, 64}), Requests: []Request{
		{ID: 0, Prompt: 1, Output: 1}, {ID: 1, Arrival: 1, Prompt: 2, Output: 3},
		{ID: 2, Arrival: 1, Prompt: 2, Output: 3},
	}}
	got, err := Collect(w.Source())
	if err != nil || !slices.Equal(got.Requests, w.Requests) || !slices.Equal(got.Adapters, w.Adapters) {
		t.Errorf("collected %+v, %v", got, err)
	}
	for n, want := range map[int64]int{-1: 0, 0: 0, 2: 2, 9: 3} {
		if got, err := Collect(Limit(w.Source(), n)); err != nil || len(got.Requests) != want {
			t.Errorf("limit %d: %d requests, %v; expected %d", n, len(got.Requests), err, want)
		}
	}
	limit := Limit(w.Source(), 2)
	for want := int64(2); want >= 0; want-- {
		if n := limit.Len(); n != want {
			t.Errorf("limited: %d requests to come, expected %d", n, want)
		}
		limit.Next()
	}
	if n := Limit(w.Source(), 9).Len(); n != 3 {
		t.Errorf("limited to more than there are: %d to come", n)
	}
	src := w.Source()
	src.Next()
	if n := src.Len(); n != 2 {
		t.Errorf("%d requests to come, expected 2", n)
	}
}

// A source that fails part way gives its error, not a short workload.
func TestCollectFails(t *testing.T) {
	broken := errors.New("broken")
	if w, err := Collect(&failing{err: broken}); !errors.Is(err, broken) || w != nil {
		t.Errorf("collected %+v, %v", w, err)
	}
}

type failing struct {
	n   int
	err error
}

func (f *failing) Adapters() []Adapter { return nil }
func (f *failing) Len() int64          { return -1 }
func (f *failing) Next() (Request, error) {
	if f.n++; f.n > 2 {
		return Request{}, f.err
	}
	return Request{Prompt: 1, Output: 1}, nil
}

func TestCheck(t *testing.T) {
	good := Request{Arrival: 1, Adapter: 1, Prompt: 5, Output: 7}
	for _, r := range []Request{
		good,
		{Arrival: 0, Adapter: BaseModel, Prompt: 1, Output: 1, MaxNew: 1},
		{Arrival: math.MaxFloat64, Adapter: 1, Prompt: math.MaxInt32, Output: math.MaxInt32},
	} {
		if err := r.Check(2); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, ok := range []Request{ // the ends of what is allowed
		{Arrival: 0, Adapter: BaseModel, Prompt: 1, Output: 1},
		{Adapter: 0, Prompt: 1, Output: 7, MaxNew: 7},
		{Adapter: 1, Prompt: 1, Output: 7, MaxNew: 8},
	} {
		if err := ok.Check(2); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	bad := good
	bad.Adapter = 2
	if err := bad.Check(2); err == nil || !strings.Contains(err.Error(), "expected -1 (base model) to 1") {
		t.Errorf("adapter 2 of 2: %v", err)
	}
	for want, change := range map[string]func(*Request){
		"arrival_s":      func(r *Request) { r.Arrival = -1 },
		"finite":         func(r *Request) { r.Arrival = math.NaN() },
		"+Inf":           func(r *Request) { r.Arrival = math.Inf(1) },
		"adapter":        func(r *Request) { r.Adapter = 2 },
		"to 1":           func(r *Request) { r.Adapter = 9 },
		"-1 (base":       func(r *Request) { r.Adapter = -2 },
		"prompt_tokens":  func(r *Request) { r.Prompt = 0 },
		"output_tokens":  func(r *Request) { r.Output = -3 },
		"max_new_tokens": func(r *Request) { r.MaxNew = 6 },
	} {
		r := good
		change(&r)
		if err := r.Check(2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected an error about %s", r, err, want)
		}
	}
}

func TestBudgetAndNames(t *testing.T) {
	if (Request{Output: 4}).Budget() != 4 || (Request{Output: 4, MaxNew: 9}).Budget() != 9 {
		t.Error("the budget is max_new_tokens, or the output where that is not stated")
	}
	want := []Adapter{{Name: "lora0", Rank: 8}, {Name: "lora1", Rank: 64}, {Name: "lora2", Rank: 8}}
	if got := Names(3, []int{8, 64}); !slices.Equal(got, want) {
		t.Errorf("names %v, expected %v", got, want)
	}
	for _, a := range Names(2, nil) {
		if a.Rank != 0 {
			t.Errorf("without ranks %s has rank %d", a.Name, a.Rank)
		}
	}
	if _, err := (&Workload{}).Source().Next(); err != io.EOF {
		t.Errorf("an empty workload: %v, expected EOF", err)
	}
}

// Names without ranks have none; Watch tells of every 256th request, keeps the
// number to come, and ends at the first error.
func TestWatch(t *testing.T) {
	w := &Workload{Adapters: Names(2, nil), Requests: make([]Request, 600)}
	if w.Adapters[1] != (Adapter{Name: "lora1"}) {
		t.Errorf("adapter %+v", w.Adapters[1])
	}
	var told []int64
	src := Watch(w.Source(), func(n int64) error { told = append(told, n); return nil })
	if got, err := Collect(src); err != nil || len(got.Requests) != 600 || !slices.Equal(told, []int64{0, 256, 512}) {
		t.Errorf("%d requests, %v, told of %v", len(got.Requests), err, told)
	}
	if n := src.Len(); n != 0 {
		t.Errorf("%d requests to come at the end", n)
	}
	if Watch(&failing{}, nil).Len() >= 0 || Limit(&failing{}, 3).Len() >= 0 {
		t.Error("knows how many requests come of a source that does not")
	}
	stop := errors.New("stop")
	src = Watch(w.Source(), func(n int64) error {
		if n > 0 {
			return stop
		}
		return nil
	})
	if _, err := Collect(src); err != stop || src.Len() != 600-256 {
		t.Errorf("error %v, %d requests to come", err, src.Len())
	}
}

// TestBlocks: an id after the same ids is the same text, whatever its size and
// whatever came between; after other ids, or of another file, it is another one.
func TestBlocks(t *testing.T) {
	b := Blocks{Tokens: 16}
	text := func(ids ...int64) *Text {
		x, err := b.Text(ids, int32(len(ids))*16)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, id := range []int64{5, 5000, -3, 1 << 40} {
		first := text(1, id)
		for i := range int64(3000) {
			text(1, i, id)
		}
		if text(1, id) != first || text(2, id) == first || text(1, 7, id).Start != 32 {
			t.Errorf("id %d: equal blocks are not told from others", id)
		}
	}
}
