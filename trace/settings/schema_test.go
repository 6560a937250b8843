package settings

import (
	"encoding/json"
	"testing"

	"lorasim/internal/yamlfile"
)

// The JSON Schema of a field takes what the reader takes, and no more.
func TestSchema(t *testing.T) {
	type more struct {
		all
		Need  string    `required:"yes" check:"oneof a b" help:"x"`
		Maybe string    `check:"oneof a b" help:"x"`
		Pick  string    `default:"a" check:"oneof a b" help:"x"`
		Plain string    `help:"x"`
		List  []float64 `default:"1" check:">0" help:"x"`
	}
	want := map[string]string{
		"threshold": `{"default":5,"description":"a whole number [requests]","minimum":1,"type":"integer"}`,
		"the-share": `{"default":0.5,"description":"a number","exclusiveMaximum":1,"minimum":0,"type":"number"}`,
		"slo": `{"anyOf":[{"exclusiveMinimum":0,"type":"number"},{"enum":["auto","none"]}],"default":"auto",` +
			`"description":"a number or a word [ms]"}`,
		"on":    `{"description":"a switch","type":"boolean"}`,
		"times": `{"description":"a syntax of its own","type":["string","number","object"]}`,
		"file":  `{"description":"a file","type":["string","number"]}`,
		"plain": `{"description":"x","type":["string","number"]}`,
		"need":  `{"description":"x","enum":["a","b"]}`,
		"maybe": `{"description":"x","enum":["a","b",""]}`,
		"pick":  `{"default":"a","description":"x","enum":["a","b"]}`,
		"list": `{"anyOf":[{"exclusiveMinimum":0,"type":"number"},{"items":{"exclusiveMinimum":0,"type":"number"},` +
			`"minItems":1,"type":"array"},{"type":"string"}],"default":"1","description":"x"}`,
	}
	for _, f := range Fields[more]() {
		text, err := json.Marshal(f.Schema())
		if expected, ok := want[f.Key]; err != nil || ok && string(text) != expected {
			t.Errorf("%s: %s, %v; expected %s", f.Key, text, err, expected)
		}
		delete(want, f.Key)
	}
	if len(want) > 0 {
		t.Errorf("no fields %v", want)
	}
}

// An empty document gives no options. It has no name, where forms have names.
func TestNoMapping(t *testing.T) {
	for _, doc := range []string{"null", "~"} {
		root, err := yamlfile.Parse([]byte(doc), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		s := all{Threshold: 7}
		if given, err := DecodeYAML(root, &Anchors{}, &s); err != nil || len(given) > 0 || s.Threshold != 5 {
			t.Errorf("%s: %v, %+v, %v; expected the defaults", doc, given, s, err)
		}
		if text, err := fromYAML(root, &Anchors{}, Forms(kinds)); err == nil {
			t.Errorf("%s: %q, expected an error: the name is missing", doc, text)
		}
	}
}

// A mapping needs its name, where forms have names, and the required options; no other key is allowed.
func TestObjectSchema(t *testing.T) {
	for name, want := range map[string]string{"on-off": `["name","on","off"]`, "half": `["name"]`,
		"weights": `["name","w"]`, "none": `["name"]`} {
		for _, f := range Forms(kinds) {
			if f.Name != name {
				continue
			}
			s := ObjectSchema(f)
			text, err := json.Marshal(s["required"])
			if err != nil || string(text) != want || s["additionalProperties"] != false {
				t.Errorf("%s: required %s, %v; expected %s", name, text, err, want)
			}
		}
	}
	if s := ObjectSchema(FormOf[common]()[0]); s["required"] != nil {
		t.Errorf("required %v of a form with options alone, which have defaults", s["required"])
	}
}

// Nested writes the mapping that stands for a text: read again, it gives the text.
func TestNested(t *testing.T) {
	for text, want := range map[string]string{
		"none":                        "{name: none}",
		"weights:5,3,1":               "{name: weights, w: [5, 3, 1]}",
		"on-off:10,5,0,note=aZz09_.+": "{name: on-off, on: 10, off: 5, factor: 0, note: aZz09_.+}",
		`on-off:10,5,0,note=-x`:       `{name: on-off, on: 10, off: 5, factor: 0, note: "-x"}`,
		`on-off:10,5,0,note=a b`:      `{name: on-off, on: 10, off: 5, factor: 0, note: "a b"}`,
		"all:times=600=8+1800=2":      "{name: all, times: {600: 8, 1800: 2}}",
		"all:ties=first,threshold=4":  "{name: all, ties: first, threshold: 4}",
		"table:a=b.csv,scale=2":       `{name: table, file: "a=b.csv", scale: 2}`,
	} {
		nested, err := Nested(Forms(kinds), text)
		if err != nil || nested != want {
			t.Errorf("%s: %s, %v; expected %s", text, nested, err, want)
			continue
		}
		if again, err := yamlText(nested); err != nil || again != text {
			t.Errorf("%s: read again %q, %v", nested, again, err)
		}
	}
	for _, text := range []string{"hash", "none:x=1", "on-off:10,5,7,8", "all:nokey=1"} {
		if nested, err := Nested(Forms(kinds), text); err == nil {
			t.Errorf("%s: %s, expected an error", text, nested)
		}
	}
}
