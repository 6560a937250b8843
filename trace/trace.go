// Package trace defines workloads: lists of requests with arrival time, adapter and token counts. The packages below
// it read, write, generate, replay and change workloads.
//
// A [Source] yields the requests of a workload one at a time, so a trace of 10^8 requests needs no more memory than
// one of 10. [Collect] reads a source into a [Workload] in memory; [Workload.Source] returns a source over it. The
// [Text] of a request identifies the prefix that its prompt shares with other prompts.
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

// BaseModel is the adapter index of a request to the base model, without an adapter.
const BaseModel int32 = -1

// A Request is one request of a workload.
type Request struct {
	ID      int64   // ascending with the arrival time
	Arrival float64 // s from the start of the workload, >= 0
	Adapter int32   // index into the adapters of the workload, or BaseModel
	Prompt  int32   // prompt tokens, >= 1
	Output  int32   // output tokens, >= 1
	MaxNew  int32   // max_new_tokens of the request; 0: the same as Output

	Text  *Text // text that begins with the prompt; nil: the prompt shares no prefix
	Reply *Text // text that begins with the prompt and the reply; nil: no prompt repeats the reply
}

// Budget returns the max_new_tokens of the request: MaxNew, or Output where MaxNew is 0.
func (r Request) Budget() int32 {
	if r.MaxNew > 0 {
		return r.MaxNew
	}
	return r.Output
}

// Check returns an error if r is not a valid request of a workload with the given number of adapters.
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

// An Adapter is one LoRA adapter.
type Adapter struct {
	Name string `json:"name"`
	Rank int    `json:"rank,omitempty"` // LoRA rank; 0: unknown
	// Priority is the priority of the adapter's requests, for engines that schedule by priority. Of the file
	// formats, only Parquet and Arrow hold it.
	Priority int `json:"priority,omitempty"`
}

// A Source yields the requests of a workload in the order of arrival.
type Source interface {
	// Adapters returns the adapters of the workload. It is valid before the first Next.
	Adapters() []Adapter
	// Len returns the number of requests that remain, -1 if it is unknown.
	Len() int64
	// Next returns the next request, or io.EOF after the last one.
	Next() (Request, error)
}

// All yields the requests of a source. If the source fails, the last pair holds the error.
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

// Generate returns a source of the requests that next returns, numbered from 0. It ends after n requests or, where n
// is -1, when next returns io.EOF.
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
func (g *generated) Next() (r Request, err error) {
	if g.id == g.n {
		return r, io.EOF
	}
	if r, err = g.next(); err == nil {
		r.ID = g.id
		g.id++
	}
	return r, err
}

// A Workload is a workload in memory.
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

// Collect reads a source to its end and returns its requests.
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

// Limit returns a source of the first n requests of s.
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

// Named returns a source with the requests of s and other adapter names. The number of names must be the number of
// adapters.
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

// Watch returns a source with the requests of s. Every 256 requests it calls f with the number of requests so far.
// An error of f ends the source.
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

// Names returns n adapters named lora0, lora1, ... with the given ranks in turn. Without ranks, the ranks are
// unknown.
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

// A Text is a sequence of tokens that several prompts may share: a conversation that grows, a system prompt, or a
// block of a trace that identifies equal blocks by equal ids. Texts form trees: a text follows the first Start
// tokens of its parent. A prompt is a prefix of a text and its ancestors.
//
// Two prompts are equal up to the point where their texts diverge, and different from there on.
type Text struct {
	Parent *Text // text before this one; nil: the prompt begins with this text
	Start  int32 // tokens before this text, those of all ancestors together
	Block  int32 // length of the text, tokens; 0: unlimited
	ID     int64 // id in files
}

// Known returns how many of the first n tokens of a prompt its text determines.
func (t *Text) Known(n int32) int32 {
	if t.Block > 0 {
		return min(n, t.Start+t.Block)
	}
	return n
}

// Common returns the number of tokens that sufficiently long prompts of the two texts have in common.
func (t *Text) Common(u *Text) int32 {
	const all = 1<<31 - 1
	for seen, end := t, int32(all); seen != nil; seen, end = seen.Parent, min(end, seen.Start) {
		for other, limit := u, int32(all); other != nil; other, limit = other.Parent, min(limit, other.Start) {
			if other == seen {
				return min(end, limit)
			}
		}
	}
	return 0
}

