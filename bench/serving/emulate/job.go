package emulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"lorasim/sim/record"
	"lorasim/trace"
)

// job is a request in flight with the tokens it generates.
type job struct {
	w      *Worker
	stream *stream
	prompt int
	chain  chain
	eos    int // of the chain; 0 where EOS is ignored
	total  int // tokens it will have, unless it ends early
	out    []int32
	cached int32    // tokens of the prompt found in the prefix cache
	end    progress // once ended
}

// order is a client's request, independent of the interface.
type order struct {
	rid       string
	adapter   string // "": base model
	prompt    []int32
	budget    int
	ignoreEOS bool
	flow      int // of the engine's measures
}

// errUnknownAdapter is the error of a request for an adapter that is not loaded.
type errUnknownAdapter struct{ name string }

func (e errUnknownAdapter) Error() string {
	return fmt.Sprintf("Got LoRA adapter that has never been loaded: %s", e.name) // sglang's words
}

// errAlreadyLoaded is the error of a load of an adapter that is loaded.
type errAlreadyLoaded struct{ name string }

func (e errAlreadyLoaded) Error() string {
	return fmt.Sprintf("Failed to load LoRA adapter %s because it is already loaded", e.name) // sglang's words
}

// start submits an order to the engine.
func (w *Worker) start(o order) (*job, error) {
	if len(o.prompt) == 0 {
		return nil, errors.New("the prompt is empty")
	}
	if o.budget < 1 || o.budget > math.MaxInt32 || len(o.prompt) > math.MaxInt32 {
		return nil, fmt.Errorf("max_new_tokens is %d, expected a number from 1 to %d", o.budget, math.MaxInt32)
	}
	r := trace.Request{Prompt: int32(len(o.prompt)), Output: int32(o.budget), MaxNew: int32(o.budget)}
	known := false
	if r.Adapter, known = w.lookup(o.adapter); !known && o.adapter != "" {
		return nil, errUnknownAdapter{o.adapter}
	}
	j := &job{w: w, prompt: len(o.prompt), chain: newChain(o.adapter)}
	for _, t := range o.prompt {
		j.chain.feed(t)
	}
	if !o.ignoreEOS {
		j.eos = w.cfg.EOSEvery
		r.Output = int32(untilEOS(j.chain, j.eos, o.budget))
	}
	j.total = int(r.Output)
	if w.profile.Engine.PrefixCache {
		w.identify(&r, o.prompt, j)
	}
	var err error
	j.stream, err = w.eng.submit(r, o.rid, o.adapter, o.flow)
	return j, err
}

// identify gives the engine the identities of the blocks of a prompt and its reply, of at least 16 tokens each, so
// that the engine finds prefixes shared with other requests.
func (w *Worker) identify(r *trace.Request, prompt []int32, j *job) {
	size := w.profile.Engine.PageSize
	block := (16 + size - 1) / size * size
	all, c := slices.Grow(slices.Clone(prompt), j.total), j.chain
	for range j.total {
		all = append(all, c.next(j.eos))
	}
	var hashes []uint64
	h := chain(0)
	for i, t := range all {
		if h.feed(t); (i+1)%block == 0 {
			hashes = append(hashes, uint64(h))
		}
	}
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	r.Text = w.seen.Prompt(hashes[:len(prompt)/block], int32(block))
	if r.Reply = w.seen.Prompt(hashes, int32(block)); r.Reply == r.Text {
		r.Reply = nil
	}
}

// untilEOS is the number of tokens up to EOS, at most the budget.
func untilEOS(c chain, eosEvery, budget int) int {
	if eosEvery == 0 {
		return budget
	}
	for n := 1; n < budget; n++ {
		if c.next(eosEvery) == EOS {
			return n
		}
	}
	return budget
}

// await waits for at least n more tokens, or the end, and generates them. It returns false if the client has gone.
func (j *job) await(ctx context.Context, n int) bool {
	from := len(j.out)
	for {
		p := j.stream.look()
		if p.ended || p.tokens-from >= n && p.tokens < j.total { // the end comes with the last token
			for len(j.out) < p.tokens {
				j.out = append(j.out, j.chain.next(j.eos))
			}
			if j.cached = p.cached; p.ended {
				j.end = p
			}
			return true
		}
		select {
		case <-j.stream.news:
		case <-ctx.Done():
			j.cancel()
			return false
		case <-j.w.eng.done:
			return false
		}
	}
}

func (j *job) cancel()     { j.w.eng.do(func() { j.w.eng.srv.Cancel(j.stream.id) }) }
func (j *job) ended() bool { return j.end.ended }

// failure returns the reason for which a job has no reply at all, or nil.
func (j *job) failure() error {
	if j.ended() && (j.end.status == record.Rejected || j.end.status == record.Failed) {
		return errors.New(j.end.reason)
	}
	return nil
}

// finish returns the type of the finish reason of a job that has ended.
func (j *job) finish() string {
	switch {
	case j.end.status == record.Aborted:
		return "abort"
	case len(j.out) > 0 && j.out[len(j.out)-1] == EOS:
		return "stop"
	}
	return "length"
}

// wording has the functions that write the replies of one interface. They append replies to b.
type wording struct {
	refuse func(err error)                              // before anything was sent
	event  func(b []byte, j *job, fresh []int32) []byte // of new tokens
	whole  func(b []byte, j *job) []byte
}

