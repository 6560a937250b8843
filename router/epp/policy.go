package epp

import (
	"context"
	"fmt"
	"time"

	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// policy runs the configuration of an endpoint picker: it routes by what a picker reads, not by what a router knows.
// Load, KV cache and names of adapters are those of the last look at the workers' metrics, one every refresh; the
// picker's own counts of requests and tokens in flight are current.
//
// It herds on late signals: until the next look, requests that score alike go to the same worker.
type policy struct {
	router.Base
	s       *Scheduler
	dialect Dialect
	refresh float64 // s
	lists   bool    // metrics list adapters (vLLM)
	workers []router.Spec

	reports    []router.Report // the last look at each worker
	told       []bool          // the worker's metrics have listed an adapter: it states max_lora from then on
	polled     float64         // s: when
	look       bool            // there has been a look
	candidates []Endpoint
	request    Request
	prompt     simulated
	prompts    [1]Content
}

// Policy describes the policy epp. Package router/builtin registers it.
func Policy() router.Descriptor {
	d := router.Describe[options]("epp",
		"runs the EndpointPickerConfig of a Kubernetes gateway (Gateway API Inference Extension, llm-d, KServe)")
	d.Group = router.YourOwn
	d.Facts = &router.Facts{Signals: true}
	return d
}

type options struct {
	File    string `path:"yes" help:"EndpointPickerConfig, YAML or JSON; default: an empty one, which scores queue 2, KV cache 2, prefix 3"`
	Dialect string `default:"" check:"oneof gie llm-d" help:"rules of the picker gie or llm-d; default: by apiVersion"`
	Set     string `pairs:": /" help:"weights and parameters to change: PLUGIN:WEIGHT/PLUGIN.PARAMETER:NUMBER; a type of scorer that is missing is added"`
	Refresh string `default:"50ms" help:"interval between polls of the workers' metrics"`
	Metrics string `default:"vllm" check:"oneof vllm sglang" help:"metrics of simulated workers: vllm (with names of adapters) or sglang (without)"`
}

// Check implements settings.Checker.
func (o *options) Check(settings.Given) error {
	if d, err := time.ParseDuration(o.Refresh); err != nil || d <= 0 {
		return fmt.Errorf("refresh=%s: expected a time above 0, such as 50ms", o.Refresh)
	}
	_, err := ParseChanges(o.Set)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	return nil
}

// read reads the configuration and changes it.
func (o *options) read(ctx context.Context) (p *PickerConfig, err error) {
	p = &PickerConfig{File: o.File, Dialect: Dialect(o.Dialect)}
	if o.File != "" {
		if p.Text, err = textfile.ReadFile(ctx, o.File, textfile.MaxSettings); err != nil {
			return nil, err
		}
	}
	if p.Config, err = Parse(p.Text, o.File, p.Dialect); err != nil {
		return nil, err
	}
	if p.Config.Disaggregated() {
		return nil, fmt.Errorf("%s: prefill and decode on different servers: not supported", o.File)
	}
	if p.Changes, err = ParseChanges(o.Set); err == nil {
		p.Config, err = p.Config.With(p.Changes)
	}
	return p, err
}

// Build implements router.Builder.
func (o *options) Build(env router.Env) (*router.Router, error) {
	c, err := o.read(env.Context)
	if err != nil {
		return nil, err
	}
	config := c.Config
	refresh, err := time.ParseDuration(o.Refresh)
	if err != nil {
		return nil, err
	}
	p := &policy{s: NewScheduler(config, Options{Seed: env.Seed}), refresh: refresh.Seconds(),
		dialect: config.Dialect, lists: o.Metrics == "vllm", workers: env.Workers,
		reports: make([]router.Report, len(env.Workers)), told: make([]bool, len(env.Workers))}
	p.request.Prompts = p.prompts[:]
	return &router.Router{Policy: p, ReadsKV: true, ReadsFewKV: true, ReadsPrefixes: true, ReadBody: p.readBody,
		Poll: p.refresh}, nil
}

// poll looks at the workers.
func (p *policy) poll(v *router.View) {
	p.look, p.polled = true, v.Now
	for j := range v.Workers {
		w := &v.Workers[j]
		if !w.Up {
			continue // what fails leaves the old values
		}
		if w.Report == nil {
			if v.Read != nil {
				v.Read(j)
			}
			p.read(j, w, v)
		}
	}
}

// read makes the report of a worker that has none of its own, as its metrics would be.
func (p *policy) read(j int, w *router.Worker, v *router.View) {
	r := &p.reports[j]
	r.Waiting, r.Running, r.KV, r.At = w.Queued, w.Running, w.KVShare(), v.Now-w.Age
	r.BlockSize = max(p.workers[j].PageSize, 1)
	r.NumBlocks = int(w.KVCapacity) / r.BlockSize
	if !p.lists {
		return
	}
	r.RunningAdapters, r.WaitingAdapters = r.RunningAdapters[:0], r.WaitingAdapters[:0]
	for _, f := range w.InFlight() { // vLLM lists an adapter with requests in flight under both labels
		r.RunningAdapters = append(r.RunningAdapters, v.Adapters[f.Adapter].Name)
		r.WaitingAdapters = append(r.WaitingAdapters, v.Adapters[f.Adapter].Name)
	}
	p.told[j] = p.told[j] || len(r.RunningAdapters) > 0
	if r.MaxLora = 0; p.told[j] {
		r.MaxLora = w.Slots
	}
}

// endpoint is a worker as the picker reads it.
func (p *policy) endpoint(j int, w *router.Worker, now float64) Endpoint {
	r := &p.reports[j]
	if w.Report != nil {
		r = w.Report
	}
	return Endpoint{ID: j, Address: w.Address, Labels: w.Labels, Waiting: r.Waiting, Running: r.Running, KV: r.KV,
		RunningAdapters: r.RunningAdapters, WaitingAdapters: r.WaitingAdapters, MaxLora: r.MaxLora,
		BlockSize: r.BlockSize, NumBlocks: r.NumBlocks, Age: max(now-r.At, 0)}
}

// Route implements router.Policy.
func (p *policy) Route(r router.Request, v *router.View) router.Decision {
	if !p.look || v.Now-p.polled >= p.refresh {
		p.poll(v)
	}
	p.candidates = p.candidates[:0]
	for j, w := range v.Usable() {
		p.candidates = append(p.candidates, p.endpoint(j, w, v.Now))
	}
	p.s.Ended(r.ID) // it comes back from a worker that failed
	p.ask(&r, v)
	decision, rejection := p.s.Schedule(&p.request, p.candidates)
	if rejection != nil {
		return router.Decision{Worker: router.None, Refusal: &router.Refusal{Status: rejection.Status,
			Reason: rejection.Error()}}
	}
	p.s.Commit(&p.request, decision)
	return router.To(p.candidates[decision.primary()].ID)
}

// ask fills in the request.
func (p *policy) ask(r *router.Request, v *router.View) {
	q := &p.request
	q.ID, q.Model, q.Salt, q.Priority, q.Selected = r.ID, "", "", 0, ""
	if r.Adapter != trace.BaseModel {
		q.Model = v.Adapters[r.Adapter].Name
	}
	if b, ok := r.Hint.(*Request); ok {
		q.Prompts, q.Bytes, q.Salt = b.Prompts, b.Bytes, b.Salt
		q.Priority, q.Selected = b.Priority, b.Selected
		if b.Model != "" {
			q.Model = b.Model
		}
		return
	}
	p.prompt = simulated{Text: r.Text, Known: r.Known, Tokens: r.Prompt, ID: r.ID}
	p.prompts[0] = &p.prompt
	q.Prompts, q.Bytes = p.prompts[:], int(r.Prompt)*4
}

// readBody is router.Router.ReadBody: the hint is a *Request.
func (p *policy) readBody(path string, body []byte) any {
	b, reason := ParseBody(p.dialect, path, body)
	if reason != nil {
		return nil
	}
	return &Request{Prompts: b.Prompts, Salt: b.Salt, Bytes: len(body)}
}

// Note implements router.Policy.
func (p *policy) Note(e router.Event) error {
	switch e.Kind {
	case router.FirstToken:
		p.s.FirstToken(e.ID)
	case router.Left:
		p.s.Ended(e.ID)
	case router.Polled:
		p.poll(e.View)
	}
	return nil
}

// Succeed implements router.Policy: it takes over what the picker before knows.
func (p *policy) Succeed(s router.Succession) {
	old, ok := s.Before.(*policy)
	if !ok {
		return
	}
	p.s = old.s
	copy(p.told, old.told)
	if s.Joined >= 0 {
		p.s.Forget(s.Joined)
		p.told[s.Joined] = false
	}
}

// PickerConfig is the configuration that a spec of the policy epp runs.
type PickerConfig struct {
	File    string // "": none, the configuration is the default one
	Dialect Dialect
	Text    []byte   // of the file
	Changes []Change // option set
	Config  *Config  // with the changes
}

// ReadPickerConfig reads the configuration of a spec; nil for a spec of another policy. ctx
// ends the wait for a file that is a pipe.
func ReadPickerConfig(ctx context.Context, spec string) (*PickerConfig, error) {
	choice, err := router.Choose(spec)
	if err != nil {
		return nil, err
	}
	o, ok := choice.Options().(*options)
	if !ok {
		return nil, nil
	}
	p, err := o.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("policy epp: %w", err)
	}
	return p, nil
}
