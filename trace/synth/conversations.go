package synth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/lengths"
)

// The kinds of Conversations.
const (
	Chat      = "chat"      // people with short questions
	Documents = "documents" // people of whose messages some bring a document along (Mooncake)
	Agents    = "agents"    // programs that use tools, with many short turns
)

// Conversations makes each request of a source the first turn of a conversation,
// whose later turns repeat what was said before: a prompt is the adapter's system
// prompt, the turns so far and a new message. The number of turns is geometric
// with mean Turns or, with TurnsSigma, lognormal with median Turns; all other
// numbers that have a sigma are lognormal with that median.
//
// Think is the time from the end of a turn to the next one. Arrivals are stamped
// in advance, and nobody knows yet how long a reply will take, so Pace seconds a
// token stand for it: a turn that takes longer ends after the next one has begun.
//
// Medians and shares are those of published traces: Mooncake's conversations
// (arXiv:2407.00079), ServeGen (arXiv:2505.09999) and traces of coding agents.
type Conversations struct {
	Kind                    string // "": none
	Turns, TurnsSigma       float64
	Think, ThinkSigma       float64 // s
	Pace                    float64 // s a token of a reply
	System                  float64 // tokens of the system prompt of an adapter
	Shared                  float64 // 1: all adapters have the same one
	New, NewSigma           float64 // tokens of a message
	Documents               float64 // share of messages with a document
	Document, DocumentSigma float64 // tokens of a document
	Replies                 float64 // 0: prompts do not repeat the replies, as of models that think
	Edits                   float64 // share of later turns that replace the last message
	Context                 float64 // longest prompt and reply; what is longer loses its front, see turn
}

var conversationKinds = map[string]Conversations{
	Chat: {Turns: 3.5, Think: 100, ThinkSigma: 1.24, System: 500, New: 20, NewSigma: 1.2, Context: 4000},
	Documents: {Turns: 3.5, Think: 100, ThinkSigma: 1.24, System: 1000, New: 20, NewSigma: 1.2,
		Documents: 0.23, Document: 4000, DocumentSigma: 0.8, Context: 131072},
	Agents: {Turns: 45, TurnsSigma: 0.97, Think: 10, ThinkSigma: 2.2, System: 15000, New: 280, NewSigma: 1.8,
		Context: 131072},
}

// maxTurns bounds what a heavy tail of turns can make of one conversation.
const maxTurns = 10_000

func (c *Conversations) numbers() []number {
	return []number{
		{"turns", &c.Turns, " turns", ">=1 <=1e3"}, {"turns_sigma", &c.TurnsSigma, "", ">=0 <=5"},
		{"think", &c.Think, " s", ">=0 <=1e6"}, {"think_sigma", &c.ThinkSigma, "", ">=0 <=5"},
		{"pace", &c.Pace, " s", ">=0 <=1e3"},
		{"system", &c.System, " tokens", ">=0 <=1e6"}, {"shared", &c.Shared, "", ">=0 <=1"},
		{"new", &c.New, " tokens", ">=1 <=1e6"}, {"new_sigma", &c.NewSigma, "", ">=0 <=5"},
		{"documents", &c.Documents, "", ">=0 <=1"}, {"document", &c.Document, " tokens", ">=1 <=1e6"},
		{"document_sigma", &c.DocumentSigma, "", ">=0 <=5"},
		{"replies", &c.Replies, "", ">=0 <=1"}, {"edits", &c.Edits, "", ">=0 <=1"},
		{"context", &c.Context, " tokens", ">=16 <=1e8"},
	}
}

// ParseConversations reads "chat", "documents:think=60" or
// "agents:turns=20,turns_sigma=0,system=8000"; an empty spec is none.
func ParseConversations(spec string) (Conversations, error) {
	c, err := parseKind(spec, []string{Chat, Documents, Agents}, (*Conversations).numbers,
		func(kind string) Conversations {
			c := conversationKinds[kind]
			c.Kind, c.Pace, c.Replies, c.Document = kind, 0.05, 1, cmp.Or(c.Document, 4000)
			return c
		})
	switch {
	case err != nil:
	case c.Shared != math.Trunc(c.Shared) || c.Replies != math.Trunc(c.Replies):
		err = errors.New("shared and replies are 0 or 1")
	case c.Context < 4*c.System:
		err = fmt.Errorf("a context of %v tokens is less than four times the system prompt (%v)", c.Context, c.System)
	}
	return parsed("conversations", spec, c, err)
}

