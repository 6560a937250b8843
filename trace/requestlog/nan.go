package requestlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// withoutNaN reads JSON as Python's json module writes it: NaN, Infinity and -Infinity, outside of strings, become the
// empty string, which stands for no value. Nothing moves: spaces fill the place of a longer word.
type withoutNaN struct {
	in      *bufio.Reader
	quoted  bool // within a string
	escaped bool // after a backslash
	pending []byte
}

func newWithoutNaN(in io.Reader) *withoutNaN { return &withoutNaN{in: bufio.NewReader(in)} }

// strange are the words that stand for numbers that JSON does not have.
var strange = [][]byte{[]byte("NaN"), []byte("Infinity"), []byte("-Infinity")}

func (r *withoutNaN) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.pending) > 0 {
			k := copy(p[n:], r.pending)
			r.pending, n = r.pending[k:], n+k
			continue
		}
		if n > 0 && r.in.Buffered() == 0 {
			return n, nil // do not wait for more
		}
		c, err := r.in.ReadByte()
		if err != nil {
			return n, err
		}
		p[n] = c
		n++
		switch {
		case r.escaped:
			r.escaped = false
		case r.quoted:
			r.quoted, r.escaped = c != '"', c == '\\'
		case c == '"':
			r.quoted = true
		case c == 'N' || c == 'I' || c == '-':
			r.replace(p[:n])
		}
	}
	return n, nil
}

// replace replaces a word that begins with the last byte read.
func (r *withoutNaN) replace(out []byte) {
	c := out[len(out)-1]
	for _, word := range strange {
		rest, _ := r.in.Peek(len(word) - 1)
		if c != word[0] || !bytes.Equal(rest, word[1:]) {
			continue
		}
		r.in.Discard(len(rest))
		out[len(out)-1] = '"'
		r.pending = append([]byte{'"'}, bytes.Repeat([]byte{' '}, len(word)-2)...)
		return
	}
}

// validJSON returns a text without NaN; ok: the text is valid JSON.
func validJSON(text []byte) (_ []byte, ok bool) {
	if json.Valid(text) {
		return text, true
	}
	text, _ = io.ReadAll(newWithoutNaN(bytes.NewReader(text)))
	return text, json.Valid(text)
}
