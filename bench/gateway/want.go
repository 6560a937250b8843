package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/live/fleet"
	"lorasim/trace"
)

// want is what the gateway understands of a request.
type want struct {
	openAI  bool        // adapters are models
	body    []byte      // as far as it was read
	rest    io.Reader   // what follows; nil: that was all
	spent   atomic.Bool // the rest has been read: there is no second try
	length  int64       // of the whole body; -1: not known
	adapter int32       // trace.BaseModel: none
	others  []int32     // adapters of a batch beside it
	prompt  int32       // tokens, or an estimate
	content []byte      // the prompt as it stands in the body
	maxNew  int32
	object  int      // the body is a JSON object, which begins before here; 0: it is not
	model   [2]int   // where the value of "model" stands in body; 0, 0: nowhere
	names   []string // of adapters or the model
	fields  struct { // other fields that were found
		model, lora, sampling json.RawMessage
		tokens                [3]int32 // max_completion_tokens, max_tokens, max_output_tokens
	}
}

// Defaults of the engines where a request does not say.
const (
	defaultMaxNew = 128
	bytesPerToken = 4 // of text, to estimate its tokens
)

// keep is the longest body that is read whole, so that another worker can be
// offered it.
const keep = 1 << 20

// errNoModel says that a body is too long to look for its model any further.
var errNoModel = errors.New("request body too large")

// understand reads of a request's body what routing needs: all of a short one,
// of a longer one up to the name of its model. What it makes no sense of is for
// the worker to judge. Errors come with the status to answer.
func (g *Gateway) understand(r *http.Request) (*want, int, error) {
	q := &want{openAI: r.URL.Path != "/generate", adapter: trace.BaseModel, prompt: 1, maxNew: defaultMaxNew, length: r.ContentLength}
	if r.Body == nil || r.Body == http.NoBody {
		return q, 0, nil
	}
	if err := q.read(r, g.cfg.MaxBody); err != nil {
		if errors.Is(err, errNoModel) {
			return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("%w: it names no model within its first %d bytes", err, g.cfg.MaxBody)
		}
		return nil, http.StatusBadRequest, err
	}
	for i, name := range q.names {
		a, ok := g.find(name, q.openAI)
		switch {
		case !ok:
			return nil, http.StatusNotFound, fmt.Errorf("unknown adapter or model %q; known: %s", name, known(g.names()))
		case i == 0:
			q.adapter = a
		case a != trace.BaseModel:
			q.others = append(q.others, a)
		}
	}
	return q, 0, nil
}

// find is the adapter that a request names; of OpenAI interfaces the name may be
// that of a base model, and of an adapter behind that and a colon.
func (g *Gateway) find(name string, openAI bool) (a int32, ok bool) {
	if a = g.cfg.Fleet.Lookup(name); a >= 0 || !openAI {
		return a, a >= 0
	}
	if g.isBase(name) {
		return trace.BaseModel, true
	}
	_, adapter, ok := strings.Cut(name, ":")
	a = g.cfg.Fleet.Lookup(adapter)
	return a, ok && a >= 0
}

// read reads the body: all of it up to keep bytes, then until the model is found,
// up to most bytes.
func (q *want) read(r *http.Request, most int64) error {
	first := min(keep, most)
	var buf bytes.Buffer
	if n := r.ContentLength; n > 0 {
		buf.Grow(int(min(n, first)) + bytes.MinRead)
	}
	n, err := io.CopyN(&buf, r.Body, first)
	whole := errors.Is(err, io.EOF) || err == nil && n == r.ContentLength
	if err != nil && !whole {
		return err
	}
	var more io.Reader // beyond what is in buf
	if !whole {
		more = io.LimitReader(r.Body, most-first)
	}
	if media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); strings.HasPrefix(media, "multipart/") {
		q.scanForm(&buf, more, params["boundary"])
	} else {
		q.scanJSON(&buf, more)
	}
	q.body = buf.Bytes()
	if whole {
		q.length = int64(len(q.body))
	} else {
		q.rest = r.Body
		q.prompt = max(q.prompt, clamp(max(q.length, int64(len(q.body)))/bytesPerToken))
	}
	q.name()
	if !whole && q.fields.model == nil && q.fields.lora == nil && int64(len(q.body)) >= most {
		return errNoModel
	}
	return nil
}

