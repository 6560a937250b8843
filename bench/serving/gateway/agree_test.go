package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf16"
)

// The engines read bodies with Python's json, which takes more than JSON; in such a
// body they could find an adapter that the gateway does not see. It is refused.
func TestAgreement(t *testing.T) {
	const form = "multipart/form-data; boundary=x"
	field := func(name, value string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	wide := ""
	for _, c := range utf16.Encode([]rune(`{"model": "b"}`)) {
		wide += string([]byte{byte(c), byte(c >> 8)})
	}
	for _, c := range []struct{ name, path, media, body, adapter string }{
		{"last of two", "/v1/completions", "", `{"model": "a", "model": "b"}`, "b"},
		{"escaped key", "/v1/completions", "", `{"model": "a", "mod\u0065l": "b"}`, "b"},
		{"nan", "/v1/completions", "", `{"x": NaN, "model": "b"}`, "refused"},
		{"infinity", "/v1/completions", "", `{"model": "a", "x": -Infinity, "model": "b"}`, "refused"},
		{"byte order mark", "/generate", "", "\ufeff" + `{"lora_path": "b"}`, "refused"},
		{"utf-16", "/v1/completions", "", wide, "refused"},
		{"two values", "/v1/completions", "", `{"model": "a"} {"model": "b"}`, "refused"},
		{"cut off", "/v1/completions", "", `{"model": "a"`, "refused"},
		{"too deep", "/v1/completions", "", `{"x": ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) +
			`, "model": "b"}`, "refused"},
		{"long and no JSON", "/v1/completions", "", `{"x": "` + strings.Repeat("x", keep) + `", NaN, "model": "b"}`,
			"refused"},
		{"JSON that calls itself a form", "/v1/completions", form, `{"model": "b"}`, "b"},
		{"form", "/v1/audio/transcriptions", form, field("model", "a") + "--x--\r\n", "a"},
		{"last of two in a form", "/v1/audio/transcriptions", form, field("model", "a") + field("model", "b") +
			"--x--\r\n", "b"},
		{"no body", "/v1/completions", "", "", ""}, {"white space", "/v1/completions", "", " \n", ""},
		{"an array", "/v1/completions", "", "[1]", ""}, {"null", "/generate", "", "null", ""},
		{"a path of --allow", "/v1/files", "", "\x00\x01", ""},
	} {
		r := httptest.NewRequest("POST", c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.media)
		q := newWant(c.path != "/generate", r.ContentLength)
		q.json = readsJSON(c.path)
		err := q.read(t.Context(), r, 4*keep)
		got := strings.Join(q.names, ",")
		if err != nil {
			got = "refused"
		}
		if got != c.adapter {
			t.Errorf("%s: %q, %v; expected %q", c.name, got, err, c.adapter)
		}
	}
}
