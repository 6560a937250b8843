package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/internal/yamlfile"
)

type common struct {
	Ties string `default:"random" check:"oneof random first" help:"choice among equals"`
}

// moments is a type with a syntax of its own, "600=8+1800=2".
type moments [][2]string

func (m *moments) UnmarshalText(text []byte) error {
	*m = nil
	for part := range strings.SplitSeq(string(text), "+") {
		at, n, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not SECONDS=WORKERS", part)
		}
		*m = append(*m, [2]string{at, n})
	}
	return nil
}

type all struct {
	Threshold int     `default:"5" check:">=1" unit:"requests" help:"a whole number"`
	Share     float64 `key:"the-share" default:"0.5" check:">=0 <1" help:"a number"`
	SLO       Number  `default:"auto" check:">0" words:"auto none" unit:"ms" help:"a number or a word"`
	On        bool    `help:"a switch"`
	Small     int8    `help:"a small number"`
	Count     uint64  `check:"any" help:"a number that is not negative"`
	Times     moments `pairs:"= +" help:"a syntax of its own"`
	File      string  `path:"yes" words:"built-in" commas:"yes" help:"a file"`
	Interval  float64 `default:"10" check:">=0.001" env:"interval" help:"of the caller"`
	Hidden    int     `key:"-"`
	common
}

func (a *all) Check(given Given) error {
	if a.On && given.Has("threshold") {
		return errors.New("on excludes threshold")
	}
	return nil
}

// onOff has values by position.
type onOff struct {
	On     float64 `arg:"1" required:"yes" check:">0" help:"s of the full rate"`
	Off    float64 `arg:"2" required:"yes" check:">0" help:"s of the other rate"`
	Factor float64 `arg:"3" default:"0" check:">=0" help:"the other rate, as a share"`
	Note   string  `help:"by key alone"`
}

type weights struct {
	W []float64 `arg:"1" required:"yes" check:">=0" help:"weights"`
}

type table struct {
	File  string  `arg:"1" required:"yes" path:"yes" words:"built-in" help:"a file"`
	Scale float64 `default:"1" check:">0" help:"a factor"`
}

type none struct{}

var kinds = []Kind[any]{
	{"all", "everything", "", func() any { return new(all) }},
	{"on-off", "by position", "", func() any { return new(onOff) }},
	{"half", "with another default", "on=5,off=5,factor=0.5", func() any { return new(onOff) }},
	{"weights", "a list", "", func() any { return new(weights) }},
	{"table", "a file", "", func() any { return new(table) }},
	{"none", "no options", "", func() any { return new(none) }},
}

