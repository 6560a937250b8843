package textfile_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/textfile"
)

// members reads an object as pairs of keys and raw values.
func members(line string) ([][2]string, error) {
	var all [][2]string
	f := textfile.New("f.jsonl", bytes.NewReader([]byte(line+"\n")))
	err := f.Object(func(key, value []byte) error {
		all = append(all, [2]string{string(key), string(value)})
		return nil
	})
	return all, err
}

func TestObject(t *testing.T) {
	got, err := members(` { "a" : 1 , "b":[1, 2,"x"],"c":"d\"e\u00e4", "f":null,"g":-1.5e+3,"h":[ ],"a":true,"i":{"j":[{}]}} `)
	want := [][2]string{{`"a"`, "1"}, {`"b"`, `[1, 2,"x"]`}, {`"c"`, `"d\"e\u00e4"`}, {`"f"`, "null"},
		{`"g"`, "-1.5e+3"}, {`"h"`, "[ ]"}, {`"a"`, "true"}, {`"i"`, `{"j":[{}]}`}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
	if got, err := members(`{"a":"\u09af\uAF90"}`); err != nil || len(got) != 1 {
		t.Errorf("all ends of the hexadecimal digits: %v, %v", got, err)
	}
	if got, err := members("{}"); err != nil || got != nil {
		t.Errorf("{}: %v, %v", got, err)
	}
}

// Python writes NaN and Infinity as bare words.
func TestPython(t *testing.T) {
	got, err := members(`{"a":NaN,"NaN":"NaN \"NaN","b":[1, -Infinity,{"c":Infinity}], "d":NaN}`)
	want := [][2]string{{`"a"`, "null"}, {`"NaN"`, `"NaN \"NaN"`}, {`"b"`, `[1, null,{"c":null}]`}, {`"d"`, "null"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
}

func TestObjectErrors(t *testing.T) {
	for line, want := range map[string]string{
		`[1]`:              `f.jsonl:1: "[1]" is not a JSON object`,
		`{"a":1`:           "f.jsonl:1: JSON object ends too early",
		`{"a":1,}`:         "character 7: invalid character ','",
		`{"a" 1}`:          "character 6: invalid character '1' after object name (expecting ':')",
		`{"a":01}`:         "character 7: invalid character '1' after object value (expecting ',' or '}')",
		`{"a":1.}`:         "in number (expecting digit)",
		`{"a":NaNa}`:       "character 10: invalid character 'a'",
		`{"a":nan}`:        "invalid character 'a'",
		`{"a":"b}`:         "ends too early",
		"{\"a\":\"\tb\"}":  "in string (expecting non-control character)",
		`{"a":"\x"}`:       "invalid escape sequence",
		`{"a":"\u12g4"}`:   "invalid escape sequence",
		`{"a":tru`:         "ends too early",
		`{"a":`:            "ends too early",
		`{"a":1}{`:         "data after the JSON object",
		`{"a":1}x`:         "character 8: invalid character 'x'",
		`{"a":[1,2}`:       "(expecting ',' or ']')",
		`{1:2}`:            "character 2:",
		"{\"a\":\"\xff\"}": "invalid UTF-8",
	} {
		if _, err := members(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q in it", line, err, want)
		}
	}
}

// FuzzObject compares with encoding/json.
func FuzzObject(f *testing.F) {
	for _, line := range []string{
		`{"a":1,"b":[1,2],"c":"d"}`, `{"a":-0.5e-7}`, `{"a\u0041":"\ud83d\ude00\n"}`, `{"a":{}}`, `{}`, `{"a":tru}`,
		"{\"a\":\"\xff\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") || !utf8.ValidString(line) {
			return
		}
		line = strings.TrimSuffix(strings.TrimPrefix(line, "\ufeff"), "\r")
		got, err := members(line)
		if err == nil {
			checkMembers(t, line, got)
			return
		}
		var all map[string]any
		// jsontext refuses lone surrogates
		if json.Unmarshal([]byte(line), &all) == nil && all != nil && !strings.Contains(line, `\u`) {
			t.Errorf("error %v for an object", err)
		}
	})
}

func checkMembers(t *testing.T, line string, got [][2]string) {
	if !json.Valid([]byte(line)) {
		t.Fatal("took what is not JSON")
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &want); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{} // encoding/json keeps the last of equal keys
	for _, m := range got {
		if !json.Valid([]byte(m[1])) {
			t.Errorf("value %s is not JSON", m[1])
		}
		var key string
		if err := json.Unmarshal([]byte(m[0]), &key); err != nil {
			t.Fatal(err)
		}
		last[key] = m[1]
		text, err := textfile.Text([]byte(m[1]))
		var s string
		if wantErr := json.Unmarshal([]byte(m[1]), &s); err == nil && (wantErr != nil || s != string(text)) {
			t.Errorf("Text(%s) is %q, expected %q (%v)", m[1], text, s, wantErr)
		}
	}
	if len(last) != len(want) {
		t.Fatalf("%d keys, expected %d", len(last), len(want))
	}
	for key, value := range want {
		if last[key] != string(value) {
			t.Errorf("key %q has value %s, expected %s", key, last[key], value)
		}
	}
}
