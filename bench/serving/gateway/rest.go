package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
)

// The engines read bodies with Python's json, which takes the last of several values of
// a key, and more than JSON: NaN, UTF-16, a byte order mark. The gateway must see the
// adapter that the engine sees, or it would serve adapters that it does not know. It
// takes the last value, too, and refuses what is not JSON.
var (
	errNotJSON = errors.New("the body is not JSON")
	errNamed   = errors.New("the model is given twice")
)

// formPaths take a form instead of JSON.
var formPaths = []string{"/v1/audio/transcriptions", "/v1/audio/translations"}

// readsJSON reports whether the engines read the body of a request for a path as JSON, regardless of its Content-Type.
func readsJSON(path string) bool {
	return slices.Contains(dataPlane[http.MethodPost], path) && !slices.Contains(formPaths, path)
}

// spending reads the rest of a body, once.
type spending struct{ q *parsed }

func (s *spending) Read(p []byte) (int, error) {
	q := s.q
	q.spent.Store(true)
	n, err := q.rest.Read(p)
	if q.keys != nil {
		if again := q.keys.look(p[:n]); again != nil {
			n, err = 0, again
		}
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errSlowBody
	}
	q.broken.CompareAndSwap(nil, &err)
	return n, err
}

// failed returns the reason for which the rest of the body could not be read, or nil. It is no fault of the worker
// that waits for the body.
func (q *parsed) failed() error {
	if err := q.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// keyWatch searches the rest of a JSON object for keys that name the adapter. It parses only texts and brackets; the
// worker judges whether the rest is valid JSON.
type keyWatch struct {
	names  []string
	depth  int    // of brackets
	text   bool   // inside a text
	escape bool   // after a backslash
	isKey  bool   // the text that comes, or is under way, is a key of the object
	key    []byte // of it what has come, at most longestKey
}

// longestKey is the largest length of any spelling of a searched name: 6 bytes per character.
const longestKey = 6 * len("lora_path")

// watchKeys returns a watch for an object, starting at the end of one of its values.
func watchKeys(openAI bool) *keyWatch {
	k := &keyWatch{names: []string{"lora_path"}, depth: 1, isKey: true}
	if openAI {
		k.names = append(k.names, "model")
	}
	return k
}

// look reads the next bytes. It returns an error if they contain one of the keys.
func (k *keyWatch) look(p []byte) error {
	for len(p) > 0 {
		if k.text {
			n, err := k.inText(p)
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		switch p[0] {
		case '"':
			k.text, k.key = true, k.key[:0]
		case '{', '[':
			k.depth++
		case '}', ']':
			k.depth--
		case ',':
			k.isKey = k.depth == 1
		case ':':
			k.isKey = false
		}
		p = p[1:]
	}
	return nil
}

// inText reads bytes of a text, at least one, up to its end.
func (k *keyWatch) inText(p []byte) (n int, err error) {
	end := false
	switch {
	case k.escape:
		n, k.escape = 1, false
	case p[0] == '\\':
		n, k.escape = 1, true
	case p[0] == '"':
		n, end = 1, true
	default:
		if n = bytes.IndexAny(p, `"\`); n < 0 {
			n = len(p)
		}
	}
	if !k.isKey || k.depth != 1 {
		k.text = !end
		return n, nil
	}
	if !end {
		k.key = append(k.key, p[:min(n, longestKey+1-len(k.key))]...)
		return n, nil
	}
	k.text, k.isKey = false, false
	var name string
	if len(k.key) <= longestKey && json.Unmarshal(fmt.Appendf(nil, `"%s"`, k.key), &name) == nil &&
		slices.Contains(k.names, name) {
		return n, fmt.Errorf("%w: %q is far from the start of a long body; send it once, as the first field", errNamed,
			name)
	}
	return n, nil
}
