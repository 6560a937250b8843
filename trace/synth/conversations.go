package synth

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strings"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/lengths"
	"lorasim/trace/settings"
)

// The kinds of Conversations.
const (
	Chat      = "chat"      // users with short questions
	Documents = "documents" // users who attach documents to some messages (Mooncake)
	Agents    = "agents"    // programs that use tools, with many short turns
)

// Conversations makes each request of a source the first turn of a conversation. Later turns repeat the previous
// text: a prompt is the adapter's system prompt, the turns so far and a new message. The number of turns is
// geometric with mean Turns or, with TurnsSigma, lognormal with median Turns. All other numbers with a sigma are
// lognormal with the given median.
//
// Think is the time from the end of a turn to the next turn, s. Arrivals are drawn in advance, when the duration of
// a reply is unknown; Pace, in seconds per output token, estimates it. A turn that takes longer ends after the next
// turn has begun.
//
// Medians and shares are those of published traces: Mooncake's conversations (arXiv:2407.00079), ServeGen
// (arXiv:2505.09999) and traces of coding agents.
type Conversations struct {
	Kind string `key:"-"` // "": none

	Turns         float64 `check:">=1 <=1e3" unit:"turns" help:"turns of a conversation: the mean, or with turns_sigma the median"`
	TurnsSigma    float64 `key:"turns_sigma" check:">=0 <=5" help:"sigma of turns; 0: geometric"`
	Think         float64 `check:">=0 <=1e6" unit:"s" help:"median time from the end of a turn to the next"`
	ThinkSigma    float64 `key:"think_sigma" check:">=0 <=5" help:"sigma of think"`
	Pace          float64 `default:"0.05" check:">=0 <=1e3" unit:"s" help:"time that a token of a reply takes, as stamped in advance"`
	System        float64 `check:">=0 <=1e6" unit:"tokens" help:"length of an adapter's system prompt"`
	Shared        float64 `check:">=0 <=1" help:"1: all adapters have the same system prompt; 0: each its own"`
	New           float64 `check:">=1 <=1e6" unit:"tokens" help:"median length of a message"`
	NewSigma      float64 `key:"new_sigma" check:">=0 <=5" help:"sigma of new"`
	Documents     float64 `check:">=0 <=1" help:"share of messages with a document"`
	Document      float64 `default:"4000" check:">=1 <=1e6" unit:"tokens" help:"median length of a document"`
	DocumentSigma float64 `key:"document_sigma" check:">=0 <=5" help:"sigma of document"`
	Replies       float64 `default:"1" check:">=0 <=1" help:"1: prompts repeat the replies; 0: they do not, as with reasoning models"`
	Edits         float64 `check:">=0 <=1" help:"share of later turns that replace the last message"`
	Context       float64 `check:">=16 <=1e8" unit:"tokens" help:"longest prompt + reply; longer prompts are cut at the front"` // see turn
}

func conversationKinds() []settings.Kind[*Conversations] {
	kind := func(name, summary, preset string) settings.Kind[*Conversations] {
		return settings.Kind[*Conversations]{Name: name, Summary: summary, Preset: preset,
			New: func() *Conversations { return &Conversations{Kind: name} }}
	}
	return []settings.Kind[*Conversations]{
		kind(Chat, "users with short questions",
			"turns=3.5,think=100,think_sigma=1.24,system=500,new=20,new_sigma=1.2,context=4000"),
		kind(Documents, "users who attach documents to some messages",
			"turns=3.5,think=100,think_sigma=1.24,system=1000,new=20,new_sigma=1.2,documents=0.23,document=4000,"+
				"document_sigma=0.8,context=131072"),
		kind(Agents, "programs that use tools, with many short turns",
			"turns=45,turns_sigma=0.97,think=10,think_sigma=2.2,system=15000,new=280,new_sigma=1.8,context=131072"),
	}
}

// ConversationForms returns the forms that ParseConversations reads.
func ConversationForms() []settings.Form { return settings.Forms(conversationKinds()) }

// maxTurns bounds the number of turns of a conversation, which may have a heavy tail.
const maxTurns = 10_000

// ParseConversations parses "chat", "documents:think=60" or "agents:turns=20,turns_sigma=0,system=8000". An empty
// spec means no conversations.
func ParseConversations(spec string) (Conversations, error) {
	if strings.TrimSpace(spec) == "" {
		return Conversations{}, nil
	}
	s, err := settings.Parse("conversations", conversationKinds(), spec)
	if err != nil {
		return Conversations{}, err
	}
	return *s.Value, nil
}

