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

	"lorasim/internal/record"
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

// order is what a client asks for, whatever the interface.
type order struct {
	rid       string
	adapter   string // "": base model
	prompt    []int32
	budget    int
	ignoreEOS bool
}

// errUnknownAdapter is the adapter that a request names and nobody has loaded.
type errUnknownAdapter struct{ name string }

func (e errUnknownAdapter) Error() string {
	return fmt.Sprintf("LoRA adapter '%s' is not loaded", e.name)
}

// start hands an order to the engine.
func (w *Worker) start(o order) (*job, error) {
	if len(o.prompt) == 0 {
		return nil, errors.New("the prompt is empty")
	}
	if o.budget < 1 || o.budget > math.MaxInt32 || len(o.prompt) > math.MaxInt32 {
		return nil, fmt.Errorf("max_new_tokens is %d, expected a number from 1 to %d", o.budget, math.MaxInt32)
	}
	r := trace.Request{Adapter: trace.BaseModel, Prompt: int32(len(o.prompt)), Output: int32(o.budget), MaxNew: int32(o.budget)}
	if o.adapter != "" {
		known := false
		if r.Adapter, known = w.lookup(o.adapter); !known {
			return nil, errUnknownAdapter{o.adapter}
		}
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
	if w.cfg.Costs.Profile().Engine.PrefixCache {
		w.identify(&r, o.prompt, j)
	}
	var err error
	j.stream, err = w.eng.submit(r, o.rid)
	return j, err
}

// identify tells the engine what a prompt and its reply have in common with others,
// in blocks of at least 16 tokens.
func (w *Worker) identify(r *trace.Request, prompt []int32, j *job) {
	size := w.cfg.Costs.Profile().Engine.PageSize
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

// await waits for at least n more tokens, or the end, and generates them. It
// returns false when the client has gone.
func (j *job) await(ctx context.Context, n int) bool {
	from := len(j.out)
	for {
		p := j.stream.look()
		if p.ended || p.tokens >= from+n && p.tokens < j.total { // the end comes with the last token
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
			j.w.eng.cancelOne(j.stream)
			return false
		case <-j.w.eng.done:
			return false
		}
	}
}

func (j *job) ended() bool { return j.end.ended }

// whole waits for the end of the reply; false: the client has gone.
func (j *job) whole(ctx context.Context) bool {
	for !j.ended() {
		if !j.await(ctx, j.total+1) {
			return false
		}
	}
	return true
}

// sendEvents sends events as tokens come, as event appends them for those from seen
// on. A job that fails before its first token is answered by refuse, where there
// is one; else in the stream.
func (j *job) sendEvents(rw http.ResponseWriter, r *http.Request, refuse func(reason string), event func(b []byte, seen int) []byte) {
	var buf []byte
	seen, begun := 0, false
	for j.await(r.Context(), j.w.cfg.StreamInterval) {
		reason := j.failure()
		if reason != "" && !begun && refuse != nil {
			refuse(reason)
			return
		}
		if !begun {
			events(rw)
			begun = true
		}
		if reason != "" {
			send(rw, errorEvent(reason), true)
			return
		}
		buf = event(buf[:0], seen)
		if seen = len(j.out); j.ended() {
			buf = append(buf, done...)
		}
		if !send(rw, buf, j.ended()) {
			j.w.eng.cancelOne(j.stream)
			return
		}
		if j.ended() {
			return
		}
	}
}

// failure is why a job cannot be answered at all, "" if it can.
func (j *job) failure() string {
	if j.ended() && (j.end.status == record.Rejected || j.end.status == record.Failed) {
		return j.end.reason
	}
	return ""
}

// finish is the type of the finish reason of a job that has ended.
func (j *job) finish() string {
	switch {
	case j.end.status == record.Aborted:
		return "abort"
	case len(j.out) > 0 && j.out[len(j.out)-1] == EOS:
		return "stop"
	}
	return "length"
}

// lenient takes what the engines' own parsers take.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// readJSON reads a request's body, or answers 400.
func readJSON(rw http.ResponseWriter, r *http.Request, v any) bool {
	var data bytes.Buffer
	data.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
	_, err := data.ReadFrom(r.Body)
	if err == nil {
		err = json.Unmarshal(data.Bytes(), v, lenient)
	}
	if err != nil {
		badRequest(rw, err.Error())
		return false
	}
	return true
}

type object = map[string]any

func badRequest(rw http.ResponseWriter, text string) {
	writeJSON(rw, http.StatusBadRequest, errorBody(text))
}

func errorBody(text string) object { return object{"error": object{"message": text}} }

func errorEvent(reason string) []byte { return append(appendEvent(nil, errorBody(reason)), done...) }

func appendEvent(b []byte, v any) []byte {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	json.MarshalWrite(rw, v, json.Deterministic(true)) // what fails is the connection, which the client sees
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
	if _, err := rw.Write(data); err != nil {
		return false
	}
	if f, ok := rw.(http.Flusher); ok && !last {
		f.Flush()
	}
	return true
}

const done = "data: [DONE]\n\n"

// The emulated vocabulary: ids below firstToken are special.
const (
	Vocabulary = 32000
	EOS        = 2
	firstToken = 3
)

// chain yields the tokens that follow a context. Each token is a function of
// the adapter and of all tokens before it, as in greedy decoding: a request
// that is sent again elsewhere with what it generated so far as part of its
// prompt goes on with the very tokens it would have had.
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

// next is the token that follows, and becomes part of the context. It is EOS
// once in eosEvery tokens; 0: never.
func (c *chain) next(eosEvery int) int32 {
	t := int32(uint64(*c)%(Vocabulary-firstToken)) + firstToken
	if eosEvery > 0 && uint64(*c)>>33%uint64(eosEvery) == 0 {
		t = EOS
	}
	c.feed(t)
	return t
}

// Tokens returns the n tokens that an emulated worker generates after a prompt
// when it ignores EOS; adapter "" is the base model.
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

// Text is what tokens read as: " t17 t4". Tokenize turns it back.
func Text(tokens []int32) string {
	var b []byte
	for _, t := range tokens {
		b = strconv.AppendInt(append(b, " t"...), int64(t), 10)
	}
	return string(b)
}

// Tokenize makes one token of each word of a text.
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