// Hash returns a hash of the first n tokens of the text. It depends on ids and positions only, so it is the same in
// every run.
func (t *Text) Hash(n int32) uint64 {
	for t.Start >= n && t.Parent != nil {
		t = t.Parent
	}
	h := uint64(0)
	for ; t != nil; t = t.Parent {
		h = (h ^ uint64(t.ID)<<32 ^ uint64(t.ID)>>32 ^ uint64(t.Start)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// Texts holds the texts of a workload, by parent, start and id.
type Texts map[textKey]*Text

// textKey identifies a text: an id after the first start tokens of its parent.
type textKey struct {
	parent *Text
	start  int32
	id     int64
}

// Of returns the text with the given id that follows the first start tokens of parent. A nil parent means the
// beginning of a prompt. The same arguments always give the same text.
func (t Texts) Of(parent *Text, start int32, id int64) *Text {
	k := textKey{parent, start, id}
	x := t[k]
	if x == nil {
		x = &Text{Parent: parent, Start: start, ID: id}
		t[k] = x
	}
	return x
}

// Blocks holds the texts of prompts that are given as ids of blocks. All blocks have the same number of tokens; the
// last block of a prompt may be cut off. An id identifies a block together with the blocks before it. Blocks keeps
// every block, at 32 bytes each.
type Blocks struct {
	Tokens int32

	first  []*Text // by id, of those below maxFirst: the one met first
	others Texts   // all others
	spare  []Text
}

// Text returns the text of a prompt of the given ids and number of tokens, nil if there are no ids. It returns an
// error if there are more ids than the tokens need.
func (b *Blocks) Text(ids []int64, prompt int32) (*Text, error) {
	if n := (int64(prompt) + int64(b.Tokens) - 1) / int64(b.Tokens); int64(len(ids)) > n {
		return nil, fmt.Errorf("%d ids for %d tokens, expected at most %d of %d tokens each", len(ids), prompt, n,
			b.Tokens)
	}
	var x *Text
	for i, id := range ids {
		x = b.next(x, int32(i)*b.Tokens, id)
	}
	return x, nil
}

// maxFirst bounds the length of Blocks.first, so that one large id does not take much memory.
const maxFirst = 1 << 20

// next returns the block of an id after the block parent.
func (b *Blocks) next(parent *Text, start int32, id int64) *Text {
	if id < 0 || id >= maxFirst {
		return b.other(parent, start, id)
	}
	for int64(len(b.first)) <= id {
		b.first = append(b.first, nil)
	}
	switch x := b.first[id]; {
	case x == nil:
		if len(b.spare) == 0 {
			b.spare = make([]Text, 256)
		}
		x, b.spare = &b.spare[0], b.spare[1:]
		*x = Text{Parent: parent, Start: start, Block: b.Tokens, ID: id}
		b.first[id] = x
		return x
	case x.Parent == parent:
		return x
	}
	return b.other(parent, start, id)
}

func (b *Blocks) other(parent *Text, start int32, id int64) *Text {
	if b.others == nil {
		b.others = Texts{}
	}
	x := b.others.Of(parent, start, id)
	x.Block = b.Tokens
	return x
}

// IDs returns the block ids of a text, nil if the text does not consist of blocks.
func (t *Text) IDs() []int64 {
	if t == nil || t.Block == 0 {
		return nil
	}
	ids := make([]int64, t.Start/t.Block+1)
	for ; t != nil; t = t.Parent {
		ids[t.Start/t.Block] = t.ID
	}
	return ids
}

// Lately finds common prefixes among recent prompts. The zero value is ready to use.
type Lately struct{ now, before Texts }

// lately is the least number of texts that Lately remembers; it remembers at most twice as many.
const lately = 1 << 18

// Prompt returns the text of a prompt given the hashes of its blocks. block is the length of a block, tokens.
func (l *Lately) Prompt(hashes []uint64, block int32) (x *Text) {
	for i, h := range hashes {
		k := textKey{x, int32(i) * block, int64(h)}
		if x = l.now[k]; x != nil {
			continue
		}
		if len(l.now) >= lately || l.now == nil {
			l.now, l.before = Texts{}, l.now
		}
		if x = l.before[k]; x == nil {
			x = &Text{Parent: k.parent, Start: k.start, Block: block, ID: k.id}
		}
		l.now[k] = x
	}
	return x
}
