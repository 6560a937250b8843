package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
)

// ModelNames are the names by which a worker may call the model of one request. The engines repeat the name of the
// model in their replies. A reply with another name shows that another process answers at the worker's URL, or that
// the worker has served the base model in place of an adapter: the client must not get it. The zero value permits
// every name.
type ModelNames struct {
	Sent    string // what the worker has read
	Asked   string // what the client has written
	Adapter string // "": none
	Base    string // the base model
	Root    string // where it lies, which is also its name
}

// permits reports whether a name is one of the model's.
func (n *ModelNames) permits(name string) bool {
	switch {
	case name == n.Sent || name == n.Asked:
		return true
	case n.Adapter == "":
		return name == n.Base || name == n.Root
	}
	adapter, ok := strings.CutPrefix(name, n.Base)
	if ok {
		adapter, ok = strings.CutPrefix(adapter, ":")
	}
	return name == n.Adapter || ok && adapter == n.Adapter
}

var modelMark = []byte(`"model":"`)

// Contradicted returns the name of the model in a reply, or in an event of one, if it is not the request's; else "".
func (n *ModelNames) Contradicted(reply []byte) string {
	if n.Sent == "" {
		return ""
	}
	if i := bytes.Index(reply, modelMark); i >= 0 { // what is common is cheap
		rest, ok := bytes.CutPrefix(reply[i+len(modelMark):], []byte(n.Sent))
		if ok && len(rest) > 0 && rest[0] == '"' {
			return ""
		}
	}
	if name := modelIn(reply); !n.permits(name) {
		return name
	}
	return ""
}

// modelIn returns the name of the model in a reply, which may be cut off: of the reply itself, or of the object that
// the events of some interfaces carry. "": there is none.
func modelIn(reply []byte) (name string) {
	if !bytes.Contains(reply, field) {
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