func TestVerify(t *testing.T) {
	for _, f := range Forms(kinds) {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
	for want, form := range map[string]Form{
		"default of x": {New: func() any {
			return new(struct {
				X int `default:"0" check:">=1" help:"x"`
			})
		}},
		"no help": {New: func() any { return new(struct{ X int }) }},
		`key "a=b" is invalid`: {New: func() any {
			return new(struct {
				X int `key:"a=b" help:"x"`
			})
		}},
		"argument 2, expected 1": {New: func() any {
			return new(struct {
				X int `arg:"2" help:"x"`
			})
		}},
		"is required and has a default": {New: func() any {
			return new(struct {
				X int `required:"yes" default:"1" help:"x"`
			})
		}},
	} {
		testutil.ExpectError(t, form.Verify(), want)
	}
}

func TestDefaults(t *testing.T) {
	a := all{Threshold: 7, Small: 3, Hidden: 9}
	given, err := Decode("", &a)
	if err != nil || given != nil {
		t.Fatal(given, err)
	}
	want := all{Threshold: 5, Share: 0.5, SLO: Number{Word: "auto"}, Interval: 10, Hidden: 9, common: common{"random"}}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("%+v, expected %+v", a, want)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		spec string
		want any
	}{
		{"all: threshold = 7 , the-share=0", &all{Threshold: 7, SLO: Number{Word: "auto"}, Interval: 10,
			common: common{"random"}}},
		{"all:slo=none,on=true,small=-3,count=18446744073709551615,ties=first,interval=2,the-share=0.25", &all{
			Threshold: 5, Share: 0.25, SLO: Number{Word: "none"}, On: true, Small: -3, Count: 1<<64 - 1, Interval: 2,
			common: common{"first"}}},
		{"all:slo=2.5,times=600=8+1800=2", &all{Threshold: 5, Share: 0.5, SLO: Number{Value: 2.5},
			Times: moments{{"600", "8"}, {"1800", "2"}}, Interval: 10, common: common{"random"}}},
		{"all:file=a,b.csv,threshold=2", &all{Threshold: 2, Share: 0.5, SLO: Number{Word: "auto"}, File: "a,b.csv",
			Interval: 10, common: common{"random"}}},
		{"on-off:10,5", &onOff{On: 10, Off: 5}},
		{"on-off: 10, 5, 0.5, note=x", &onOff{10, 5, 0.5, "x"}},
		{"on-off:off=5,on=10", &onOff{On: 10, Off: 5}},
		{"on-off:10,off=5", &onOff{On: 10, Off: 5}},
		{"half", &onOff{On: 5, Off: 5, Factor: 0.5}},
		{"half:7", &onOff{On: 7, Off: 5, Factor: 0.5}},
		{"weights:5,3,1", &weights{[]float64{5, 3, 1}}},
		{"weights:w=5,3,1", &weights{[]float64{5, 3, 1}}},
		{"table:a=b.csv,scale=2", &table{"a=b.csv", 2}}, // names of files may hold a =
		{" none ", &none{}},
	} {
		got, err := Parse("form", kinds, c.spec)
		if err != nil || !reflect.DeepEqual(got.Value, c.want) || got.Name != strings.TrimSpace(got.Name) {
			t.Errorf("%s: %+v, %v; expected %+v", c.spec, got.Value, err, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"":                         `unknown form ""`,
		"on-of:1,2":                `unknown form "on-of", did you mean "on-off"?`,
		"none:":                    "form none: expected options after the colon",
		"none:x=1":                 `form none: unknown option "x", expected none`,
		"none:x":                   `form none: "x", expected no options`,
		"all:":                     "form all: expected options after the colon",
		"all:treshold=1":           `form all: unknown option "treshold", did you mean "threshold"?`,
		"all:threshold=0":          `form all: threshold: "0" is not a whole number >= 1`,
		"all:threshold=1.5":        `threshold: "1.5" is not a whole number >= 1`,
		"all:threshold=1,2":        `"2" is not of the form key=value`,
		"all:threshold":            `"threshold" is not of the form key=value`,
		"all:=1":                   `"=1" is not of the form key=value`,
		"all:threshold=1,":         `"" is not of the form key=value`,
		"all:small=128":            `small: "128" is not a whole number up to 127`,
		"all:count=-1":             `count: "-1" is not a whole number`,
		"all:the-share=NaN":        `the-share: "NaN" is not a number >= 0 and < 1`,
		"all:the-share=inf":        `the-share: "inf" is not a number >= 0 and < 1`,
		"all:slo=fast":             `slo: "fast" is not a number > 0, or auto, or none`,
		"all:slo=0":                `slo: "0" is not a number > 0, or auto, or none`,
		"all:on=maybe":             `on: "maybe" is not true or false`,
		"all:ties=last":            `ties: unknown value "last" (known: random, first)`,
		"all:ties=frst":            `did you mean "first"?`,
		"all:ties=":                `ties: unknown value ""`,
		"all:times=1":              `times: "1" is not SECONDS=WORKERS`,
		"all:on=true,on=true":      "on is given twice",
		"all:on=true,threshold=2":  "form all: on excludes threshold",
		"on-off:10":                "form on-off: off is missing (s of the other rate), expected a number > 0",
		"on-off":                   "on is missing",
		"on-off:1,2,3,4":           `"4" has no option left, expected on,off,factor,key=value`,
		"on-off:1,on=2":            "on is given twice",
		"on-off:on=1,2":            `"2" is not of the form key=value`,
		"on-off:1,x=2":             `unknown option "x"`,
		"weights:5,-1":             `w: "5,-1" is not a list of numbers >= 0`,
		"weights:5,x":              `w: "5,x" is not a list of numbers >= 0`,
		"table":                    "form table: file is missing (a file), expected a text",
		"table:a.csv,scal=2":       `unknown option "scal", did you mean "scale"?`,
		"table:" + veryLong + ",x": `"x" has no option left`,
	} {
		_, err := Parse("form", kinds, spec)
		testutil.ExpectError(t, err, want)
	}
}

var veryLong = strings.Repeat("x", 10_000)

func TestFill(t *testing.T) {
	var a all
	given, err := Decode("threshold=2", &a)
	if err != nil {
		t.Fatal(err)
	}
	if Fill(given, &a, map[string]float64{"interval": 3, "threshold": 9}); a.Interval != 3 || a.Threshold != 2 {
		t.Errorf("%+v", a)
	}
	if Fill(given, &a, nil); a.Interval != 3 {
		t.Errorf("an unknown interval changes it to %v", a.Interval)
	}
	if given, err = Decode("interval=7", &a); err != nil {
		t.Fatal(err)
	}
	if Fill(given, &a, map[string]float64{"interval": 3}); a.Interval != 7 {
		t.Errorf("interval is %v, given 7", a.Interval)
	}
}

func TestWithin(t *testing.T) {
	if err := Within("k", 3, ">=1 <=3"); err != nil {
		t.Error(err)
	}
	testutil.ExpectError(t, Within("k", 4, ">=1 <=3"), "k: 4 is not a whole number from 1 to 3")
	testutil.ExpectError(t, Within("x", 0.5, ">1"), "x: 0.5 is not a number > 1")
}

func TestText(t *testing.T) {
	forms := Forms(kinds)
	for i, c := range []struct {
		form  int
		given Given
		want  string
	}{
		{0, nil, "all"},
		{0, Given{{"ties", "first"}, {"threshold", "2"}}, "all:ties=first,threshold=2"},
		{1, Given{{"note", "x"}, {"off", "5"}, {"on", "10"}}, "on-off:10,5,note=x"},
		{1, Given{{"off", "5"}, {"on", "10"}, {"factor", "1"}}, "on-off:10,5,1"},
		{1, Given{{"off", "5"}}, "on-off:off=5"},
	} {
		if got := forms[c.form].Text(c.given); got != c.want {
			t.Errorf("%d: %s, expected %s", i, got, c.want)
		}
	}
}

func TestMapPaths(t *testing.T) {
	to := func(path string) string { return "/d/" + path }
	for text, want := range map[string]string{
		"table:t.csv":               "table:/d/t.csv",
		"table:t.csv , scale=2":     "table:/d/t.csv,scale=2",
		"table: file = t.csv":       "table:/d/t.csv",
		"table:scale=2,file=t.csv":  "table:/d/t.csv,scale=2",
		"table:built-in, scale=2":   "table:built-in, scale=2", // as it was
		"table:file=,scale=2":       "table:file=,scale=2",
		"table:t.csv,x=2":           "table:t.csv,x=2", // wrong: its reader says so
		"all: threshold=2, file=t":  "all:threshold=2,file=/d/t",
		"all:threshold=2":           "all:threshold=2",
		"other:file=t":              "other:file=t",
		"":                          "",
		"all:file=a,b,interval=1":   "all:file=/d/a,b,interval=1",
		"on-off:10,5":               "on-off:10,5",
		"all:file=built-in,ties=xx": "all:file=built-in,ties=xx",
	} {
		if got := mapPaths(Forms(kinds), text, to); got != want {
			t.Errorf("%s: %s, expected %s", text, got, want)
		}
	}
	if got := mapPaths(FormOf[table](), "scale=2,file=t.csv", to); got != "/d/t.csv,scale=2" {
		t.Error(got)
	}
}

// What a field says of itself names what it takes.
func TestValues(t *testing.T) {
	want := map[string]string{"threshold": "whole number >= 1; requests", "the-share": "number >= 0 and < 1",
		"slo": "number > 0, or auto, or none; ms", "on": "`true`, `false`", "small": "whole number",
		"count": "whole number", "times": "text", "file": "file, or built-in", "interval": "number >= 0.001",
		"ties": "`random`, `first`"}
	for _, f := range Fields[all]() {
		if got := f.Values(); got != want[f.Key] {
			t.Errorf("%s: %s, expected %s", f.Key, got, want[f.Key])
		}
		delete(want, f.Key)
	}
	if len(want) > 0 {
		t.Errorf("no fields %v", want)
	}
	if got := Fields[weights]()[0].Values(); got != "number or list >= 0" {
		t.Error(got)
	}
}

// yamlText is the text that a mapping stands for.
func yamlText(doc string) (string, error) {
	root, err := yamlfile.Parse([]byte(doc), "f.yaml")
	if err != nil {
		return "", err
	}
	return fromYAML(root, &Anchors{}, Forms(kinds))
}

func TestFromYAML(t *testing.T) {
	for doc, want := range map[string]string{
		"{name: none}":                              "none",
		"{name: all, ties: first, threshold: 4}":    "all:ties=first,threshold=4",
		"name: all\nthe-share: 0.25\nslo: none\n":   "all:the-share=0.25,slo=none",
		"{threshold: 4, name: all}":                 "all:threshold=4",
		"{name: all, small: 0x10, on: true}":        "all:small=16,on=true",
		"{name: all, threshold: }":                  "all", // null: as not given
		"{name: all, threshold: &n 4, small: *n}":   "all:threshold=4,small=4",
		"{name: all, times: {600: 8, 1800: 2}}":     "all:times=600=8+1800=2",
		"{name: all, times: 600=8}":                 "all:times=600=8",
		`{name: all, file: "a,b.csv"}`:              "all:file=a,b.csv",
		"{name: on-off, factor: 0, off: 5, on: 10}": "on-off:10,5,0",
		"{name: half}":                              "half",
		"{name: weights, w: [5, 3, 1]}":             "weights:5,3,1",
		"{name: weights, w: 5}":                     "weights:5",
		"{name: table, file: 7, scale: 2}":          "table:7,scale=2",
	} {
		if got, err := yamlText(doc); err != nil || got != want {
			t.Errorf("%s: %q, %v; expected %q", doc, got, err, want)
		}
	}
	var o onOff
	root, err := yamlfile.Parse([]byte("{off: 5, on: 10}"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	given, err := DecodeYAML(root, &Anchors{}, &o)
	if err != nil || o != (onOff{On: 10, Off: 5}) || !slices.Equal(given, Given{{"off", "5"}, {"on", "10"}}) {
		t.Errorf("%+v, %v, %v", o, given, err)
	}
}

func TestFromYAMLErrors(t *testing.T) {
	for doc, want := range map[string]string{
		"7":                                      "1: expected keys and values",
		"\nthreshold: 4":                         "2: name is missing, expected one of all, on-off, half",
		"\n\nname: al":                           `3: name: unknown name "al", did you mean "all"?`,
		"name: [all]":                            "1: name: a list, expected one value",
		"name: all\nthreshold: 0":                `2: threshold: "0" is not a whole number >= 1`,
		"name: all\ntreshold: 1":                 `2: treshold: unknown key "treshold", did you mean "threshold"?`,
		"name: all\non: {a: b}":                  "2: on: keys and values, expected one value",
		"name: all\nthreshold: [1]":              "2: threshold: a list, expected one value",
		"name: all\ntimes:\n  600: {x: 1}\n":     "3: times.600: keys and values, expected one value",
		"name: all\nthreshold: 2\non: true":      "1: on excludes threshold",
		"name: on-off\non: 1":                    "1: off is missing",
		"name: on-off\non: *x":                   "unknown alias *x",
		"name: on-off\non: 1\noff: 2\nnote: a,b": `4: note: "a,b" holds a comma`,
	} {
		_, err := yamlText(doc)
		testutil.ExpectError(t, err, want)
	}
}

// What a mapping stands for, read as a text, is the same struct; texts of given options are read back as they are.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"all: threshold = 7 , the-share=0", "all:slo=none,on=true,ties=first", "on-off:10,5,0.5,note=x", "none",
		"half:7", "all:times=600=8+1800=2,file=a,b", "weights:5,3,1", "table:a=b.csv,scale=2", "on-off:off=1,on=2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := Parse("form", kinds, spec)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 4000 {
				t.Errorf("bad error %q", err)
			}
			return
		}
		forms := Forms(kinds)
		form := forms[slices.IndexFunc(forms, func(f Form) bool { return f.Name == s.Name })]
		text := form.Text(s.Given)
		again, err := Parse("form", kinds, text)
		if err != nil || !reflect.DeepEqual(again.Value, s.Value) && !strings.Contains(strings.ToLower(text), "nan") {
			t.Errorf("%q is %+v, but %q is %+v, %v", spec, s.Value, text, again.Value, err)
		}
		if once := mapPaths(forms, text, func(p string) string { return p }); once != text {
			t.Errorf("paths of %q: %q", text, once)
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add("{name: all, ties: first, threshold: 4, times: {600: 8}}")
	f.Add("name: weights\nw: [5, 3, 1]\n")
	f.Add("name: table\nfile: &a x.csv\nscale: 2\n")
	f.Fuzz(func(t *testing.T, doc string) {
		text, err := yamlText(doc)
		if err != nil {
			return
		}
		if _, err := Parse("form", kinds, text); err != nil {
			t.Errorf("%q stands for %q: %v", doc, text, err)
		}
	})
}
