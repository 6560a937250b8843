package importer

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The values are what Python's repr prints for the objects in the comments.
func TestNamespace(t *testing.T) {
	for text, want := range map[string]map[string]any{
		")": {},
		"a=None, b=True, c=False, d=-3, e=2.0, f=1e-05, g=inf, h=-inf, i=nan)": {
			"a": nil, "b": true, "c": false, "d": int64(-3), "e": 2.0, "f": 1e-5, "g": math.Inf(1), "h": math.Inf(-1),
			"i": math.NaN(),
		},
		`a='', b="it's", c='say "hi"', d='it\'s "both"', e='tab\t nl\n back\\ \x00\u20ac\U0001f600', f='组合, (x=1)', g=99999999999999999999)`: {
			"a": "", "b": "it's", "c": `say "hi"`, "d": `it's "both"`, "e": "tab\t nl\n back\\ \x00€😀",
			"f": "组合, (x=1)", "g": 1e20,
		},
		"a=[], b=['x)', 1, [None]], c=<Mode.FAST: 'fast, or so'>, d={'k': 1}, e=Namespace(x=1), f=PosixPath('/x')) tail": {
			"a": "[]", "b": "['x)', 1, [None]]", "c": "<Mode.FAST: 'fast, or so'>", "d": "{'k': 1}",
			"e": "Namespace(x=1)", "f": "PosixPath('/x')",
		},
	} {
		got, err := namespace(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

func TestNamespaceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":        "character 1: expected NAME=VALUE or )",
		"a":       "character 1: expected NAME=VALUE or )",
		"a=1, =2": "character 6: expected NAME=VALUE or )",
		"a=1":     "character 3: expected the value of a and a comma or ) behind it",
		"a='x)":   "character 3: expected the value of a and a comma or ) behind it",
		"a=[1, 2": "character 3: expected the value of a and a comma or ) behind it",
	} {
		if _, err := namespace(text); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzNamespace(f *testing.F) {
	f.Add("a='x\\n', b=[1, -2.5e3, inf, None], c={'k': (1,)}, d=<E: 1>, e=P('a'), f=b'x') rest")
	f.Add(`é="\U0001f600\ud800", b={1, 2})`)
	f.Fuzz(func(t *testing.T, text string) {
		if args, err := namespace(text); (args == nil) == (err == nil) {
			t.Fatalf("%q: %v and %v", text, args, err)
		}
	})
}
