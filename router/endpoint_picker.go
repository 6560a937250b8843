package router

import (
	"context"
	"fmt"
	"time"

	"lorasim/internal/textfile"
	"lorasim/router/epp"
	"lorasim/trace/settings"
)

// endpointPicker runs the configuration of an endpoint picker (package epp): it routes by what a picker reads, not by
// what a router of this package knows. Load, KV cache and names of adapters are those of the last look at the workers'
// metrics, one every refresh; the picker's own counts of requests and tokens in flight are current.
//
// It herds on late signals: until the next look, requests that score alike go to the same worker.
type endpointPicker struct {
	s       *epp.Scheduler
	dialect epp.Dialect
	refresh float64 // s
	lists   bool    // metrics list adapters (vLLM)
	workers []Spec

	reports    []Report // the last look at each worker
	told       []bool   // the worker's metrics have listed an adapter: it states max_lora from then on
	polled     float64  // s: when
	look       bool     // there has been a look
	candidates []epp.Endpoint
	request    epp.Request
	prompt     epp.Simulated
	prompts    [1]epp.Content
	rejection  *epp.Rejection
	decision   *epp.Decision
}

// Report is what a worker's own metrics said when they were last read.
type Report struct {
	Waiting, Running int
	KV               float64 // used share of the KV cache
	// Adapters of requests there, as vLLM lists them; MaxLora is 0 where no list was written yet.
	RunningAdapters, WaitingAdapters []string
	MaxLora                          int
	BlockSize, NumBlocks             int     // of the KV cache; 0: unknown
	At                               float64 // s, of View.Now
}

// FlightObserver is a policy that counts its own requests in flight.
type FlightObserver interface {
	// FirstToken notes the first token of a request.
	FirstToken(id int64)
	// Left notes that a request is no longer at its worker, for whatever reason.
	Left(id int64)
}

// Poller is a policy that looks at workers on a timer. It also works where nobody calls Poll: it looks when it routes.
type Poller interface {
	Refresh() float64 // s between two looks
	Poll(v *View)
}

// Rejecter is a policy that refuses requests for reasons of its own. Rejection is why its latest Route returned None,
// nil if it did not.
type Rejecter interface{ Rejection() *epp.Rejection }

// BodyReader is a policy that reads the bodies of real requests. ReadBody may be called at any time.
type BodyReader interface {
	// ReadBody returns nil for a body that it makes nothing of.
	ReadBody(path string, body []byte) *epp.Request
}

type endpointPickerOptions struct {
	File    string `path:"yes" help:"EndpointPickerConfig, YAML or JSON; default: an empty one, which scores queue 2, KV cache 2, prefix 3"`
	Dialect string `default:"" check:"oneof gie llm-d" help:"rules of the picker gie or llm-d; default: by apiVersion"`
	Set     string `pairs:": /" help:"weights and parameters to change: PLUGIN:WEIGHT/PLUGIN.PARAMETER:NUMBER; a type of scorer that is missing is added"`
	Refresh string `default:"50ms" help:"interval between polls of the workers' metrics"`
	Metrics string `default:"vllm" check:"oneof vllm sglang" help:"metrics of simulated workers: vllm (with names of adapters) or sglang (without)"`
}

// Check implements settings.Checker.
func (o *endpointPickerOptions) Check(settings.Given) error {
	if d, err := time.ParseDuration(o.Refresh); err != nil || d <= 0 {
		return fmt.Errorf("refresh=%s: expected a time above 0, such as 50ms", o.Refresh)
	}
	_, err := epp.ParseChanges(o.Set)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	return nil
}

// read reads the configuration and changes it.
func (o *endpointPickerOptions) read(ctx context.Context) (p *PickerConfig, err error) {
	p = &PickerConfig{File: o.File, Dialect: epp.Dialect(o.Dialect)}
	if o.File != "" {
		if p.Text, err = textfile.ReadFile(ctx, o.File, textfile.MaxSettings); err != nil {
			return nil, err
		}
	}
	if p.Config, err = epp.Parse(p.Text, o.File, p.Dialect); err != nil {
		return nil, err
	}
	if p.Config.Disaggregated() {
		return nil, fmt.Errorf("%s: prefill and decode on different servers: not supported", o.File)
	}
	if p.Changes, err = epp.ParseChanges(o.Set); err == nil {
		p.Config, err = p.Config.With(p.Changes)
	}
	return p, err
}

// Build implements Builder.
func (o *endpointPickerOptions) Build(env Env) (*Router, error) {
	c, err := o.read(env.Context)
	if err != nil {
		return nil, err
	}
	config := c.Config
	refresh, err := time.ParseDuration(o.Refresh)
	if err != nil {
		return nil, err
	}
	p := &endpointPicker{s: epp.NewScheduler(config, epp.Options{Seed: env.Seed}), refresh: refresh.Seconds(),
		dialect: config.Dialect, lists: o.Metrics == "vllm", workers: env.Workers,
		reports: make([]Report, len(env.Workers)), told: make([]bool, len(env.Workers))}
	p.request.Prompts = p.prompts[:]
	return &Router{Policy: p, ReadsKV: true, ReadsFewKV: true, ReadsPrefixes: true}, nil
}

// Refresh implements Poller.
func (p *endpointPicker) Refresh() float64 { return p.refresh }

