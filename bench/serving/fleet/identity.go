package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"lorasim/bench/serving/httpapi"
)

// The process at a worker's URL may change. The process restarts, perhaps with another base model; a rolling update
// replaces it; another engine, or a placeholder, takes the address. The fleet therefore asks again: at each probe, when
// a connection to the worker is new, and when a reply contradicts the known information. If the answer has another
// version, base model or limit, the fleet counts the process as a new worker and drops what it learned of the former
// one (see [membership.renew]).

// ErrChanged means that a worker has changed since a request was routed to it: another process answers at its URL, or
// it has lost the request's adapter. The request has not been sent, and must be routed again.
var ErrChanged = errors.New("the worker has changed")

// other lists the fields that no running process changes and that two answers of a worker state differently; "": none.
// A field that one of the answers lacks is no difference.
func (in *Info) other(now *Info) string {
	var list []string
	differ := func(what, was, is string) {
		if was != "" && is != "" && was != is {
			list = append(list, fmt.Sprintf("%s %s, was %s", what, is, was))
		}
	}
	differ("engine", string(in.API), string(now.API))
	differ("version", in.Version, now.Version)
	differ("base model", in.Model, now.Model)
	differ("path of the base model", in.Root, now.Root)
	if a, b := in.ContextLength, now.ContextLength; a > 0 && b > 0 && a != b {
		list = append(list, fmt.Sprintf("context length %d, was %d", b, a))
	}
	if a, b := in.Started, now.Started; a > 0 && b > 0 && math.Abs(a-b) >= 1 {
		list = append(list, "a later start")
	}
	return strings.Join(list, ", ")
}

// title names an engine and its base model for people.
func (in *Info) title() string {
	engine := strings.TrimSpace(string(in.API) + " " + in.Version)
	return fmt.Sprintf("%s with base model %s", engine, cmp.Or(in.Model, "unknown"))
}

// baseEntry returns the entry of the base model in a worker's list of models.
func baseEntry(list []model) (m model) {
	if i := slices.IndexFunc(list, func(m model) bool { return m.Parent == "" }); i >= 0 {
		m = list[i]
		m.Created = 0 // the time of the list
	}
	return m
}

// confirms reports whether a list of models shows that the same engine serves the same base model as when entry was
// read. The list must name its engine, as those of vLLM and sglang do.
func confirms(api httpapi.Kind, entry, now model) bool {
	return now == entry && now.OwnedBy == string(api)
}

// identified enters the information that a worker told of itself. It returns the worker that is up then: k, or the one
// that takes its place.
func (d *discovery) identified(k *worker, in Info, listed []model, unlisted, unready error) (*worker, error) {
	defer d.table.lock()()
	if k.gone {
		return k, ErrLeft
	}
	why := k.health.info.other(&in)
	if k.health.restarted && why == "" {
		why = "a restart"
	}
	if k.health.met && why != "" {
		heir, err := d.table.renew(k, in, why)
		if err != nil {
			return k, err
		}
		k = heir
	}
	d.unread(k, unlisted)
	d.know(k, in, listed)
	d.table.setReady(k, unready)
	if !k.view.Up {
		d.journal.add(EventUp, "", "answers, and takes requests", k.index)
	}
	k.view.Up = true
	k.out.afterDown()
	return k, nil
}

// know notes the identity of a worker, and the adapters that it holds. Called with mu held.
func (d *discovery) know(k *worker, in Info, listed []model) {
	k.api.Store(in.API)
	h := &k.health
	h.known, h.met, h.restarted, h.failed, h.info, h.entry = true, true, false, 0, in, baseEntry(listed)
	k.loras.most = in.MaxLoaded
	d.table.setLimits(k, in.Limits)
	k.loras.version++
	d.table.mix()
	d.enter(k, listed)
}

// ask asks a worker again for its identity and its adapters. If another process answers, that process takes the place
// of k, and the error is ErrChanged. If all is true, ask compares the whole answer, not only the entry of the base
// model.
func (d *discovery) ask(ctx context.Context, k *worker, all bool) error {
	return d.inquire(ctx, k, all, func([]model) bool { return true })
}

// askWho is ask for a new connection. A list without a base model says nothing about adapters.
func (d *discovery) askWho(ctx context.Context, k *worker) error {
	return d.inquire(ctx, k, false, func(listed []model) bool { return baseEntry(listed).ID != "" })
}

// inquire is ask, with a condition for lists that count.
func (d *discovery) inquire(ctx context.Context, k *worker, all bool, counts func([]model) bool) error {
	d.table.mu.Lock()
	known, entry, before := k.health.info, k.health.entry, k.loras.version
	d.table.mu.Unlock()
	if all {
		entry = model{}
	}
	in, listed, err := k.identity(ctx, known, entry)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	defer d.table.lock()()
	if k.gone {
		return ErrChanged
	}
	if why := known.other(&in); why != "" && k.health.known {
		heir, err := d.table.renew(k, in, why)
		if err != nil {
			d.table.down(k, err)
			return err
		}
		d.unread(heir, err)
		d.know(heir, in, listed)
		heir.view.Up = true
		d.renewed(heir)
		return ErrChanged
	}
	if d.unread(k, err) {
		return nil // what the fleet has loaded itself counts
	}
	if k.health.known && k.loras.version == before && k.loras.calls == 0 && counts(listed) {
		k.health.entry = baseEntry(listed)
		d.enter(k, listed)
	}
	return nil
}

// identity asks a worker for its list of models, and compares the entry of the base model with entry, its earlier one.
// If they are equal, identity returns the earlier information, known. Else it asks the worker for everything. If the
// list is too long to be read, the error is errTooLong, and the information is valid.
func (e *engine) identity(ctx context.Context, known Info, entry model) (in Info, listed []model, err error) {
	listed, err = e.models(ctx)
	if err != nil && !errors.Is(err, errTooLong) {
		return in, nil, err
	}
	if err == nil && confirms(known.API, entry, baseEntry(listed)) {
		return known, listed, nil
	}
	in, failed := e.again().discover(ctx)
	if failed != nil {
		return in, nil, failed
	}
	return in, listed, err
}

// again returns a client of the same URL that knows nothing of the engine there.
func (e *engine) again() *engine {
	return newEngine(&Connection{Client: e.client, Header: e.header, API: e.asked}, e.url)
}

// ready asks a worker whether it takes requests. The error says why not. Engines answer 503 while they start or drain,
// and when their core is dead, at /health and, in newer versions, at /ready. No answer, or another status, says
// nothing.
func (e *engine) ready(ctx context.Context) error {
	paths := []string{"/health", "/ready"}
	if e.unready.Load() {
		paths = paths[:1]
	}
	for _, path := range paths {
		_, err := e.call(ctx, http.MethodGet, path, nil)
		if isStatus(err, http.StatusServiceUnavailable) {
			return err
		}
		if path == "/ready" && isStatus(err, http.StatusNotFound) {
			e.unready.Store(true)
		}
	}
	return nil
}
