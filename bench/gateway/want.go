package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
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
		a, err := g.find(name, q.openAI)
		if err != nil {
			return nil, http.StatusNotFound, err
		}
		if i == 0 {
			q.adapter = a
		} else if a != trace.BaseModel {
			q.others = append(q.others, a)
		}
	}
	return q, 0, nil
}

// find is the adapter that a request names; of OpenAI interfaces the name may be
// that of a base model, and of an adapter behind that and a colon.
func (g *Gateway) find(name string, openAI bool) (int32, error) {
	if a := g.cfg.Fleet.Lookup(name); a >= 0 {
		return a, nil
	}
	if openAI {
		if g.isBase(name) {
			return trace.BaseModel, nil
		}
		if _, adapter, ok := strings.Cut(name, ":"); ok {
			if a := g.cfg.Fleet.Lookup(adapter); a >= 0 {
				return a, nil
			}
		}
	}
	return 0, fmt.Errorf("unknown adapter or model %q; known: %s", name, strings.Join(g.names(), ", "))
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
	var hashes []uint64
	ids := len(q.content) > 0 && q.content[0] == '[' && bytes.IndexByte(q.content, '"') < 0
	for rest := q.content; ; {
		n := promptBlock * bytesPerToken
		if ids {
			n = 0
			for range promptBlock {
				k := bytes.IndexByte(rest[n:], ',')
				if k < 0 {
					n = len(rest) + 1
					break
				}
				n += k + 1
			}
		}
		if n > len(rest) {
			break
		}
		hashes = append(hashes, maphash.Bytes(g.seed, rest[:n]))
		rest = rest[n:]
	}
	g.seenMu.Lock()
	defer g.seenMu.Unlock()
	if r.Text = g.seen.Prompt(hashes, promptBlock); r.Text != nil {
		r.Known = r.Text.Known(r.Prompt)
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
	switch {
	case q.openAI && strings.Contains(model, ":"), q.openAI && lora == "" && len(q.names) == 0:
		lora = model
	}
	if lora != "" {
		q.names = []string{lora}
	}
	var p struct {
		MaxNewTokens float64 `json:"max_new_tokens"`
	}
	if json.Unmarshal(q.fields.sampling, &p) == nil && p.MaxNewTokens > 0 {
		q.maxNew = clamp(int64(min(p.MaxNewTokens, math.MaxInt32)))
		return
	}
	for _, n := range q.fields.tokens {
		if n > 0 {
			q.maxNew = n
			return
		}
	}
}

func positive(raw []byte) int32 {
	var n float64
	if json.Unmarshal(raw, &n) != nil || !(n >= 1) {
		return 0
	}
	return clamp(int64(min(n, math.MaxInt32)))
}

func clamp(n int64) int32 { return int32(min(max(n, 1), math.MaxInt32/4)) }

// isBase says whether a name is that of the base model.
func (g *Gateway) isBase(name string) bool {
	known := false
	for w := range g.workers.URLs {
		m := g.cfg.Fleet.Model(w)
		if m == name {
			return true
		}
		known = known || m != ""
	}
	return !known || name == "default"
}

// names lists the adapters and the base models.
func (g *Gateway) names() []string {
	var list []string
	seen := map[string]bool{"": true}
	for w := range g.workers.URLs {
		if m := g.cfg.Fleet.Model(w); !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	for _, a := range g.cfg.Fleet.Adapters() {
		list = append(list, a.Name)
	}
	return list
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
