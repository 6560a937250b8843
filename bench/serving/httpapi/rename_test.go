package httpapi

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// renamed is a text after a Renamer that gets it in pieces.
func renamed(t *rapid.T, r *Renamer, text string) string {
	var out strings.Builder
	for len(text) > 0 {
		n := rapid.IntRange(1, min(len(text), 30)).Draw(t, "piece")
		out.Write(r.Piece([]byte(text[:n])))
		text = text[n:]
	}
	out.Write(r.End())
	return out.String()
}

// The name is replaced wherever the reply is cut, in every spelling, and nothing else is.
func TestRenamer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := []string{
			`"model":"base:l1"`, `"model": "base:l1"`, "\"model\" :\n\"base:l1\"", `"model":"ba\u0073e:l1"`,
			`"model":"base:l1x"`, `"model":"base:l"`, `"model":null`, `"model":"`, `"model"`, `"mod`, `"x":"model"`,
			`"text":"\"model\":\"base:l1\""`, `"text":"base:l1"`, `:"base:l1"`, `"`, `\`, `,`, "\n\ndata: {",
			`"model":"other"`,
		}
		var text, want strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "parts") {
			k := rapid.IntRange(0, len(parts)-1).Draw(t, "part")
			text.WriteString(parts[k])
			if k < 4 {
				parts := strings.SplitN(parts[k], `"ba`, 2)
				want.WriteString(parts[0] + `"l1"`)
			} else {
				want.WriteString(parts[k])
			}
			text.WriteString(" ,")
			want.WriteString(" ,")
			if k >= 13 || k == 7 || k == 9 { // an open text may swallow what follows
				break
			}
		}
		if got := renamed(t, NewRenamer("base:l1", "l1"), text.String()); got != want.String() {
			t.Fatalf("%q, expected %q", got, want.String())
		}
	})
}

// A name that needs escapes is replaced by valid JSON.
func TestRenamerEscapes(t *testing.T) {
	r := NewRenamer(`base:é"/`, `é"\`)
	got := string(r.Piece([]byte(`{"model":"base:\u00e9\"\/"}`))) + string(r.End())
	if want := `{"model":"é\"\\"}`; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// No more is held back than a field can take, however long a value is.
func TestRenamerHoldsLittle(t *testing.T) {
	r := NewRenamer("base:l1", "l1")
	sent, got := 0, 0
	for _, piece := range []string{`{"model":"`, strings.Repeat("x", 1000), strings.Repeat(" ", 1000), `","model"`,
		strings.Repeat(" ", 1000)} {
		sent += len(piece)
		got += len(r.Piece([]byte(piece)))
		if sent-got > r.longest+len(piece) || len(piece) == 1000 && sent-got > r.longest {
			t.Errorf("%d bytes are held after %.20q", sent-got, piece)
		}
	}
	if got += len(r.End()); got != sent {
		t.Errorf("%d of %d bytes came out", got, sent)
	}
}

func FuzzRenamer(f *testing.F) {
	f.Add(`data: {"model":"base:l1","choices":[]}`, 9)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		whole, parts := NewRenamer("base:l1", "l1"), NewRenamer("base:l1", "l1")
		cut = min(max(cut, 0), len(text))
		want := string(whole.Piece([]byte(text))) + string(whole.End())
		got := string(parts.Piece([]byte(text[:cut])))
		got += string(parts.Piece([]byte(text[cut:])))
		if got += string(parts.End()); got != want {
			t.Errorf("%q cut at %d: %q, expected %q", text, cut, got, want)
		}
	})
}

func BenchmarkPiece(b *testing.B) {
	r := NewRenamer("base:l1", "l1")
	piece := []byte(`data: {"id":"cmpl-0123456789","object":"text_completion","created":1,"model":"base:l1",` +
		`"choices":[{"index":0,"text":" t1","logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		r.Piece(piece)
	}
}