// Poll implements Poller.
func (p *endpointPicker) Poll(v *View) {
	p.look, p.polled = true, v.Now
	for j := range v.Workers {
		w := &v.Workers[j]
		if !w.Up {
			continue // what fails leaves the old values
		}
		if w.Report == nil {
			v.read(j)
			p.read(j, w, v)
		}
	}
}

// read makes the report of a worker that has none of its own, as its metrics would be.
func (p *endpointPicker) read(j int, w *Worker, v *View) {
	r := &p.reports[j]
	r.Waiting, r.Running, r.KV, r.At = w.Queued, w.Running, w.KVShare(), v.Now-w.Age
	r.BlockSize = max(p.workers[j].PageSize, 1)
	r.NumBlocks = int(w.KVCapacity) / r.BlockSize
	if !p.lists {
		return
	}
	r.RunningAdapters, r.WaitingAdapters = r.RunningAdapters[:0], r.WaitingAdapters[:0]
	left := w.ActiveLoras + w.WaitingLoras
	for k := 0; left > 0 && k < len(w.Adapters); k++ {
		a := &w.Adapters[k]
		if a.Running == 0 && a.Queued == 0 {
			continue
		}
		// vLLM lists an adapter with requests in flight under both labels.
		r.RunningAdapters = append(r.RunningAdapters, v.Adapters[k].Name)
		r.WaitingAdapters = append(r.WaitingAdapters, v.Adapters[k].Name)
		left -= min(int(a.Running), 1) + min(int(a.Queued), 1)
	}
	p.told[j] = p.told[j] || len(r.RunningAdapters) > 0
	if r.MaxLora = 0; p.told[j] {
		r.MaxLora = w.Slots
	}
}

// endpoint is a worker as the picker reads it.
func (p *endpointPicker) endpoint(j int, w *Worker, now float64) epp.Endpoint {
	r := &p.reports[j]
	if w.Report != nil {
		r = w.Report
	}
	return epp.Endpoint{ID: j, Address: w.Address, Labels: w.Labels, Waiting: r.Waiting, Running: r.Running, KV: r.KV,
		RunningAdapters: r.RunningAdapters, WaitingAdapters: r.WaitingAdapters, MaxLora: r.MaxLora,
		BlockSize: r.BlockSize, NumBlocks: r.NumBlocks, Age: max(now-r.At, 0)}
}

// Route implements Policy.
func (p *endpointPicker) Route(r Request, v *View) int {
	if !p.look || v.Now-p.polled >= p.refresh {
		p.Poll(v)
	}
	p.candidates = p.candidates[:0]
	for j, w := range v.Usable() {
		p.candidates = append(p.candidates, p.endpoint(j, w, v.Now))
	}
	p.s.Ended(r.ID) // it comes back from a worker that failed
	p.ask(&r, v)
	p.decision, p.rejection = p.s.Schedule(&p.request, p.candidates)
	if p.rejection != nil {
		return None
	}
	p.s.Commit(&p.request, p.decision)
	return p.candidates[p.decision.Primary()].ID
}

// ask fills in the request.
func (p *endpointPicker) ask(r *Request, v *View) {
	q := &p.request
	q.ID, q.Model, q.Salt, q.Priority, q.Selected = r.ID, "", "", 0, ""
	if isAdapter(r.Adapter) {
		q.Model = v.Adapters[r.Adapter].Name
	}
	if b := r.Read; b != nil {
		q.Prompts, q.Bytes, q.Salt = b.Prompts, b.Bytes, b.Salt
		q.Priority, q.Selected = b.Priority, b.Selected
		if b.Model != "" {
			q.Model = b.Model
		}
		return
	}
	p.prompt = epp.Simulated{Text: r.Text, Known: r.Known, Tokens: r.Prompt, ID: r.ID}
	p.prompts[0] = &p.prompt
	q.Prompts, q.Bytes = p.prompts[:], int(r.Prompt)*4
}

// ReadBody implements BodyReader.
func (p *endpointPicker) ReadBody(path string, body []byte) *epp.Request {
	b, reason := epp.ParseBody(p.dialect, path, body)
	if reason != nil {
		return nil
	}
	return &epp.Request{Prompts: b.Prompts, Salt: b.Salt, Bytes: len(body)}
}

// Rejection implements Rejecter.
func (p *endpointPicker) Rejection() *epp.Rejection { return p.rejection }

// FirstToken implements FlightObserver.
func (p *endpointPicker) FirstToken(id int64) { p.s.FirstToken(id) }

// Left implements FlightObserver.
func (p *endpointPicker) Left(id int64) { p.s.Ended(id) }

// succeed takes over what the picker before knows. joined is the slot of a new worker, -1 without one.
func (p *endpointPicker) succeed(old *endpointPicker, joined int) {
	p.s = old.s
	copy(p.told, old.told)
	if joined >= 0 {
		p.s.Forget(joined)
		p.told[joined] = false
	}
}

// PickerConfig is the configuration that a spec of the policy epp runs.
type PickerConfig struct {
	File    string // "": none, the configuration is the default one
	Dialect epp.Dialect
	Text    []byte       // of the file
	Changes []epp.Change // option set
	Config  *epp.Config  // with the changes
}

// ReadPickerConfig reads the configuration of a spec; nil for a spec of another policy. ctx
// ends the wait for a file that is a pipe.
func ReadPickerConfig(ctx context.Context, spec string) (*PickerConfig, error) {
	s, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	o, ok := s.Value.(*endpointPickerOptions)
	if !ok {
		return nil, nil
	}
	p, err := o.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", s.Name, err)
	}
	return p, nil
}
