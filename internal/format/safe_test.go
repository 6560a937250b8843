package format

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 漢字 😀": "plain äöü 漢字 😀", "\x1b]0;title\x07": `\u001b]0;title\u0007`,
		"a\nb\tc\rd": `a\u000ab\u0009c\u000dd`,
		"\u009b31m":  `\u009b31m`, "abc\u202egnp.exe": `abc\u202egnp.exe`, "\x7f": `\u007f`, "\xff\x9b": "��",
		"\u2028":     `\u2028`,
		"\U000e0041": `\udb40\udc41`, "": "",
	} {
		if got := Line(in, 0); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
	if got := Line(strings.Repeat("ä", 1000), 10); got != strings.Repeat("ä", 9)+"…" {
		t.Errorf("%q", got)
	}
}

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"a\n\tb\r\n": "a\n\tb\r\n", "a\rb\n": `a\u000db` + "\n", "x\x1b[2J\n": `x\u001b[2J` + "\n",
		"end\r": `end\u000d`,
	} {
		var b bytes.Buffer
		if n, err := Safe(&b).Write([]byte(in)); n != len(in) || err != nil || b.String() != want {
			t.Errorf("%q: %q, %d, %v, expected %q", in, b.String(), n, err, want)
		}
	}
}

// FuzzSafe: however a text is cut into pieces, what comes out has nothing that a terminal
// obeys, text without such characters stays, and JSON means the same.
func FuzzSafe(f *testing.F) {
	f.Add([]byte("a\x1b[31m😀\u202e\xf0\x9f\n"), 3)
	f.Add([]byte(`{"a":"ä\u009b"}`), 1)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		var b bytes.Buffer
		w := Safe(&b)
		for rest := text; len(rest) > 0; {
			n := min(max(piece, 1), len(rest))
			if k, err := w.Write(rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		got := b.String()
		for i, r := range got {
			if obeyed(r) && r != '\n' && r != '\t' && !(r == '\r' && i+1 < len(got) && got[i+1] == '\n') {
				t.Errorf("%q has %U", got, r)
			}
		}
		if utf8.Valid(text) && !strings.ContainsFunc(string(text), obeyed) && got != string(text) {
			t.Errorf("%q became %q", text, got)
		}
		var before, after any
		if utf8.Valid(text) && json.Unmarshal(text, &before) == nil && !strings.ContainsAny(string(text), "\r") {
			x, _ := json.Marshal(before)
			err := json.Unmarshal([]byte(got), &after)
			if y, _ := json.Marshal(after); err != nil || !bytes.Equal(x, y) {
				t.Errorf("%q became %q (%v)", text, got, err)
			}
		}
	})
}
