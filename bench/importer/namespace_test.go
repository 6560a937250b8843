package importer

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The values are what Python's repr prints for the objects in the comments.
func TestParseNamespace(t *testing.T) {
	for text, want := range map[string]map[string]any{
		"Namespace()": {},
		"Namespace(a=None, b=True, c=False, d=-3, e=2.0, f=1e-05, g=inf, h=-inf, i=nan)": {
			"a": nil, "b": true, "c": false, "d": int64(-3), "e": 2.0, "f": 1e-5, "g": math.Inf(1), "h": math.Inf(-1), "i": math.NaN(),
		},
		`Namespace(a='', b="it's", c='say "hi"', d='it\'s "both"', e='tab\t nl\n back\\ \x00\u20ac\U0001f600', f='组合, (x=1)')`: {
			"a": "", "b": "it's", "c": `say "hi"`, "d": `it's "both"`, "e": "tab\t nl\n back\\ \x00€😀", "f": "组合, (x=1)",
		},
		"Namespace(a=[], b=['x', 1, [None]], c=(1,), d={'k': 1, 2: 'v'}, e={1, 2}, f=Namespace(x=1))": {
			"a": []any{}, "b": []any{"x", int64(1), []any{nil}}, "c": []any{int64(1)},
			"d": map[string]any{"k": int64(1), "2": "v"}, "e": []any{int64(1), int64(2)}, "f": map[string]any{"x": int64(1)},
		},
		"Namespace(a=PosixPath('/x'), b=<Mode.FAST: 'fast'>, c=b'raw', d=array([1, 2], dtype=int64), e=99999999999999999999)": {
			"a": "PosixPath('/x')", "b": "<Mode.FAST: 'fast'>", "c": "raw", "d": "array([1, 2], dtype=int64)", "e": 1e20,
		},
	} {
		got, rest, err := ParseNamespace(text + " tail")
		if err != nil || rest != " tail" {
			t.Errorf("%s: rest %q, %v", text, rest, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

func TestParseNamespaceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "column 1: expected Namespace(, found the end of the line",
		"Namespace(":         "column 11: expected the name of an argument, found the end of the line",
		"Namespace(a":        "column 12: expected = after a, found the end of the line",
		"Namespace(a=":       "column 13: expected a value, found the end of the line",
		"Namespace(a=1":      "column 14: expected , or ), found the end of the line",
		"Namespace(a='x":     "column 15: expected ', found the end of the line",
		`Namespace(a='\x4`:   "column 16: expected 2 hexadecimal digits, found '4'",
		"Namespace(a=[1 2])": "column 16: expected , or ], found '2'",
		"Namespace(a=1.2.3)": "column 13: expected a number, found '1'",
		"Namespace(=1)":      "column 11: expected the name of an argument, found '='",
		"Namespace(a=<x)":    "column 16: expected >, found the end of the line",
		"Namespace(a=" + strings.Repeat("[", 100): "column 77: expected at most 64 brackets, found '['",
	} {
		if _, _, err := ParseNamespace(text); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzNamespace(f *testing.F) {
	f.Add("Namespace(a='x\\n', b=[1, -2.5e3, inf, None], c={'k': (1,)}, d=<E: 1>, e=P('a'), f=b'x') rest")
	f.Add("Namespace(a=Namespace(b=[[[]]]))")
	f.Add(`Namespace(é="\U0001f600\ud800", b={1, 2})`)
	f.Fuzz(func(t *testing.T, text string) {
		args, rest, err := ParseNamespace(text)
		if err == nil && (!strings.HasSuffix(text, rest) || args == nil) {
			t.Fatalf("%q: rest %q, %v", text, rest, args)
		}
		if err != nil && args != nil {
			t.Fatalf("%q: %v and %v", text, args, err)
		}
	})
}
