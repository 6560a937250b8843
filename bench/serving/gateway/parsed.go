package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/trace"
)

// parsed is a request, as far as the gateway reads it.
type parsed struct {
	openAI bool // adapters are models
	requestBody
	rest    io.Reader   // the part of the body that has not been read; nil: none
	spent   atomic.Bool // the rest has been read, so that no second try is possible
	broken  atomic.Pointer[error]
	keys    *keyWatch // checks the rest; nil: no check
	json    bool      // engines read the body as JSON
	scanned int       // in data: where the last field that was found ends
	adapter int32     // trace.BaseModel: none
	base    string    // the base model that it names, "": none
	others  []int32   // adapters of the other names, or trace.BaseModel
	prompt  int32     // tokens, or an estimate
	content []byte    // the prompt as it stands in the body
	maxNew  int32
	limit   int32    // max_tokens as the request states it; 0: it states none
	stream  bool     // the reply is to come token by token
	object  int      // the body is a JSON object, which begins before here; 0: it is not
	lora    [2]int   // where the value of "lora_path" stands in body
	model   [2]int   // where the value of "model" stands in body; 0, 0: nowhere
	form    bool     // the body is a form, in which the value is no JSON
	asked   string   // the value of "model"
	names   []string // of adapters or the model
	loras   []string // adapters in "lora_path"
	mixed   bool     // "lora_path" is a list of different adapters, which no model's name can replace
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

// understand reads the parts of a request's body that routing needs: the whole of a short body, and a longer one up to
// the name of its model. The worker judges content that the gateway cannot read. Errors come with the status to
// answer.
func (g *Gateway) understand(rw http.ResponseWriter, r *http.Request) (*parsed, int, error) {
	q := &parsed{openAI: r.URL.Path != "/generate", adapter: trace.BaseModel, prompt: 1, maxNew: defaultMaxNew,
		json: readsJSON(r.URL.Path)}
	q.length = r.ContentLength
	if r.Body == nil || r.Body == http.NoBody {
		return q, 0, nil
	}
	q.memory = g.bodies
	r.Body = g.paced(rw, r.Body)
	q.due = time.Now().Add(g.cfg.ClientTimeout)
	if err := q.read(r.Context(), r, g.cfg.MaxBody); err != nil {
		q.release()
		if errors.Is(err, errNoModel) {
			err = fmt.Errorf("%w: it names no model within its first %d bytes", err, g.cfg.MaxBody)
		}
		return nil, statusOf(err), err
	}
	if len(q.loras) > 0 && strings.Contains(q.asked, ":") && g.cfg.Fleet.IsBase(q.asked) {
		q.names = q.loras // the colon belongs to the name of the base model
	}
	for i, name := range q.names {
		a, ok := g.find(name, q.openAI)
		switch {
		case !ok:
			q.release()
			return nil, http.StatusNotFound, g.unknown(name)
		case i == 0:
			q.adapter = a
			if a == trace.BaseModel && name != "default" {
				q.base = name
			}
		default:
			q.others = append(q.others, a)
		}
	}
	return q, 0, nil
}

// find returns the adapter that a request names. With OpenAI interfaces the name may be that of a base model, or an
// adapter after a base model and a colon.
func (g *Gateway) find(name string, openAI bool) (a int32, ok bool) {
	if a = g.cfg.Fleet.Lookup(name); a >= 0 || !openAI {
		return a, a >= 0
	}
	if g.isBase(name) {
		return trace.BaseModel, true
	}
	if !strings.Contains(name, ":") {
		return a, false
	}
	for _, base := range g.bases() { // names of base models may have colons
		if adapter, ok := strings.CutPrefix(name, base+":"); ok {
			if a = g.cfg.Fleet.Lookup(adapter); a >= 0 {
				return a, g.belongs(a, base)
			}
		}
	}
	base, adapter, _ := strings.Cut(name, ":")
	a = g.cfg.Fleet.Lookup(adapter)
	return a, a >= 0 && g.belongs(a, base)
}

// read reads the body: up to keep bytes in any case, then until the model is found, up to most bytes.
func (q *parsed) read(ctx context.Context, r *http.Request, most int64) error {
	q.from = r.Body
	err := q.fill(min(keep, most))
	if errors.Is(err, errNoMemory) && q.length > keep { // it has to wait for its memory anyway
		if err = q.reserve(ctx, most); err == nil {
			err = q.fill(min(keep, most))
		}
	}
	if err != nil {
		return err
	}
	form, boundary := false, ""
	if !q.json {
		media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		form, boundary = strings.HasPrefix(media, "multipart/"), params["boundary"]
	}
	scan := func() error {
		if form {
			q.scanForm(boundary)
		} else if err := q.scanJSON(); err != nil && q.json {
			return fmt.Errorf("%w: %w", errNotJSON, err)
		}
		return nil
	}
	if err := scan(); err != nil {
		return err
	}
	for n := int64(len(q.data)); !q.whole && !q.named() && n < most; {
		if q.large == 0 {
			if err := q.reserve(ctx, most); err != nil {
				return err
			}
		}
		n = min(2*n, most)
		if err := q.fill(n); err != nil {
			return err
		}
		if err := scan(); err != nil { // from the start: all scans of a body together look at each byte twice
			return err
		}
	}
	if q.whole {
		q.length = int64(len(q.data))
	} else {
		q.rest = q.from
		if q.json && q.object > 0 {
			q.keys = watchKeys(q.openAI)
			if err := q.keys.look(q.data[q.scanned:]); err != nil {
				return err
			}
		}
		q.prompt = max(q.prompt, clamp(max(q.length, int64(len(q.data)))/bytesPerToken))
	}
	q.name()
	if !q.whole && q.fields.model == nil && q.fields.lora == nil && int64(len(q.data)) >= most {
		return errNoModel
	}
	return nil
}

// named reports whether the part of the body read so far names the model or adapter.
func (q *parsed) named() bool { return q.fields.model != nil && q.openAI || q.fields.lora != nil }

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// nothing is what decoders read that no request uses.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

// scanJSON reads the fields of a JSON object. If the object continues beyond the bytes read, it reads the fields in
// these bytes. Invalid JSON is an error. It does not parse the values: to read every number of a prompt would take
// longer than all other work of the gateway.
func (q *parsed) scanJSON() error {
	d := decoders.Get().(*jsontext.Decoder)
	defer func() {
		d.Reset(nothing{}) // it would keep the body
		decoders.Put(d)
	}()
	// a bytes.Buffer is read in place
	d.Reset(bytes.NewBuffer(q.data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil && err != io.EOF {
		return q.unsound(err)
	} else if err == io.EOF || t.Kind() != '{' {
		return nil
	}
	q.object = int(d.InputOffset())
	q.scanned = q.object
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return q.unsound(err)
		}
		name, from := key.String(), int(d.InputOffset())
		if err := d.SkipValue(); err != nil {
			return q.unsound(err)
		}
		end := int(d.InputOffset())
		if end == len(q.data) && !q.whole {
			return nil // a number, which may go on
		}
		q.scanned = end
		q.take(name, bytes.TrimLeft(q.data[from:end], ": \t\r\n"), end)
	}
	if _, err := d.ReadToken(); err != nil { // the end of the object
		return q.unsound(err)
	}
	switch _, err := d.ReadToken(); err {
	case nil:
		return errors.New("it holds more than one value")
	case io.EOF:
		return nil
	default:
		return q.unsound(err)
	}
}

// unsound returns the error of a body, unless the end of the bytes read may have caused it.
func (q *parsed) unsound(err error) error {
	if !q.whole && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return nil
	}
	return err
}

