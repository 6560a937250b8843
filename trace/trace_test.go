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
		{ID: 0, Prompt: 1, Output: 1}, {ID: 1, Arrival: 1, Prompt: 2, Output: 3}, {ID: 2, Arrival: 1, Prompt: 2, Output: 3},
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
	src := w.Source()
	src.Next()
	if n := src.(Sized).Len(); n != 2 {
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
func (f *failing) Next() (Request, error) {
	if f.n++; f.n > 2 {
		return Request{}, f.err
	}
	return Request{Prompt: 1, Output: 1}, nil
}

func TestCheck(t *testing.T) {
	good := Request{Arrival: 1, Adapter: 1, Prompt: 5, Output: 7}
	if err := good.Check(2); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Request){
		"arrival_s":      func(r *Request) { r.Arrival = -1 },
		"finite":         func(r *Request) { r.Arrival = math.NaN() },
		"adapter":        func(r *Request) { r.Adapter = 2 },
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
	want := []Adapter{{"lora0", 8}, {"lora1", 64}, {"lora2", 8}}
	if got := Names(3, []int{8, 64}); !slices.Equal(got, want) {
		t.Errorf("names %v, expected %v", got, want)
	}
	if _, err := (&Workload{}).Source().Next(); err != io.EOF {
		t.Errorf("an empty workload: %v, expected EOF", err)
	}
}