// survival are the probabilities of more than 0, 1, 2, ... turns.
func (c Conversations) survival() (s []float64) {
	for n := range maxTurns {
		p := math.Pow(1-1/c.Turns, float64(n))
		if c.TurnsSigma > 0 && n > 0 {
			p = math.Erfc(math.Log((float64(n)+0.5)/c.Turns)/c.TurnsSigma/math.Sqrt2) / 2
		}
		if p < 1e-12 {
			break
		}
		s = append(s, p)
	}
	return s
}

// MeanTurns is the mean number of turns.
func (c Conversations) MeanTurns() float64 { return sum(c.survival()) }

func sum(xs []float64) (total float64) {
	for _, x := range xs {
		total += x
	}
	return total
}

// ConverseOptions of Converse.
type ConverseOptions struct {
	Lengths  lengths.Sampler // the prompt of a first turn is its message, outputs are replies
	Rate     float64         // conversations that begin, in 1/s
	Going    trace.Source    // the adapters of those that are in progress at time 0
	Requests int64           // end after so many; 0: no limit
	Duration float64         // end at this time, s; 0: no limit
	Seed     uint64
}

// Converse makes conversations begin where a source has requests. It begins in the
// steady state, with as many in progress as there are on average. Memory follows
// those in progress.
func Converse(starts trace.Source, law Conversations, o ConverseOptions) (trace.Source, error) {
	c := &conversations{Source: starts, law: law, ConverseOptions: o, rng: stream(o.Seed, forTurns, 0),
		survival: law.survival(), system: make([]*trace.Text,
			len(starts.Adapters())+1), texts: int64(len(starts.Adapters()))}
	if err := c.begin(); err != nil {
		return nil, err
	}
	return ending(starts.Adapters(), o.Requests, o.Duration, c.next), c.fetch()
}

// conversations merges beginnings with the later turns of those in progress.
type conversations struct {
	trace.Source // of beginnings
	ConverseOptions
	law      Conversations
	rng      *rand.Rand
	survival []float64

	head  trace.Request // the next beginning
	open  items[conversation]
	queue renewal.Queue // next turns

	system []*trace.Text // by adapter, the base model's last
	texts  int64         // number of the latest
}

type conversation struct {
	text          *trace.Text
	adapter, left int32 // turns to come
	prompt, reply int32 // of the turn before; 0: none
	message       int32 // its new tokens
}

// fetch reads the next beginning.
func (c *conversations) fetch() (err error) {
	if c.head, err = c.Source.Next(); errors.Is(err, io.EOF) {
		c.head.Arrival, err = math.Inf(1), nil
	}
	return err
}

// maxOpen bounds the conversations in progress, and with them the memory: some 100 bytes each.
const maxOpen = 4 << 20

// begin opens the conversations in progress at time 0. The gap that lies around
// that time follows turn n with a probability proportional to that of more than n
// turns, is longer than most, and ends evenly within its length.
func (c *conversations) begin() error {
	later, sigma := c.survival[1:], c.law.ThinkSigma
	mean := c.Rate * sum(later) * c.law.Think * math.Exp(sigma*sigma/2)
	if mean > maxOpen {
		return fmt.Errorf("conversations: %.3g are in progress at a time (rate x think time x later turns), "+
			"expected at most %d: lower the rate or think", mean, maxOpen)
	}
	cumulative := make([]float64, len(later))
	total := 0.0
	for i, p := range later {
		total += p
		cumulative[i] = total
	}
	for t := c.rng.ExpFloat64(); t < mean; t += c.rng.ExpFloat64() {
		r, err := c.Going.Next()
		if err != nil {
			return err
		}
		before := 1 + sort.SearchFloat64s(cumulative, c.rng.Float64()*total)
		v := conversation{adapter: r.Adapter, left: c.turns(c.survival[before])}
		for range before {
			c.turn(&v)
		}
		c.wait(v, c.rng.Float64()*c.think(c.law.Think*math.Exp(sigma*sigma)))
	}
	return nil
}

