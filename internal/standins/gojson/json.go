// Package json takes the place of github.com/goccy/go-json, which is a tenth of the time of a first build. Apache Arrow
// alone imports it, for JSON of its types that lorasim never reads or writes; these are the names that Arrow uses.
package json

import (
	"encoding/json"
	"io"
)

type (
	Decoder            = json.Decoder
	Delim              = json.Delim
	Encoder            = json.Encoder
	Marshaler          = json.Marshaler
	Number             = json.Number
	RawMessage         = json.RawMessage
	UnmarshalTypeError = json.UnmarshalTypeError
	Unmarshaler        = json.Unmarshaler
)

// Marshal is that of encoding/json.
func Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal is that of encoding/json.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// NewDecoder is that of encoding/json.
func NewDecoder(r io.Reader) *Decoder { return json.NewDecoder(r) }

// NewEncoder is that of encoding/json.
func NewEncoder(w io.Writer) *Encoder { return json.NewEncoder(w) }