// serve runs an order and answers it, either by events as tokens come, or as a whole.
func (w *Worker) serve(rw http.ResponseWriter, r *http.Request, o order, stream bool, say wording) {
	if stream && w.cfg.API == SGLang {
		o.flow = streamed
	}
	j, err := w.start(o)
	if err != nil {
		say.refuse(err)
		return
	}
	atATime := w.cfg.StreamInterval
	if !stream {
		atATime = math.MaxInt // till the end
	}
	var buf []byte
	for seen, begun := 0, false; !j.ended(); seen = len(j.out) {
		if !j.await(r.Context(), atATime) {
			return
		}
		err := j.failure()
		switch {
		case err != nil && !begun:
			say.refuse(err)
			return
		case err != nil:
			send(rw, errorEvent(err), true)
			return
		case !stream:
			rw.Header().Set("Content-Type", "application/json")
			rw.Write(say.whole(nil, j))
			return
		case !begun:
			events(rw)
			begun = true
		}
		if buf = say.event(buf[:0], j, j.out[seen:]); j.ended() {
			buf = append(buf, done...)
		}
		if !send(rw, buf, j.ended()) {
			j.cancel()
			return
		}
	}
}

// lenient takes what the engines' own parsers take.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// reading serves requests whose body is JSON; others are answered with status 400.
func reading[T any](serve func(rw http.ResponseWriter, r *http.Request, q *T)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var data bytes.Buffer
		data.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
		_, err := data.ReadFrom(r.Body)
		q := new(T)
		if err == nil {
			err = json.Unmarshal(data.Bytes(), q, lenient)
		}
		if err != nil {
			badRequest(rw, err)
			return
		}
		serve(rw, r, q)
	}
}

type object = map[string]any

func badRequest(rw http.ResponseWriter, err error) {
	writeJSON(rw, http.StatusBadRequest, errorBody(err))
}

func errorBody(err error) object { return object{"error": object{"message": err.Error()}} }

func errorEvent(err error) []byte { return append(appendEvent(nil, errorBody(err)), done...) }

func appendEvent(b []byte, v any) []byte {
	return append(appendJSON(append(b, "data: "...), v), "\n\n"...)
}

func appendJSON(b []byte, v any) []byte {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return append(b, data...)
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	rw.Write(appendJSON(nil, v)) // what fails is the connection, which the client sees
}

// events begins a stream of server-sent events.
func events(rw http.ResponseWriter) {
	h := rw.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	rw.WriteHeader(http.StatusOK)
}

// send writes one or more events and makes them leave; the last ones leave with
// the end of the reply.
func send(rw http.ResponseWriter, data []byte, last bool) bool {
	_, err := rw.Write(data)
	if f, ok := rw.(http.Flusher); ok && err == nil && !last {
		f.Flush()
	}
	return err == nil
}

const done = "data: [DONE]\n\n"

// The emulated vocabulary. Ids below firstToken are special.
const (
	Vocabulary = 32000
	EOS        = 2
	firstToken = 3
)

// chain generates the tokens that follow a context. Each token is a function of the adapter and of all tokens before
// it, as in greedy decoding. So a request that continues elsewhere, with its generated tokens as part of its prompt,
// generates the same tokens as without the move.
type chain uint64

func newChain(adapter string) chain {
	h := fnv.New64a()
	h.Write([]byte(adapter))
	return chain(mix(h.Sum64()))
}

// mix is the finaliser of splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA'14).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (c *chain) feed(token int32) {
	*c = chain(mix(uint64(*c) + 0x9e3779b97f4a7c15*uint64(token+1)))
}

// next returns the next token and adds it to the context. On average, one in eosEvery tokens is EOS; 0: none.
func (c *chain) next(eosEvery int) int32 {
	t := int32(uint64(*c)%(Vocabulary-firstToken)) + firstToken
	if eosEvery > 0 && uint64(*c)>>33%uint64(eosEvery) == 0 {
		t = EOS
	}
	c.feed(t)
	return t
}

// Tokens returns the first n tokens that an emulated worker generates for a prompt if the request ignores EOS. The
// adapter "" is the base model.
func Tokens(adapter string, prompt []int32, n int) []int32 {
	c := newChain(adapter)
	for _, t := range prompt {
		c.feed(t)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = c.next(0)
	}
	return out
}

// Text returns the text of tokens, such as " t17 t4". [Tokenize] is its inverse.
func Text(tokens []int32) string {
	var b []byte
	for _, t := range tokens {
		b = strconv.AppendInt(append(b, " t"...), int64(t), 10)
	}
	return string(b)
}

// Tokenize returns one token for each word of a text.
func Tokenize(text string) []int32 {
	var ts []int32
	for word := range strings.FieldsSeq(text) {
		ts = append(ts, wordToken(word))
	}
	return ts
}

func wordToken(word string) int32 {
	if digits, ok := strings.CutPrefix(word, "t"); ok {
		if n, err := strconv.ParseUint(digits, 10, 31); err == nil && n < Vocabulary {
			return int32(n)
		}
	}
	h := fnv.New32a()
	h.Write([]byte(word))
	return int32(h.Sum32()%(Vocabulary-firstToken)) + firstToken
}