// turns draws the number of turns of a conversation, of those that only so many
// have more than.
func (c *conversations) turns(most float64) int32 {
	u := most * (1 - c.rng.Float64())
	return int32(sort.Search(len(c.survival), func(n int) bool { return c.survival[n] < u }))
}

func (c *conversations) think(median float64) float64 { return c.draw(median, c.law.ThinkSigma) }

func (c *conversations) draw(median, sigma float64) float64 {
	return median * math.Exp(sigma*c.rng.NormFloat64())
}

// wait opens a conversation whose next turn is due.
func (c *conversations) wait(v conversation, at float64) {
	c.queue.Push(renewal.Event{At: at, Item: c.open.add(v)})
}

// next returns the next turn of any conversation.
func (c *conversations) next() (trace.Request, error) {
	at, later := c.head.Arrival, false
	if len(c.queue) > 0 && c.queue[0].At <= at {
		at, later = c.queue[0].At, true
	}
	if math.IsInf(at, 1) {
		return trace.Request{}, io.EOF
	}
	var v conversation
	if later {
		item := c.queue[0].Item
		c.queue.Pop()
		v = c.open.remove(item)
	} else {
		v = conversation{adapter: c.head.Adapter, left: c.turns(1)}
		if err := c.fetch(); err != nil {
			return trace.Request{}, err
		}
	}
	r := c.turn(&v)
	r.Arrival = at
	if v.left > 0 {
		c.wait(v, at+float64(r.Output)*c.law.Pace+c.think(c.law.Think))
	}
	return r, nil
}

// turn is the next turn of a conversation. One that does not fit the context goes
// on with the system prompt and the last half of what there is room for beyond it,
// the whole message in any case: these have other tokens before them now, so all
// but the system prompt is new.
func (c *conversations) turn(v *conversation) trace.Request {
	message, reply := c.Lengths.Draw(c.rng)
	system := c.systemOf(v.adapter)
	before := int32(c.law.System)
	switch {
	case v.text == nil:
		v.text = c.text(system, before)
	case c.rng.Float64() < c.law.Edits:
		before = v.prompt - v.message
		v.text = c.text(v.text, before)
		message = c.message()
	default:
		if before = v.prompt; c.law.Replies > 0 {
			before += v.reply
		}
		message = c.message()
	}
	context := int32(c.law.Context)
	reply = min(reply, context/2)
	prompt := int32(min(int64(before)+int64(message), int64(context)+1))
	if prompt > context-reply {
		room := context - reply - int32(c.law.System)
		prompt = int32(c.law.System) + max(min(message, room), room/2)
		v.text = c.text(system, int32(c.law.System))
	}
	v.message = min(message, prompt-int32(c.law.System))
	v.prompt, v.reply = prompt, reply
	v.left--
	r := trace.Request{Adapter: v.adapter, Prompt: prompt, Output: reply, Text: v.text}
	if c.law.Replies > 0 {
		r.Reply = v.text
	}
	return r
}

// message draws the tokens of a later message.
func (c *conversations) message() int32 {
	median, sigma := c.law.New, c.law.NewSigma
	if c.law.Documents > 0 && c.rng.Float64() < c.law.Documents {
		median, sigma = c.law.Document, c.law.DocumentSigma
	}
	return int32(min(1+c.draw(median, sigma), 1e8))
}

// text is a new text.
func (c *conversations) text(parent *trace.Text, start int32) *trace.Text {
	c.texts++
	return &trace.Text{Parent: parent, Start: start, ID: c.texts}
}

// systemOf is the system prompt of an adapter, nil where it has none.
func (c *conversations) systemOf(adapter int32) *trace.Text {
	if c.law.System == 0 {
		return nil
	}
	if adapter == trace.BaseModel {
		adapter = int32(len(c.system)) - 1
	}
	if c.law.Shared > 0 {
		adapter = 0
	}
	if c.system[adapter] == nil {
		c.system[adapter] = &trace.Text{ID: int64(adapter)}
	}
	return c.system[adapter]
}
