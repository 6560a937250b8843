package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"lorasim/bench/serving/fleet"
)

// The engines repeat the name of the model in their replies. A reply with another name than the request's shows that
// another process answers at the worker's URL, or that the worker has served the base model in place of an adapter.
// The client must not get such a reply.

// modelNames are the names by which a worker may call the model of one request. The zero value permits every name.
type modelNames struct {
	sent  string   // what the worker has read
	asked string   // what the client has written
	more  []string // other spellings
}

// expect returns the names for a request that an engine reads with a name of the model; "": the client's own.
func (d *dispatch) expect(engine *fleet.Info, sent string) (n modelNames) {
	q := d.parsed
	if !d.booked || !q.openAI || !q.json || sent == "" && q.asked == "" || strings.HasSuffix(d.r.URL.Path, "render") {
		return n
	}
	n = modelNames{sent: sent, asked: q.asked}
	if sent == "" {
		n.sent = q.asked
	}
	if q.adapter >= 0 {
		n.more = []string{d.adapter, engine.Model + ":" + d.adapter}
	} else {
		n.more = []string{engine.Model, engine.Root}
	}
	return n
}

var modelMark = []byte(`"model":"`)

// contradicted returns the name of the model in a reply, or in an event of one, if it is not the request's; else "".
func (n *modelNames) contradicted(reply []byte) string {
	if n.sent == "" {
		return ""
	}
	if i := bytes.Index(reply, modelMark); i >= 0 { // what is common is cheap
		rest, ok := bytes.CutPrefix(reply[i+len(modelMark):], []byte(n.sent))
		if ok && len(rest) > 0 && rest[0] == '"' {
			return ""
		}
	}
	name := modelIn(reply)
	if name == n.sent || name == n.asked || slices.Contains(n.more, name) {
		return ""
	}
	return name
}

// modelIn returns the name of the model in a reply, which may be cut off: of the reply itself, or of the object that
// the events of some interfaces carry. "": there is none.
func modelIn(reply []byte) (name string) {
	if !bytes.Contains(reply, []byte(`"model"`)) {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(reply))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ""
		}
		switch key {
		case "model":
			json.Unmarshal(value, &name) // what is no text is no name
			return name
		case "message", "response":
			if name = modelIn(value); name != "" {
				return name
			}
		}
	}
	return ""
}

// otherModel returns the fault of a worker whose reply names another model. The fleet asks the worker again, and does
// not count on the adapter there.
func (a *answer) otherModel(name string) *fault {
	d := a.d
	d.g.cfg.Fleet.Requests.Doubt(&d.fr)
	if d.parsed.adapter >= 0 {
		d.g.cfg.Fleet.LoRAs.Forget(a.w, d.parsed.adapter)
	}
	err := fmt.Errorf("a reply of model %q, asked for %q", name, a.names.sent)
	d.g.workers.Log("worker %d (%s): %v", a.w, d.g.cfg.Fleet.URL(a.w), err)
	return &fault{reason: wrongModel, text: "the worker answered with another model", lost: true, other: true, err: err}
}

// checkWhole returns the fault of a reply that is no stream if it names another model.
func (a *answer) checkWhole(held []byte) *fault {
	if a.status == http.StatusOK {
		if name := a.names.contradicted(held); name != "" {
			return a.otherModel(name)
		}
	}
	return nil
}