// readAhead is how much is read of a long body at a time.
const readAhead = 64 << 10

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// scanJSON takes the fields of a JSON object, of a long one until it knows the
// model. It stops at what is not JSON. Values are only looked at from outside: to
// read every number of a prompt takes longer than all else that the gateway does.
func (q *want) scanJSON(buf *bytes.Buffer, more io.Reader) {
	var in io.Reader = bytes.NewBuffer(buf.Bytes()) // which is read in place
	if more != nil {
		in = io.MultiReader(in, io.TeeReader(short{more}, buf))
	}
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return
	}
	q.object = int(d.InputOffset())
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return
		}
		name, from := key.String(), int(d.InputOffset())
		if d.SkipValue() != nil {
			return
		}
		end := int(d.InputOffset())
		q.take(name, bytes.TrimLeft(buf.Bytes()[from:end], ": \t\r\n"), end)
		if more != nil && (q.fields.model != nil && q.openAI || q.fields.lora != nil) {
			return
		}
	}
}

// short reads little at a time.
type short struct{ io.Reader }

func (s short) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), readAhead)]) }

// take notes a field whose value ends at the given place of the body.
func (q *want) take(key string, raw []byte, end int) {
	switch key {
	case "model":
		q.fields.model = bytes.Clone(raw)
		q.model = [2]int{end - len(raw), end}
	case "lora_path":
		q.fields.lora = bytes.Clone(raw)
	case "sampling_params":
		q.fields.sampling = bytes.Clone(raw)
	case "max_completion_tokens":
		q.fields.tokens[0] = positive(raw)
	case "max_tokens":
		q.fields.tokens[1] = positive(raw)
	case "max_output_tokens":
		q.fields.tokens[2] = positive(raw)
	case "input_ids", "prompt", "text", "input", "messages":
		n := int64(len(raw)) / bytesPerToken
		if raw[0] == '[' && key != "messages" {
			n = int64(bytes.Count(raw, []byte{','})) + 1
		}
		q.prompt, q.content = clamp(n), raw
	}
}

// promptBlock is how many tokens of prompts are told apart, for routers that look at
// what prompts have in common.
const promptBlock = 64

// identify notes what a prompt begins with. A block of a text is its bytes as they
// were sent, 4 for each token.
func (g *Gateway) identify(q *want, r *fleet.Request) {
	if !g.readsPrefixes {
		return
	}
	hashes := blocksOf(g.seed, q.content)
	g.seenMu.Lock()
	defer g.seenMu.Unlock()
	if r.Text = g.seen.Prompt(hashes, promptBlock); r.Text != nil {
		r.Known = r.Text.Known(r.Prompt)
	}
}

// blocksOf hashes the whole blocks of a prompt.
func blocksOf(seed maphash.Seed, prompt []byte) (hashes []uint64) {
	ids := len(prompt) > 0 && prompt[0] == '[' && bytes.IndexByte(prompt, '"') < 0
	for {
		n := promptBlock * bytesPerToken
		if ids {
			n = 0
			for range promptBlock {
				k := bytes.IndexByte(prompt[n:], ',')
				if k < 0 {
					return hashes
				}
				n += k + 1
			}
		}
		if n > len(prompt) {
			return hashes
		}
		hashes = append(hashes, maphash.Bytes(seed, prompt[:n]))
		prompt = prompt[n:]
	}
}

