// Package trace makes workloads: lists of requests with arrival time, adapter
// and token counts. Everything in and below it (file formats, replay,
// generators, length sources) exists to produce one.
//
// A workload flows as a [Source], one request at a time, so that a trace of
// 10^8 requests costs no more memory than one of 10; [Collect] turns a source
// into a [Workload] in memory, and [Workload.Source] turns it back.
//
//	src, err := synth.New(synth.Default())
//	w, err := trace.Collect(trace.Limit(src, 1000))
package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
)

// BaseModel is the adapter index of a request that uses no adapter.
const BaseModel int32 = -1

// Request is one arrival of a workload.
type Request struct {
	ID      int64   // ascending in the order of arrival
	Arrival float64 // s since the start of the workload
	Adapter int32   // index into the workload's adapters, or BaseModel
	Prompt  int32   // prompt tokens, >= 1
	Output  int32   // tokens the request generates, >= 1
	MaxNew  int32   // max_new_tokens the client asks for; 0: the same as Output

	Text  *Text // what the prompt is the beginning of; nil: it is like no other
	Reply *Text // what prompt and reply are the beginning of; nil: no prompt repeats the reply
}

// Budget is the max_new_tokens the client asks for.
func (r Request) Budget() int32 {
	if r.MaxNew > 0 {
		return r.MaxNew
	}
	return r.Output
}

// Check says what is wrong with a request of a workload that has the given
// number of adapters, or nil.
func (r Request) Check(adapters int) error {
	switch {
	case math.IsNaN(r.Arrival) || math.IsInf(r.Arrival, 0) || r.Arrival < 0:
		return fmt.Errorf("arrival_s is %v, expected a finite number >= 0", r.Arrival)
	case r.Adapter < BaseModel || int(r.Adapter) >= adapters:
		return fmt.Errorf("adapter is %d, expected -1 (base model) to %d", r.Adapter, adapters-1)
	case r.Prompt < 1:
		return fmt.Errorf("prompt_tokens is %d, expected >= 1", r.Prompt)
	case r.Output < 1:
		return fmt.Errorf("output_tokens is %d, expected >= 1", r.Output)
	case r.MaxNew != 0 && r.MaxNew < r.Output:
		return fmt.Errorf("max_new_tokens is %d, expected >= output_tokens (%d)", r.MaxNew, r.Output)
	}
	return nil
}

// Adapter is one LoRA adapter.
type Adapter struct {
	Name string `json:"name"`
	Rank int    `json:"rank,omitempty"` // LoRA rank; 0: not stated
	// Priority of its requests, for engines that look at it. Of files, Parquet and
	// Arrow state it.
	Priority int `json:"priority,omitempty"`
}

// Source yields the requests of a workload in the order of arrival.
type Source interface {
	// Adapters returns the workload's adapters; known before the first Next.
	Adapters() []Adapter
	// Len returns the number of requests still to come, -1 if it is not known.
	Len() int64
	// Next returns the next request, or io.EOF after the last one.
	Next() (Request, error)
}

// All yields the requests of a source; an error comes last.
func All(s Source) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for {
			r, err := s.Next()
			if errors.Is(err, io.EOF) || !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Generate returns a source of the requests that next makes, numbered from 0: n of
// them or, where n is -1, until next returns io.EOF.
func Generate(adapters []Adapter, n int64, next func() (Request, error)) Source {
	return &generated{adapters, n, 0, next}
}

type generated struct {
	adapters []Adapter
	n, id    int64
	next     func() (Request, error)
}

func (g *generated) Adapters() []Adapter { return g.adapters }
func (g *generated) Len() int64          { return max(g.n-g.id, -1) }
func (g *generated) Next() (Request, error) {
	if g.id == g.n {
		return Request{}, io.EOF
	}
	r, err := g.next()
	if err != nil {
		return Request{}, err
	}
	r.ID = g.id
	g.id++
	return r, nil
}

// Workload is a workload in memory.
type Workload struct {
	Adapters []Adapter
	Requests []Request
}

// Source returns a new source over the workload's requests.
func (w *Workload) Source() Source { return &memory{w: w} }

type memory struct {
	w    *Workload
	next int
}

func (m *memory) Adapters() []Adapter { return m.w.Adapters }
func (m *memory) Len() int64          { return int64(len(m.w.Requests) - m.next) }
func (m *memory) Next() (Request, error) {
	if m.next == len(m.w.Requests) {
		return Request{}, io.EOF
	}
	m.next++
	return m.w.Requests[m.next-1], nil
}

// Collect reads a source to its end.
func Collect(s Source) (*Workload, error) {
	w := &Workload{Adapters: s.Adapters(), Requests: make([]Request, 0, max(s.Len(), 0))}
	for r, err := range All(s) {
		if err != nil {
			return nil, err
		}
		w.Requests = append(w.Requests, r)
	}
	return w, nil
}

// Limit ends a source after n requests.
func Limit(s Source, n int64) Source { return &limited{Source: s, left: max(n, 0)} }

type limited struct {
	Source
	left int64
}

func (l *limited) Len() int64 { return min(l.left, l.Source.Len()) }

func (l *limited) Next() (Request, error) {
	if l.left == 0 {
		return Request{}, io.EOF
	}
	l.left--
	return l.Source.Next()
}

// Named gives the adapters of a source names of their own.
func Named(s Source, names []string) (Source, error) {
	as := slices.Clone(s.Adapters())
	if len(as) != len(names) {
		return nil, fmt.Errorf("%d names for %d adapters", len(names), len(as))
	}
	for i := range as {
		as[i].Name = names[i]
	}
	return &named{s, as}, nil
}

type named struct {
	Source
	adapters []Adapter
}

func (n *named) Adapters() []Adapter { return n.adapters }

// Watch calls f now and then with the number of requests that a source has
// yielded; an error of f ends the source.
func Watch(s Source, f func(n int64) error) Source { return &watched{Source: s, f: f} }

type watched struct {
	Source
	f func(n int64) error
	n int64
}

func (w *watched) Next() (Request, error) {
	if w.n&0xff == 0 {
		if err := w.f(w.n); err != nil {
			return Request{}, err
		}
	}
	w.n++
	return w.Source.Next()
}

// Names returns n adapters named lora0, lora1, ... whose ranks are taken from
// ranks in turn (none: not stated).
func Names(n int, ranks []int) []Adapter {
	as := make([]Adapter, n)
	for i := range as {
		as[i].Name = fmt.Sprintf("lora%d", i)
		if len(ranks) > 0 {
			as[i].Rank = ranks[i%len(ranks)]
		}
	}
	return as
}
