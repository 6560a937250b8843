package httpapi

import (
	"bytes"
	"encoding/json"
)

// A Renamer replaces the name of the model in a reply, since sglang spells an adapter as BASE:ADAPTER and vLLM as
// ADAPTER, and clients get the name that they used:
//
//	r := httpapi.NewRenamer("base:chat", "chat")
//	out := r.Piece(piece) // for each piece of the reply
//	out = r.End()
//
// It changes the value of each field "model" of the reply's JSON. The reply, JSON or events, comes in pieces that may
// be cut anywhere. Texts within the reply stay as they are: quotes are escaped there.
type Renamer struct {
	from    string
	to      string
	name    []byte // to as JSON; nil before the first use
	longest int    // of a spelling of the field with the name, bytes
	held    []byte // the end of the pieces so far, which may be the start of a field
	out     []byte
}

var field = []byte(`"model"`)

// maxSpace is the longest white space around the colon of a field, bytes.
const maxSpace = 16

// NewRenamer returns a Renamer that replaces the name from by the name to.
func NewRenamer(from, to string) *Renamer {
	// each byte may be spelled as \u0000
	return &Renamer{from: from, to: to, longest: len(field) + maxSpace + len(`:""`) + 6*len(from)}
}

// Piece takes a piece of the reply and returns what can be passed on. The result is valid until the next call, and may
// be the piece itself.
func (r *Renamer) Piece(piece []byte) []byte {
	text := piece
	if len(r.held) > 0 {
		r.held = append(r.held, piece...)
		text = r.held
	}
	r.out = r.out[:0]
	done, at := 0, 0 // what is in out, and what has been read
	for {
		i := bytes.Index(text[at:], field)
		if i < 0 {
			at = len(text) - startOf(field, text[at:])
			break
		}
		i += at
		from, to, what := r.value(text[i:])
		if what == partly {
			at = i
			break
		}
		if what == matches {
			r.out = append(append(r.out, text[done:i+from]...), r.json()...)
			done = i + to
		}
		at = i + to
	}
	if done == 0 && len(r.held) == 0 {
		r.held = append(r.held, text[at:]...)
		return text[:at]
	}
	r.out = append(r.out, text[done:at]...)
	r.held = append(r.held[:0], text[at:]...)
	return r.out
}

// json returns the new name as JSON.
func (r *Renamer) json() []byte {
	if r.name == nil {
		r.name, _ = json.Marshal(r.to) // a string is always valid
	}
	return r.name
}

// End returns the rest of the reply.
func (r *Renamer) End() []byte {
	rest := r.held
	r.held = nil
	return rest
}

// startOf returns the length of the longest end of a text that is a start of a word.
func startOf(word, text []byte) int {
	for n := min(len(word)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, word[:n]) {
			return n
		}
	}
	return 0
}

type match uint8

const (
	differs match = iota
	matches
	partly // the text ends before that is known
)

// value finds the value of a field at the start of a text. If it matches the name, it stands between from and to.
// Otherwise the search goes on at to.
func (r *Renamer) value(text []byte) (from, to int, what match) {
	open := partly
	if len(text) >= r.longest {
		text, open = text[:r.longest], differs
	}
	i := len(field)
	space := func() {
		for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
			i++
		}
	}
	space()
	if i == len(text) {
		return 0, len(field), open
	}
	if text[i] != ':' {
		return 0, len(field), differs
	}
	i++
	space()
	if i == len(text) {
		return 0, len(field), open
	}
	if text[i] != '"' {
		return 0, len(field), differs
	}
	from = i
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			if r.isName(text[from : i+1]) {
				return from, i + 1, matches
			}
			return 0, i + 1, differs
		}
	}
	return 0, len(field), open
}

// isName reports whether a JSON string is the name to replace.
func (r *Renamer) isName(value []byte) bool {
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1:len(value)-1]) == r.from
	}
	var name string
	return json.Unmarshal(value, &name) == nil && name == r.from
}
