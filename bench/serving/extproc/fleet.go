package extproc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/metrics"
	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/trace"
)

// A FleetConfig configures a [FleetPicker].
type FleetConfig struct {
	Fleet *fleet.Fleet   // started; the caller also calls its Run
	Now   func() float64 // time on the fleet's clock, s
	// Objectives has the priorities of InferenceObjectives by name. The priority of others is 0. Requests below 0 may
	// be shed.
	Objectives map[string]int
	// QueueTimeout is the longest wait for a place for an adapter on a full worker. 0: no limit.
	QueueTimeout time.Duration
	Metrics      *metrics.Metrics // receives the requests; nil: no metrics
}

// A FleetPicker is a [Picker] that picks workers of a fleet by the fleet's policy, and books requests there.
type FleetPicker struct {
	FleetConfig
	nextID atomic.Int64
}

// NewFleetPicker returns a picker for a fleet.
func NewFleetPicker(c FleetConfig) *FleetPicker {
	if c.Metrics != nil {
		c.Metrics.Retries(retryLoad)
	}
	return &FleetPicker{FleetConfig: c}
}

// said has the fields of a request's body that routing needs.
type said struct {
	Model    string `json:"model"`
	LoraPath any    `json:"lora_path"` // sglang's own interface
	Stream   bool   `json:"stream"`
	Tokens   int64  `json:"max_tokens"`
	New      int64  `json:"max_completion_tokens"`
	Output   int64  `json:"max_output_tokens"`
	Sampling struct {
		New int64 `json:"max_new_tokens"`
	} `json:"sampling_params"`
	form [2]int // where the model stands in a form; 0, 0: the body is none
}