// Check implements settings.Checker.
func (c *Conversations) Check(settings.Given) error {
	switch {
	case c.Shared != math.Trunc(c.Shared) || c.Replies != math.Trunc(c.Replies):
		return errors.New("shared and replies are 0 or 1")
	case c.Context < 4*c.System:
		return fmt.Errorf("a context of %v tokens is less than four times the system prompt (%v)", c.Context, c.System)
	}
	return nil
}

// survival returns the probabilities of more than 0, 1, 2, ... turns.
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

// MeanTurns returns the mean number of turns of a conversation.
func (c Conversations) MeanTurns() float64 { return sum(c.survival()) }

func sum(xs []float64) (total float64) {
	for _, x := range xs {
		total += x
	}
	return total
}

// ConverseOptions are the options of Converse.
type ConverseOptions struct {
	Lengths  lengths.Sampler // lengths: prompts are the messages of first turns, outputs the replies
	Rate     float64         // conversations that begin per second
	Going    trace.Source    // adapters of the conversations in progress at time 0
	Requests int64           // most requests; 0: no limit
	Duration float64         // length of the workload, s; 0: no limit
	Seed     uint64
}

// Converse returns a source in which each request of starts begins a conversation. It begins in the steady state,
// with the mean number of conversations in progress. Memory grows with the conversations in progress.
func Converse(starts trace.Source, law Conversations, o ConverseOptions) (trace.Source, error) {
	c := &conversations{Source: starts, law: law, ConverseOptions: o, rng: stream(o.Seed, forTurns, 0),
		survival: law.survival(), system: make([]*trace.Text,
			len(starts.Adapters())+1), texts: int64(len(starts.Adapters()))}
	if err := c.begin(); err != nil {
		return nil, err
	}
	return ending(starts.Adapters(), o.Requests, o.Duration, c.next), c.fetch()
}

// conversations merges the beginnings of conversations with the later turns of those in progress.
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

// fetch reads the next request that begins a conversation.
func (c *conversations) fetch() (err error) {
	if c.head, err = c.Source.Next(); errors.Is(err, io.EOF) {
		c.head.Arrival, err = math.Inf(1), nil
	}
	return err
}

// maxOpen bounds the conversations in progress, and with them the memory: some 100 bytes each.
const maxOpen = 4 << 20

// begin opens the conversations in progress at time 0. The gap around time 0 follows turn n with a probability
// proportional to the probability of more than n turns. It is length-biased, and time 0 is uniform within it. A gap is
// the time that a reply takes, and a think time. So one of the two is length-biased, with a probability proportional
// to its mean.
func (c *conversations) begin() error {
	later, sigma := c.survival[1:], c.law.ThinkSigma
	cumulative := make([]float64, len(later))
	total := 0.0
	for i, p := range later {
		total += p
		cumulative[i] = total
	}
	thinks := c.law.Think * math.Exp(sigma*sigma/2)
	replies := c.replies()
	replying := c.law.Pace * replies[len(replies)-1] / float64(len(replies)-1)
	mean := c.Rate * total * (thinks + replying)
	if mean > maxOpen {
		return fmt.Errorf("conversations: %.3g are in progress at a time (rate x think time x later turns), "+
			"expected at most %d: lower the rate or think", mean, maxOpen)
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
		var gap float64
		if c.rng.Float64()*(thinks+replying) < thinks {
			gap = c.law.Pace*float64(v.reply) + c.think(c.law.Think*math.Exp(sigma*sigma))
		} else {
			i := max(sort.SearchFloat64s(replies, c.rng.Float64()*replies[len(replies)-1]), 1)
			v.reply = int32(replies[i] - replies[i-1])
			gap = c.law.Pace*float64(v.reply) + c.think(c.law.Think)
		}
		c.wait(v, c.rng.Float64()*gap)
	}
	return nil
}

// replies returns the sums of the lengths of the first 0, 1, 2, ... of many replies.
func (c *conversations) replies() []float64 {
	sums := make([]float64, 4097)
	for i := 1; i < len(sums); i++ {
		_, reply := c.Lengths.Draw(c.rng)
		sums[i] = sums[i-1] + float64(min(reply, int32(c.law.Context)/2))
	}
	return sums
}

// turns draws a number of turns among the share most of the conversations that have the most turns; most 1: among
// all.
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

// turn returns the next turn of a conversation. If the prompt does not fit the context, it is cut. The system prompt
// stays, and of the rest the last half of the room beyond the system prompt, but at least the whole message. The
// tokens after the system prompt then have another prefix, so the prefix cache holds only the system prompt.
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