// scanForm takes the model of a form, as of audio to transcribe.
func (q *want) scanForm(buf *bytes.Buffer, more io.Reader, boundary string) {
	const longest = 4096 // of a name, bytes
	var in io.Reader = bytes.NewReader(buf.Bytes())
	if more != nil {
		in = io.MultiReader(in, io.TeeReader(more, buf))
	}
	form := multipart.NewReader(in, boundary)
	for {
		p, err := form.NextPart()
		if err != nil {
			return
		}
		if p.FormName() != "model" {
			continue
		}
		if text, err := io.ReadAll(io.LimitReader(p, longest)); err == nil {
			q.fields.model, _ = json.Marshal(string(text))
		}
		return
	}
}

// name settles which adapters or model the request names, and its budget.
func (q *want) name() {
	var model, lora string
	var batch []*string
	json.Unmarshal(q.fields.model, &model) // no text: no name
	if json.Unmarshal(q.fields.lora, &lora) != nil && json.Unmarshal(q.fields.lora, &batch) == nil {
		for _, name := range batch {
			if name != nil {
				q.names = append(q.names, *name)
			}
		}
	}
	if q.openAI && (strings.Contains(model, ":") || lora == "" && len(q.names) == 0) {
		lora = model
	}
	if lora != "" {
		q.names = []string{lora}
	}
	var p struct {
		MaxNewTokens float64 `json:"max_new_tokens"`
	}
	json.Unmarshal(q.fields.sampling, &p)
	q.maxNew = cmp.Or(tokens(p.MaxNewTokens), q.fields.tokens[0], q.fields.tokens[1], q.fields.tokens[2], q.maxNew)
}

// tokens is a number of tokens; 0: it is none.
func tokens(n float64) int32 {
	if !(n > 0) {
		return 0
	}
	return clamp(int64(min(n, math.MaxInt32)))
}

func positive(raw []byte) int32 {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1 {
		return 0
	}
	return tokens(n)
}

func clamp(n int64) int32 { return int32(min(max(n, 1), math.MaxInt32/4)) }

// bases are the names of the base models, as far as workers tell them.
func (g *Gateway) bases() (list []string) {
	for w := range g.urls {
		if m := g.cfg.Fleet.Model(w); m != "" && !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// isBase says whether a name is that of the base model; any is where none is told.
func (g *Gateway) isBase(name string) bool {
	known := g.bases()
	return len(known) == 0 || name == "default" || slices.Contains(known, name)
}

// names lists the base models and the adapters.
func (g *Gateway) names() []string {
	list := g.bases()
	for _, a := range g.cfg.Fleet.Adapters() {
		list = append(list, a.Name)
	}
	return list
}

// known lists names for an error, the first of many.
func known(names []string) string {
	const most = 20
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// respelt is what to send of what was read of the body: as it came, but for the
// name of the model, where the worker's interface spells adapters in another way.
func (q *want) respelt(api fleet.API, base, adapter string) []byte {
	if !q.openAI || q.adapter == trace.BaseModel || q.object == 0 {
		return q.body
	}
	model := adapter
	if api != fleet.VLLM {
		model = base + ":" + adapter
	}
	var now string
	if json.Unmarshal(q.fields.model, &now) == nil && now == model {
		return q.body
	}
	name, err := json.Marshal(model)
	if err != nil {
		return q.body
	}
	from, to := q.model[0], q.model[1]
	if to == 0 { // a field of its own, at the front: there are others
		from, to = q.object, q.object
		name = fmt.Appendf(nil, `"model":%s,`, name)
	}
	return bytes.Join([][]byte{q.body[:from], name, q.body[to:]}, nil)
}

// send is the body of one attempt.
func (q *want) send(r *http.Request, text []byte) {
	r.ContentLength = q.length
	if q.length >= 0 {
		r.ContentLength += int64(len(text) - len(q.body))
	}
	r.Body, r.GetBody = http.NoBody, nil
	switch {
	case q.rest != nil:
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), &spending{q}))
	case len(text) > 0:
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		r.Body, _ = r.GetBody()
	}
}

// spending reads the rest of a body, once.
type spending struct{ q *want }

func (s *spending) Read(p []byte) (int, error) {
	s.q.spent.Store(true)
	return s.q.rest.Read(p)
}