// readSaid reads a body: a form, such as one with audio to transcribe, or JSON.
func readSaid(a *Ask) (s said, err error) {
	media, params, _ := mime.ParseMediaType(a.ContentType)
	if media == "multipart/form-data" {
		if from, to, ok := httpapi.InForm(a.Body, params["boundary"]); ok {
			s.Model, s.form = string(a.Body[from:to]), [2]int{from, to}
		}
		return s, nil
	}
	if err := json.Unmarshal(a.Body, &s); err != nil {
		return s, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	return s, nil
}

// defaultMaxNew is the budget of requests that state none, tokens.
const defaultMaxNew = 128

func (s *said) maxNew() int32 {
	n := cmp.Or(s.New, s.Tokens, s.Output, s.Sampling.New, defaultMaxNew)
	return int32(min(max(n, 1), math.MaxInt32))
}

// Pick implements Picker.
func (p *FleetPicker) Pick(ctx context.Context, a *Ask) (Ticket, *Refusal) {
	if a.Get {
		return p.any(a)
	}
	s, err := readSaid(a)
	if err != nil {
		return nil, &Refusal{Status: 400, Text: err.Error()}
	}
	t := &ticket{p: p, name: s.Model, begun: time.Now(), stated: httpapi.NewCounts()}
	if s.Model == "" {
		t.name, _ = s.LoraPath.(string)
	}
	t.model = cmp.Or(a.Rewrite, t.name)
	adapter, ok := p.find(t.model)
	if !ok {
		return nil, &Refusal{Status: 404, Text: fmt.Sprintf("the model %q does not exist", t.model),
			Reason: "unknown-model"}
	}
	lora, _ := s.LoraPath.(string)
	if adapter == trace.BaseModel && lora != "" {
		if adapter = p.Fleet.Lookup(lora); adapter < 0 {
			return nil, &Refusal{Status: 404, Text: fmt.Sprintf("the adapter %q does not exist", lora),
				Reason: "unknown-model"}
		}
	}
	if err := p.Fleet.Orphaned(adapter); err != nil {
		return nil, &Refusal{Status: 404, Text: err.Error(), Reason: "unknown-model"}
	}
	if adapter != trace.BaseModel {
		t.model = p.Fleet.Adapters()[adapter].Name
	}
	body := t.read(a)
	var engines fleet.Engines
	switch batch, _ := s.LoraPath.([]any); {
	case adapter != trace.BaseModel:
		respelled := s.Model != "" && (body != nil || s.form[1] > 0)
		engines = fleet.EnginesFor(a.Path, respelled, p.Fleet.Lookup(lora) == adapter)
	case len(batch) > 0: // only the engine reads it
		engines = fleet.EnginesFor(a.Path, false, true)
	}
	if !p.Fleet.Serves(engines) {
		return nil, &Refusal{Status: 404, Text: fleet.NoEngine(a.Path), Reason: "adapter-not-supported"}
	}
	t.fr = fleet.Request{Request: router.Request{ID: p.nextID.Add(1), Adapter: adapter, Prompt: t.prompt,
		MaxNew: s.maxNew()}, Sent: p.Now(), Streams: s.Stream, Engines: engines}
	if adapter == trace.BaseModel && p.Fleet.IsBase(t.model) {
		t.fr.Base = t.model
	}
	t.fr.Hint = p.Fleet.Requests.ReadBody(a.Path, a.Body)
	if hint, ok := t.fr.Hint.(*epp.Request); ok {
		hint.Priority, hint.Selected, hint.Model = p.Objectives[a.Objective], a.Selected, t.model
	}
	if a.Subset != nil {
		t.fr.Only = func(address string) bool {
			return slices.ContainsFunc(*a.Subset, func(s string) bool { return host(s) == host(address) })
		}
	}
	if no := t.route(ctx); no != nil {
		return nil, no
	}
	switch {
	case s.form[1] > 0:
		t.respellForm(a.Body, s.form)
	case body != nil && s.Model != "":
		t.respell(body)
	}
	if s.Model != "" {
		t.expect(a.Path)
	}
	return t, nil
}

// find returns the adapter for the name of a model: an adapter, a base model, or BASE:ADAPTER as sglang spells it.
func (p *FleetPicker) find(name string) (int32, bool) {
	if a := p.Fleet.Lookup(name); a >= 0 {
		return a, true
	}
	known := p.Fleet.Models()
	if name == "" || name == "default" || p.Fleet.IsBase(name) {
		return trace.BaseModel, true
	}
	for _, base := range known { // names of base models may have colons
		if adapter, ok := strings.CutPrefix(name, base+":"); ok {
			if a := p.Fleet.Lookup(adapter); a >= 0 {
				return a, true
			}
		}
	}
	if _, adapter, ok := strings.Cut(name, ":"); ok && len(known) == 0 {
		if a := p.Fleet.Lookup(adapter); a >= 0 {
			return a, true
		}
	}
	return trace.BaseModel, len(known) == 0
}

// any returns a usable worker for a request without a body. It takes the workers in turn and books nothing.
func (p *FleetPicker) any(a *Ask) (Ticket, *Refusal) {
	var found []string
	for _, s := range p.Fleet.Status() {
		address := p.Fleet.Address(s.Worker)
		if s.Up && !s.Draining && !s.Ejected && (a.Subset == nil ||
			slices.ContainsFunc(*a.Subset, func(s string) bool { return host(s) == host(address) })) {
			found = append(found, address)
		}
	}
	if len(found) == 0 {
		return nil, noWorker(p.Fleet.Unavailable())
	}
	return visit(found[int(p.nextID.Add(1)%int64(len(found)))]), nil
}

// noWorker refuses a request that no worker can take.
func noWorker(text string) *Refusal {
	return &Refusal{Status: 503, Text: text, Reason: "no-endpoint", RetryAfter: 1}
}

// host is an address without its port: subset hints name pods.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// visit is the ticket of a request without a body. It is not booked.
type visit string

func (v visit) Endpoint() string          { return string(v) }
func (visit) Body() ([]byte, [2]string)   { return nil, [2]string{} }
func (visit) Piece([]byte) error          { return nil }
func (visit) Busy(string)                 {}
func (visit) Left(status int, whole bool) {}

// ticket is a booked request.
type ticket struct {
	p       *FleetPicker
	fr      fleet.Request
	w       int
	process fleet.Process // that it is for
	name    string        // of the model, by the client
	model   string        // for the server
	sent    []byte        // the body for the server; nil: as it came
	names   httpapi.ModelNames
	aborts  httpapi.AbortMark
	prompt  int32
	begun   time.Time
	tokens  int
	first   time.Time
	stated  httpapi.Counts
	done    bool // the latest piece with an event ended the stream
}

// read determines the prompt's length and returns the body's fields. It returns nil if the server is to judge the body
// unchanged.
func (t *ticket) read(a *Ask) *epp.Body {
	t.prompt = int32(min(len(a.Body)/4+1, math.MaxInt32))
	b, reason := epp.ParseBody(epp.LLMD, a.Path, a.Body)
	if reason == nil && len(b.Prompts) > 0 {
		n := 0
		for _, c := range b.Prompts {
			n += (c.Len() + 3) / 4
		}
		t.prompt = int32(min(max(n, 1), math.MaxInt32))
	}
	return b
}

// respell makes the body for the worker if it names the model in another way than the client: with a rewritten name,
// or with the spelling of the worker's API. sglang serves the base model, with status 200, unless an adapter's name
// stands behind the base model's and a colon.
func (t *ticket) respell(b *epp.Body) {
	switch {
	case t.fr.Adapter == trace.BaseModel && t.fr.Base != "":
		t.model = cmp.Or(t.process.Model, t.model)
	case t.fr.Adapter != trace.BaseModel && t.process.API != httpapi.VLLM:
		t.model = t.process.Model + ":" + t.model
	}
	if t.model != t.name {
		t.sent = b.For(t.model)
	}
}

// respellForm is respell for a form, in which the model stands between two offsets. sglang reads no adapters there.
func (t *ticket) respellForm(body []byte, at [2]int) {
	if t.model != t.name && (t.fr.Adapter == trace.BaseModel || t.p.Fleet.API(t.w) == httpapi.VLLM) {
		t.sent = slices.Concat(body[:at[0]], []byte(t.model), body[at[1]:])
	}
}

// maxTries is how many workers are asked to load an adapter for one request.
const maxTries = 3

// route books the request on a worker that has its adapter, or loads it there.
func (t *ticket) route(ctx context.Context) *Refusal {
	requests := t.p.Fleet.Requests
	if reason, after := requests.Refuse(&t.fr); reason != "" {
		return &Refusal{Status: 429, Text: reason, Reason: "overload", RetryAfter: int(max(1, math.Ceil(after)))}
	}
	var no *Refusal
	var tried []int
	for try := range maxTries {
		if t.w = requests.Route(&t.fr, tried...); t.w == router.None {
			if r := t.fr.Refusal; r != nil {
				return &Refusal{Status: r.Status, Text: r.Reason, Reason: "policy", RetryAfter: 1}
			}
			return cmp.Or(no, noWorker(t.p.Fleet.Unavailable()))
		}
		t.routed(try)
		wait := fleet.Wait{Since: t.begun}
		if t.p.QueueTimeout > 0 {
			wait.Until = t.begun.Add(t.p.QueueTimeout)
		}
		err := t.p.Fleet.LoRAs.EnsureWithin(ctx, t.w, t.fr.Adapter, wait)
		if err == nil {
			t.process, err = requests.Process(&t.fr)
		}
		if err == nil {
			return nil
		}
		requests.Left(&t.fr)
		tried = append(tried, t.w)
		no = &Refusal{Status: 503, Text: err.Error(), Reason: "adapter-not-loaded", RetryAfter: 1}
		if ctx.Err() != nil {
			break
		}
	}
	return no
}

// Endpoint implements Ticket.
func (t *ticket) Endpoint() string { return t.p.Fleet.Address(t.w) }

// Body implements Ticket.
func (t *ticket) Body() ([]byte, [2]string) { return t.sent, [2]string{t.model, t.name} }

// routed counts the pick of a worker.
func (t *ticket) routed(try int) {
	switch m := t.p.Metrics; {
	case m == nil:
	case try > 0:
		m.Retried(retryLoad)
	default:
		m.Routed(t.p.Fleet.URL(t.w), t.adapter(), t.fr.Held)
	}
}

// CountRefused counts a refusal in the metrics. It is meant for Config.Refused.
func (p *FleetPicker) CountRefused(no *Refusal) {
	if p.Metrics != nil {
		reason := cmp.Or(no.Reason, strings.ToLower(http.StatusText(no.Status)))
		p.Metrics.Rejected(no.Status, strings.NewReplacer(" ", "_", "-", "_").Replace(reason))
	}
}

// retryLoad is the reason of retries: a worker could not load the adapter.
const retryLoad = "load"

// adapter is the name of the request's adapter; "": a base model.
func (t *ticket) adapter() string {
	if t.fr.Adapter == trace.BaseModel {
		return ""
	}
	return t.p.Fleet.Adapters()[t.fr.Adapter].Name
}

var dataMark, doneMark = []byte("data:"), []byte("[DONE]")

// abortPause is how long a worker that aborts requests gets new ones only if no other worker can take them.
const abortPause = 5 * time.Second

// errAborted and errModel end a response that the client must not take for the reply to its request.
var (
	errAborted = errors.New("the worker aborted the request")
	errModel   = errors.New("the worker answered with another model")
)

// check returns an error if a piece of the response shows that another model answers, or that the request was aborted.
// Envoy cannot send the request again.
func (t *ticket) check(body []byte) (err error) {
	requests := t.p.Fleet.Requests
	defer func() {
		if err != nil {
			requests.Doubt(&t.fr)
			requests.Failed(&t.fr, t.w, err)
		}
	}()
	if t.aborts.In(body) >= 0 {
		requests.Postpone(t.w, abortPause)
		return errAborted
	}
	if t.tokens > 0 {
		return nil
	}
	if i := bytes.IndexByte(body, '{'); i >= 0 {
		body = body[i:]
	}
	if other := t.names.Contradicted(body); other != "" {
		if t.fr.Adapter != trace.BaseModel {
			t.p.Fleet.LoRAs.Forget(t.w, t.fr.Adapter)
		}
		return fmt.Errorf("%w: %q, asked for %q", errModel, other, t.names.Sent)
	}
	return nil
}

// expect notes by which names the worker may call the model in its response, and how an aborted one looks.
func (t *ticket) expect(path string) {
	t.aborts = httpapi.AbortMarkOf(t.process.API, path, t.fr.Streams)
	if path == "/generate" || strings.HasSuffix(path, "render") {
		return
	}
	reads := t.name
	if t.sent != nil {
		reads = t.model
	}
	t.names = httpapi.ModelNames{Sent: reads, Asked: t.name, Adapter: t.adapter(), Base: t.process.Model,
		Root: t.process.Root}
}

// Piece implements Ticket. An event of a stream counts as a token, and so does a piece without one.
func (t *ticket) Piece(body []byte) error {
	if err := t.check(body); err != nil {
		return err
	}
	n := max(bytes.Count(body, dataMark), 1)
	if t.tokens == 0 {
		t.first = time.Now()
		if m := t.p.Metrics; m != nil {
			m.FirstByte(t.adapter(), t.first.Sub(t.begun))
		}
	}
	t.p.Fleet.Requests.Tokens(&t.fr, n, t.tokens == 0)
	t.tokens += n
	t.stated.Note(body)
	t.done = bytes.Contains(body[max(len(body)-2*len(doneMark), 0):], doneMark)
	return nil
}

// output returns the number of tokens generated: the server's count, else the number of events of the stream; -1:
// unknown.
func (t *ticket) output() int64 {
	switch {
	case t.stated.Output >= 0 || !t.fr.Streams:
		return t.stated.Output
	case t.done:
		return int64(t.tokens - 1)
	}
	return int64(t.tokens)
}

// count counts the request at its end.
func (t *ticket) count(status int, complete bool) {
	m := t.p.Metrics
	if m == nil {
		return
	}
	r := metrics.Request{Worker: t.p.Fleet.URL(t.w), Adapter: t.adapter(), Code: status, Result: metrics.Complete,
		Prompt: int64(t.prompt), Output: t.output(), Duration: time.Since(t.begun)}
	if !complete {
		r.Result = metrics.Cut
	}
	if t.stated.Prompt >= 0 {
		r.Prompt = t.stated.Prompt
	}
	m.Ended(r)
}

// Busy implements Ticket.
func (t *ticket) Busy(retryAfter string) {
	header := http.Header{"Retry-After": {retryAfter}}
	if pause := fleet.RetryAfter(header, time.Now()); pause > 0 {
		t.p.Fleet.Requests.Postpone(t.w, pause)
	}
}

// Left implements Ticket.
func (t *ticket) Left(status int, complete bool) {
	t.count(status, complete)
	requests := t.p.Fleet.Requests
	switch {
	case complete && status/100 == 2 && t.tokens > 0:
		took := time.Since(t.first).Seconds()
		requests.Finished(&t.fr, t.w, took, took)
	case status == 404:
		requests.Doubt(&t.fr)
	case status >= 500 && status != 503:
		requests.Failed(&t.fr, t.w, fmt.Errorf("status %d", status))
	}
	requests.Left(&t.fr)
}
