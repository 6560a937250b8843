package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/wire"
	"lorasim/router"
)

// offer tries one worker after another until one answers.
func (d *dispatch) offer() (*http.Response, error) {
	if d.booked {
		if reason, after := d.g.cfg.Fleet.Requests.Refuse(&d.fr); reason != "" {
			return nil, &refusal{http.StatusTooManyRequests, reason, after}
		}
	}
	last, why := "", ""
	for {
		w, final := d.pick(), len(d.tried) >= d.g.cfg.Retries && !d.search
		if w == router.None {
			return nil, &refusal{status: http.StatusServiceUnavailable, text: cmp.Or(last, d.g.cfg.Fleet.Unavailable())}
		}
		if why != "" {
			d.g.metrics.Retried(why)
		}
		if d.tried = append(d.tried, w); len(d.tried) == 1 && d.booked && d.parsed.adapter >= 0 {
			d.g.metrics.Routed(d.g.cfg.Fleet.URL(w), d.adapter, d.fr.Held)
		}
		d.line.worker, d.line.url, d.line.tries = w, d.g.cfg.Fleet.URL(w), len(d.tried)
		resp, f := d.try(w, final || !d.booked && d.next() == router.None)
		if resp != nil {
			return resp, nil
		}
		goesOn := !final && !d.parsed.spent.Load() && d.goesOn(f)
		if f.lost {
			d.lost++
		}
		if err := cmp.Or(d.parsed.failed(), d.r.Context().Err()); err != nil {
			return nil, err
		}
		if no := d.noPlace; no != nil && (final || no.Late || d.g.cfg.Fleet.Up() <= len(d.tried)) {
			return nil, &refusal{http.StatusServiceUnavailable, f.text, no.After.Seconds()}
		}
		if last = f.text; !goesOn {
			return nil, &refusal{status: http.StatusBadGateway, text: last}
		}
		if why = f.reason; !d.another() {
			d.pause()
		}
	}
}

// pick returns the next worker to try. The policy picks it and books the request there. A request without work for the
// model goes to the first worker that has not been tried.
func (d *dispatch) pick() int {
	if d.booked {
		return d.g.cfg.Fleet.Requests.Route(&d.fr, d.tried...)
	}
	if w := d.g.cfg.Fleet.Requests.First(d.parsed.adapter, d.parsed.base); !slices.Contains(d.tried, w) {
		return w
	}
	return d.next()
}

// next returns the first usable worker that has not been tried.
func (d *dispatch) next() int {
	for _, s := range d.g.cfg.Fleet.Status() {
		if s.Up && !s.Draining && !s.Ejected && !slices.Contains(d.tried, s.Worker) {
			return s.Worker
		}
	}
	return router.None
}

