package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a worker says of itself, in answers and in errors, is shown and not obeyed.
func TestCheckEscapes(t *testing.T) {
	const evil = `\u001b]0;owned\u0007\u202eexe\u009b31m\nadapter slots      99`
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			io.WriteString(w,
				`{"object":"list","data":[{"id":"base`+evil+`","object":"model","owned_by":"vllm","max_model_len":100},{"id":"a`+evil+`","object":"model","parent":"base"}]}`)
		case "/version":
			io.WriteString(w, `{"version":"0.11`+evil+`"}`)
		case "/health":
		case "/metrics":
			http.Error(w, "\x1b[2J\x1b]52;c;ZXZpbA==\x07", http.StatusInternalServerError)
		default:
			http.Error(w, `{"error":{"message":"`+evil+strings.Repeat("x", 10_000)+`"}}`, http.StatusBadRequest)
		}
	}))
	defer worker.Close()
	for _, args := range [][]string{{"check", worker.URL}, {"check", worker.URL, "--json"},
		{"bench", "--worker-urls", worker.URL, "--num-prompts", "1", "--lora", "\x1b[31mx=/y", "--ready-timeout",
			"1s"}} {
		var out, errs bytes.Buffer
		run(context.Background(), args, strings.NewReader(""), &out, &errs)
		said := out.String() + errs.String()
		if i := strings.IndexAny(said, "\x1b\x07\u009b\u202e"); i >= 0 {
			t.Errorf("%q: %q", args, said[max(0, i-40):min(len(said), i+40)])
		}
		if len(said) == 0 || len(said) > 20_000 {
			t.Errorf("%q: %d bytes", args, len(said))
		}
		if strings.Contains(said, "\nadapter slots      99") {
			t.Errorf("%q: a worker's text begins a line:\n%s", args, said)
		}
	}
}