// take notes a field whose value ends at the given offset of the body.
func (q *parsed) take(key string, raw []byte, end int) {
	switch key {
	case "model":
		q.fields.model = bytes.Clone(raw)
		q.model = [2]int{end - len(raw), end}
	case "lora_path":
		q.fields.lora = bytes.Clone(raw)
		q.lora = [2]int{end - len(raw), end}
	case "stream":
		q.stream = bytes.HasPrefix(raw, []byte("true"))
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

// promptBlock is the length in tokens of the blocks of a prompt, for routers that compare prefixes.
const promptBlock = 64

// identify sets the hashes of the blocks at the start of a prompt. A block of a text is its bytes as sent, 4 per
// token.
func (g *Gateway) identify(q *parsed, r *fleet.Request) {
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

// blocksOf returns the hashes of the whole blocks of a prompt.
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

// scanForm reads the model in a form, such as one with audio to transcribe.
func (q *parsed) scanForm(boundary string) {
	from, to, ok := httpapi.InForm(q.data, boundary)
	if !ok {
		return
	}
	q.form, q.model = true, [2]int{from, to}
	q.fields.model, _ = json.Marshal(string(q.data[from:to]))
}

// name determines the adapters or the model that the request names, and its budget.
func (q *parsed) name() {
	model, lora := textOf(q.fields.model), textOf(q.fields.lora)
	var batch []*string
	if bytes.HasPrefix(q.fields.lora, []byte("[")) && json.Unmarshal(q.fields.lora, &batch) == nil {
		for _, name := range batch {
			if name != nil {
				q.names = append(q.names, *name)
			}
			q.mixed = q.mixed || name == nil || *name != q.names[0]
		}
		q.mixed = q.mixed && len(q.names) > 0
	}
	q.asked, q.loras = model, q.names
	if lora != "" {
		q.loras = []string{lora}
	}
	if q.openAI && (strings.Contains(model, ":") || len(q.loras) == 0) {
		lora = model
	}
	if lora != "" {
		q.names = []string{lora}
	}
	var p struct {
		MaxNewTokens float64 `json:"max_new_tokens"`
	}
	if q.fields.sampling != nil {
		json.Unmarshal(q.fields.sampling, &p) // of another form: without a limit
	}
	q.limit = cmp.Or(tokens(p.MaxNewTokens), q.fields.tokens[0], q.fields.tokens[1], q.fields.tokens[2])
	q.maxNew = cmp.Or(q.limit, q.maxNew)
}

// byLoRAPath reports whether "lora_path" names the adapters.
func (q *parsed) byLoRAPath() bool { return len(q.loras) > 0 && slices.Equal(q.names, q.loras) }

// engines returns the engines that serve the request.
func (q *parsed) engines(path string) fleet.Engines {
	if q.adapter == trace.BaseModel && !slices.ContainsFunc(q.others, func(a int32) bool { return a >= 0 }) {
		return fleet.Engines{}
	}
	own := q.byLoRAPath()
	return fleet.EnginesFor(path, q.openAI && !(q.mixed && own), own)
}

// tokens returns a number of tokens, or 0 if n is not one.
func tokens(n float64) int32 {
	if !(n > 0) {
		return 0
	}
	return clamp(int64(min(n, math.MaxInt32)))
}

// textOf returns a JSON value that is a text; "": it is not.
func textOf(raw []byte) (text string) {
	if n := len(raw); n < 2 || raw[0] != '"' {
		return ""
	} else if plain := raw[1 : n-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain)
	}
	json.Unmarshal(raw, &text) // raw is valid
	return text
}

func positive(raw []byte) int32 {
	if n, err := strconv.ParseUint(string(raw), 10, 31); err == nil { // what is common is cheap
		return tokens(float64(n))
	}
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1 {
		return 0
	}
	return tokens(n)
}

func clamp(n int64) int32 { return int32(min(max(n, 1), math.MaxInt32/4)) }

// bases returns the names of the base models that workers report.
func (g *Gateway) bases() []string {
	return g.cfg.Fleet.Models()
}

// isBase reports whether a name is that of a base model. The name "default" always is; every name is if workers report
// none.
func (g *Gateway) isBase(name string) bool {
	return name == "default" || g.cfg.Fleet.IsBase(name) || len(g.bases()) == 0
}

// belongs reports whether the name before an adapter's is compatible with the adapter, that is, not another base
// model.
func (g *Gateway) belongs(a int32, base string) bool {
	own, several := g.cfg.Fleet.BaseOf(a)
	return !several || own == "" || own == base || !slices.Contains(g.bases(), base)
}

// oneBase returns an error if the workers serve several base models and a request does not state which one it is for.
func (g *Gateway) oneBase(q *parsed) error {
	base, several := g.cfg.Fleet.BaseOf(q.adapter)
	switch {
	case !several || base != "" || q.base != "":
		return nil
	case q.adapter == trace.BaseModel:
		return fmt.Errorf("the workers serve several base models: name one of them, or an adapter: %s",
			strings.Join(g.bases(), ", "))
	}
	return fmt.Errorf("the base model of the adapter is unknown: POST /admin/load loads it on a worker of its base model (%s)",
		strings.Join(g.bases(), ", "))
}

// names returns the names of the base models and the adapters.
func (g *Gateway) names() []string {
	list := g.bases()
	for _, a := range g.cfg.Fleet.Adapters() {
		list = append(list, a.Name)
	}
	return list
}

// part is a part of a body, between two offsets, and the text that replaces it; nil: the part stays.
type part struct {
	from, to int
	text     []byte
}

// edit is a change of a body.
type edit struct {
	name, lora part   // the values of "model" and of "lora_path"
	model      string // what the worker reads as the name of the model; "": what the client wrote
}

// respell returns the change of the body for a worker: a new name of the model, if the worker's interface spells
// adapters in another way, or the base model has another name there, else none. sglang reads no adapters in forms.
func (q *parsed) respell(api httpapi.Kind, base, adapter string) (e edit) {
	other := q.adapter != trace.BaseModel || q.base != "" && base != "" && q.base != base
	if !q.openAI || q.mixed && q.byLoRAPath() || !other ||
		q.object == 0 && (!q.form || api != httpapi.VLLM && q.adapter != trace.BaseModel) {
		return e
	}
	model := adapter
	switch {
	case q.adapter == trace.BaseModel:
		model = base
	case api != httpapi.VLLM:
		model = base + ":" + adapter
	}
	if q.fields.model != nil && q.asked == model {
		return e
	}
	if q.form {
		return edit{name: part{q.model[0], q.model[1], []byte(model)}, model: model}
	}
	name, err := json.Marshal(model)
	if err != nil {
		return e
	}
	if q.model[1] == 0 { // a field of its own, at the front: there are others
		return edit{name: part{q.object, q.object, fmt.Appendf(nil, `"model":%s,`, name)}, model: model}
	}
	return edit{name: part{q.model[0], q.model[1], name}, model: model}
}

// renameLoRAs returns the change of "lora_path" for a worker on which its adapters, the first one and the others, have
// other names.
func (q *parsed) renameLoRAs(first string, others []string) (p part) {
	if !q.byLoRAPath() || first == q.names[0] && slices.Equal(others, q.names[1:]) {
		return p
	}
	var lora any
	if json.Unmarshal(q.fields.lora, &lora) != nil {
		return p
	}
	if list, ok := lora.([]any); !ok {
		lora = cmp.Or(first, q.names[0])
	} else {
		n := 0
		for i, name := range list {
			if name == nil {
				continue
			}
			if list[i] = cmp.Or(first, q.names[0]); n > 0 {
				list[i] = cmp.Or(others[n-1], q.names[n])
			}
			n++
		}
	}
	text, _ := json.Marshal(lora) // texts are always valid
	return part{q.lora[0], q.lora[1], text}
}

// edited returns the bytes read of the body after a change, in parts.
func (q *parsed) edited(e edit) net.Buffers {
	a, b := e.name, e.lora
	if b.text != nil && b.from < a.from || a.text == nil {
		a, b = b, a
	}
	list, at := make(net.Buffers, 0, 5), 0
	for _, p := range [2]part{a, b} {
		if p.text != nil {
			list = append(list, q.data[at:p.from], p.text)
			at = p.to
		}
	}
	return append(list, q.data[at:])
}

// grows returns the number of bytes by which a change makes a body longer.
func (e *edit) grows() (n int) {
	for _, p := range [2]part{e.name, e.lora} {
		n += len(p.text) - (p.to - p.from)
	}
	return n
}

// send sets the body of one attempt.
func (q *parsed) send(r *http.Request, e edit) {
	r.ContentLength = q.length
	if q.length >= 0 {
		r.ContentLength += int64(e.grows())
	}
	r.Body, r.GetBody = http.NoBody, nil
	switch size := len(q.data); {
	case q.rest != nil:
		r.Body = io.NopCloser(io.MultiReader(&segments{&q.requestBody, q.edited(e)}, &spending{q}))
		return
	case size > inMemory:
		r.GetBody = func() (io.ReadCloser, error) { return &segments{&q.requestBody, q.edited(e)}, nil }
	case size > 0:
		text := q.data
		if e.name.text != nil || e.lora.text != nil {
			text = bytes.Join(q.edited(e), nil)
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	default:
		return
	}
	r.Body, _ = r.GetBody()
}