// try sends the request to a worker. If the worker did not take it and another one may, try returns no response but
// the fault. If final is true, it returns any response of the worker.
func (d *dispatch) try(w int, final bool) (resp *http.Response, f *fault) {
	workers := d.g.cfg.Fleet
	d.postponed = false
	if !d.fr.Engines.Has(workers.API(w)) {
		return nil, &fault{reason: notLoaded, text: fleet.NoEngine(d.r.URL.Path), other: true}
	}
	a := d.begin(w)
	defer func() {
		if resp == nil {
			a.leave()
		}
	}()
	for {
		var names map[int32]string // by adapter: a batch may name one several times, and gets one version of it
		if len(d.parsed.others) > 0 {
			names = map[int32]string{}
		}
		d.also = d.also[:0]
		for i, k := range append([]int32{d.parsed.adapter}, d.parsed.others...) {
			var err error
			name, served := names[k]
			if !served {
				name, err = d.ready(a, k)
			}
			if i == 0 {
				d.served = name
			} else {
				d.also = append(d.also, name)
			}
			if names != nil {
				names[k] = name
			}
			if err != nil {
				if errors.Is(err, fleet.ErrChanged) {
					return nil, d.unanswered(a, err)
				}
				d.noPlace, _ = errors.AsType[*fleet.NoPlace](err)
				return nil, &fault{reason: notLoaded, text: err.Error(), other: true}
			}
		}
		var err error
		if resp, err = d.send(a); err != nil {
			return nil, d.unanswered(a, err)
		}
		if !d.evicted(resp, w) {
			break
		}
	}
	d.postpone(w, resp)
	if !final && !d.parsed.spent.Load() && d.again(resp.StatusCode) && d.goesOn(answered(resp.StatusCode, "")) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
		resp.Body.Close()
		text := fleet.ErrorText(body)
		d.answered(a, resp, text)
		if resp.StatusCode != http.StatusNotFound || d.search || d.misses(text) {
			if resp.StatusCode == http.StatusNotFound && d.parsed.adapter >= 0 {
				workers.LoRAs.Forget(w, d.parsed.adapter)
			}
			return nil, answered(resp.StatusCode, text)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if resp.StatusCode == http.StatusOK && !d.began {
		d.tell(true) // now: the first token may take seconds, in which others would go to the workers that failed
	}
	a.take(resp)
	if f, err := a.hold(resp, final || d.parsed.spent.Load()); f != nil || err != nil {
		a.ReadCloser.Close()
		if resp, d.began = nil, true; err != nil {
			return nil, d.unanswered(a, err)
		}
		if f.err != nil {
			d.fault(w, f.err)
		}
		return nil, f
	}
	d.answer = a
	return resp, nil
}

// ready makes the worker of an answer ready for one of the request's adapters, and returns the adapter's name there.
func (d *dispatch) ready(a *answer, adapter int32) (name string, err error) {
	loras := d.g.cfg.Fleet.LoRAs
	if d.booked {
		return loras.Serve(a.ctx, a.w, &d.fr, adapter, d.wait())
	}
	if err := loras.EnsureWithin(a.ctx, a.w, adapter, d.wait()); err != nil {
		return "", err
	}
	return loras.Name(a.w, adapter), nil
}

// notServed is what engines answer to a path that they do not have; else status
// 404 speaks of the adapter.
var notServed = regexp.MustCompile(`(?i)^"?(404 page )?not found"?$`)

// misses reports whether the text of a status 404 says that the worker lacks the model or adapter.
func (d *dispatch) misses(text string) bool {
	if d.parsed.adapter < 0 {
		return fleet.IsNotLoaded(text)
	}
	return !notServed.MatchString(text)
}

// again reports whether another worker, or a load of the adapter, may help. Objects that clients left on one worker,
// such as a response to look up, are not on the others.
func (d *dispatch) again(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || d.foreign(status) || d.keyRefused(status) ||
		status == http.StatusTooManyRequests ||
		status == http.StatusNotFound && (d.parsed.adapter >= 0 || d.parsed.base != "" || d.search)
}

// wait limits the wait of the request for a place for its adapter, on all workers.
func (d *dispatch) wait() fleet.Wait {
	wait := fleet.Wait{Since: d.sent}
	if limit := d.g.cfg.QueueTimeout; limit > 0 {
		wait.Until = d.sent.Add(limit)
	}
	return wait
}

// send sends the request to the worker of an answer.
func (d *dispatch) send(a *answer) (*http.Response, error) {
	ctx, engine, err := d.process(a)
	if err != nil {
		return nil, err
	}
	if d.out == nil {
		d.out = d.outgoing()
	}
	out, base, r := d.out.WithContext(ctx), d.g.cfg.Fleet.Base(a.w), d.r
	out.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + r.URL.Path,
		RawQuery: soundQuery(r.URL.RawQuery)}
	if base.Path != "" || r.URL.RawPath != "" {
		out.URL.RawPath = base.EscapedPath() + r.URL.EscapedPath() // of no effect where it says the same as Path
	}
	e := d.parsed.respell(engine.API, engine.Model, cmp.Or(d.served, d.adapter))
	if engine.API != httpapi.VLLM {
		e.lora = d.parsed.renameLoRAs(d.served, d.also)
	}
	if e.model != "" {
		a.renamer = httpapi.NewRenamer(e.model, cmp.Or(d.parsed.asked, d.adapter))
		out.Header.Del("Accept-Encoding") // names in a compressed reply stay as they are
	}
	a.names = d.expect(engine, e.model)
	if d.booked {
		a.aborts = httpapi.AbortMarkOf(engine.API, r.URL.Path, d.parsed.stream)
	}
	d.parsed.send(out, e)
	d.asked = a.w
	if d.parsed.stream {
		a.wait(d.g.cfg.FirstByte)
	}
	resp, err := d.g.transport.RoundTrip(out)
	if cause := a.cause(); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err == nil {
		d.check(resp)
	}
	return resp, err
}

// process returns the engine for which the request is spelled, and a context that keeps it from other ones.
func (d *dispatch) process(a *answer) (context.Context, *fleet.Info, error) {
	f := d.g.cfg.Fleet
	if !d.booked {
		return a.ctx, &fleet.Info{API: f.API(a.w), Model: f.Model(a.w)}, nil
	}
	var err error
	if a.process, err = f.Requests.Process(&d.fr); err != nil {
		return nil, nil, err
	}
	a.meant = wire.Process{ID: a.process.ID, Confirm: d.confirm}
	return wire.For(a.ctx, &a.meant), &a.process.Info, nil
}

func (d *dispatch) confirm(ctx context.Context) error {
	return d.g.cfg.Fleet.Requests.Confirm(ctx, &d.fr)
}

// check casts doubt on a worker whose reply contradicts what is known of it.
func (d *dispatch) check(resp *http.Response) {
	if !d.booked {
		return
	}
	requests := d.g.cfg.Fleet.Requests
	requests.Server(&d.fr, resp.Header.Get("Server"))
	if resp.StatusCode == http.StatusNotFound {
		requests.Doubt(&d.fr)
	}
}
