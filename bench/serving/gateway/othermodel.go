package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
)

// expect returns the names for a request that an engine reads with a name of the model; "": the client's own.
func (d *dispatch) expect(engine *fleet.Info, sent string) (n httpapi.ModelNames) {
	q := d.parsed
	if !d.booked || !q.openAI || !q.json || sent == "" && q.asked == "" || strings.HasSuffix(d.r.URL.Path, "render") {
		return n
	}
	n = httpapi.ModelNames{Sent: sent, Asked: q.asked}
	if sent == "" {
		n.Sent = q.asked
	}
	if n.Base, n.Root = engine.Model, engine.Root; q.adapter >= 0 {
		n.Adapter = cmp.Or(d.served, d.adapter)
	}
	return n
}

// otherModel returns the fault of a worker whose reply names another model. The fleet asks the worker again, and does
// not count on the adapter there.
func (a *answer) otherModel(name string) *fault {
	d := a.d
	d.g.cfg.Fleet.Requests.Doubt(&d.fr)
	if d.parsed.adapter >= 0 {
		d.g.cfg.Fleet.LoRAs.Forget(a.w, d.parsed.adapter)
	}
	err := fmt.Errorf("a reply of model %q, asked for %q", name, a.names.Sent)
	d.g.workers.Log("worker %d (%s): %v", a.w, d.g.cfg.Fleet.URL(a.w), err)
	return &fault{reason: wrongModel, text: "the worker answered with another model", lost: true, other: true, err: err}
}

// checkWhole returns the fault of a reply that is no stream if it names another model.
func (a *answer) checkWhole(held []byte) *fault {
	if a.status == http.StatusOK {
		if name := a.names.Contradicted(held); name != "" {
			return a.otherModel(name)
		}
	}
	return nil
}
