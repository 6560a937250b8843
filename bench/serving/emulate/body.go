package emulate

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type object = map[string]any

// lenient takes what the engines' own parsers take.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// reading serves requests whose body is JSON; refuse answers others.
func reading[T any](refuse func(rw http.ResponseWriter, err error),
	serve func(rw http.ResponseWriter, r *http.Request, q *T)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" && kind != "" {
			refuse(rw, errContentType{})
			return
		}
		var data bytes.Buffer
		data.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
		_, err := data.ReadFrom(r.Body)
		q := new(T)
		switch {
		case err != nil:
		case !utf8.Valid(data.Bytes()):
			refuse(rw, errEncoding{})
			return
		case len(bytes.TrimSpace(data.Bytes())) == 0 || data.String() == "null":
			refuse(rw, errBody{error: errMissing("the body")})
			return
		default:
			err = json.Unmarshal(data.Bytes(), q, lenient)
		}
		if err != nil {
			refuse(rw, badBody(err))
			return
		}
		serve(rw, r, q)
	}
}

// badBody returns the error of a body with the place of the mistake: the field, or the offset in the text.
func badBody(err error) error {
	e := errBody{error: err}
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		e.at = strings.ReplaceAll(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/", ".")
	}
	if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		e.at = strconv.FormatInt(wrong.ByteOffset, 10)
	}
	return e
}

func appendEvent(b []byte, v any) []byte {
	return append(appendJSON(append(b, "data: "...), v), "\n\n"...)
}

func appendJSON(b []byte, v any) []byte {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return append(b, data...)
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	data := appendJSON(nil, v)
	rw.Header().Set("Content-Length", strconv.Itoa(len(data)))
	rw.WriteHeader(status)
	rw.Write(data) // what fails is the connection, which the client sees
}

// writeBody writes a whole body of a known length.
func writeBody(rw http.ResponseWriter, data []byte) {
	rw.Header().Set("Content-Length", strconv.Itoa(len(data)))
	rw.Write(data)
}
