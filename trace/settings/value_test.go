package settings

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"lorasim/internal/yamlerr"
	"lorasim/internal/yamlfile"
)

// colours is a syntax: colours, joined by commas. "grey" is written "gray".
type colours struct{}

func (colours) Parse(text string) (list []string, err error) {
	for one := range strings.SplitSeq(text, ",") {
		if !strings.Contains(" red gray ", " "+one+" ") {
			return nil, errors.New("unknown colour " + one)
		}
		list = append(list, one)
	}
	return list, nil
}

func (colours) Grammar() Grammar {
	return Grammar{Joined: ",", Example: "red",
		Canonical: func(text string) string { return strings.ReplaceAll(text, "grey", "gray") },
		Paths:     func(text string, to func(string) string) string { return to(text) }}
}

// levels is a syntax with forms.
type levels struct{}

func (levels) Parse(text string) (string, error) { return text, nil }
func (levels) Grammar() Grammar                  { return Grammar{Forms: FormOf[all]} }

type valued struct {
	Colours Parsed[[]string, colours] `yaml:"colours" default:"red" help:"x"`
	Level   Parsed[string, levels]    `yaml:"level" help:"x"`
	Count   Optional[int]             `yaml:"count,omitempty" check:">=0 <=9" unit:"things" help:"x"`
	Long    Optional[int64]           `yaml:"long,omitempty" check:">=1" help:"x"`
}

// A value keeps its text and its meaning. A wrong text changes nothing.
func TestParsedValue(t *testing.T) {
	var v valued
	if v.Colours.Given() || v.Colours.Value() != nil || v.Colours.String() != "" {
		t.Errorf("the zero value is %+v", v.Colours)
	}
	if _, err := Decode("", &v); err != nil || v.Colours.String() != "red" {
		t.Errorf("%+v, %v; expected the default", v, err)
	}
	if err := v.Colours.UnmarshalText([]byte("red,grey")); err != nil {
		t.Fatal(err)
	}
	was := v.Colours
	if text, err := was.MarshalText(); err != nil || string(text) != "red,gray" || !was.Given() ||
		!reflect.DeepEqual(was.Value(), []string{"red", "gray"}) {
		t.Errorf("%s (%v) means %v", text, err, was.Value())
	}
	if err := v.Colours.UnmarshalText([]byte("red,blue")); err == nil || !was.Equal(v.Colours) ||
		len(v.Colours.Value()) != 2 {
		t.Errorf("after a wrong text: %+v, %v", v.Colours, err)
	}
	red, err := was.With("red")
	if err != nil || red.Equal(was) || was.String() != "red,gray" {
		t.Errorf("%+v beside %+v, %v", red, was, err)
	}
}

// An optional number that is 0 differs from one that is not given, in YAML too.
func TestOptional(t *testing.T) {
	var v valued
	if _, err := Decode("count=0", &v); err != nil || v.Count != Some(0) || v.Long.Given {
		t.Errorf("%+v, %v", v, err)
	}
	if v.Count.Or(7) != 0 || v.Long.Or(7) != 7 || v.Count.String() != "0" || v.Long.String() != "" ||
		v.Count.IsZero() || !v.Long.IsZero() {
		t.Errorf("%+v", v)
	}
	text, err := yaml.Marshal(&v)
	if err != nil || !strings.Contains(string(text), "count: 0\n") || strings.Contains(string(text), "long") {
		t.Errorf("%s, %v", text, err)
	}
	for text, want := range map[string]string{
		"count=10": `count: "10" is not a whole number from 0 to 9`, "count=x": `count: "x" is not a whole number`,
		"long=0": `long: "0" is not a whole number >= 1`, "count=": `count: "" is not a whole number`,
		"count=1e300": `"1e300" is not a whole number`,
	} {
		if _, err := Decode(text, &v); err == nil || !strings.Contains(err.Error(), want) || v.Count.Given {
			t.Errorf("%s: %v, %+v; expected %s", text, err, v, want)
		}
	}
}

// Schema, reference and types of a value are those of what users write.
func TestKindsOfValues(t *testing.T) {
	for i, want := range []struct {
		kind           reflect.Kind
		values, schema string
		nests          bool
	}{
		{reflect.String, "text", `{"anyOf":[{"type":["string","number"]},{"items":{"anyOf":[{"type":["string","number"]}]},` +
			`"minItems":1,"type":"array"}],"default":"red","description":"x"}`, true},
		{reflect.String, "text", `{"anyOf":[{"type":["string","number"]},{"additionalProperties":false`, true},
		{reflect.Int, "whole number from 0 to 9; things",
			`{"description":"x [things]","maximum":9,"minimum":0,"type":"integer"}`, false},
		{reflect.Int64, "whole number >= 1", `{"description":"x","minimum":1,"type":"integer"}`, false},
	} {
		f := Fields[valued]()[i]
		text, err := json.Marshal(f.Schema())
		if err != nil || f.Kind() != want.kind || f.Values() != want.values ||
			!strings.HasPrefix(string(text), want.schema) ||
			(f.Grammar != nil && f.Grammar.Nests()) != want.nests {
			t.Errorf("%s: %v, %q, %s, %v", f.Key, f.Kind(), f.Values(), text, err)
		}
	}
	if err := FormOf[valued]()[0].Verify(); err != nil {
		t.Error(err)
	}
}

// A list or a mapping in YAML is the text of the same meaning.
func TestParsedYAML(t *testing.T) {
	fields := Fields[valued]()
	for doc, want := range map[string]string{
		"colours: [red, gray]": "red,gray", "colours: red": "red", "colours: 0x10": "0x10",
		"colours: []": "error: an empty list", "colours: [red, null]": "error: value 2 of the list is missing",
		"colours: ['a,b']":      `error: "a,b" holds a ",", which joins the values of the list`,
		"colours: {a: 1}":       "error: keys and values, expected one value",
		"level: {threshold: 4}": "threshold=4", "level: null": "", "level: [1]": "error: a list, expected one value",
	} {
		root, err := yamlfile.Parse([]byte(doc), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		pairs, _ := yamlerr.Pairs(root)
		f := fields[0]
		if pairs[0].Key.String() == "level" {
			f = fields[1]
		}
		text, ok, err := f.YAML(pairs[0].Value, &Anchors{})
		if err != nil {
			text = "error: " + err.Error()
		}
		if text != want || err == nil && ok != (want != "") {
			t.Errorf("%s: %q, %t; expected %q", doc, text, ok, want)
		}
	}
	to := func(path string) string { return "/d/" + path }
	if got := fields[0].Grammar.MapPaths("red", to); got != "/d/red" {
		t.Errorf("paths: %s", got)
	}
	if got := fields[1].Grammar.MapPaths("file=a.csv", to); got != "file=/d/a.csv" {
		t.Errorf("paths of forms: %s", got)
	}
}
