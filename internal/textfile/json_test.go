package textfile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/textfile"
)

// members reads an object as pairs of keys and raw values.
func members(line string) ([][2]string, error) {
	var all [][2]string
	err := textfile.Object([]byte(line), func(key, value []byte) error {
		all = append(all, [2]string{string(key), string(value)})
		return nil
	})
	return all, err
}

func TestObject(t *testing.T) {
	got, err := members(` { "a" : 1 , "b":[1, 2,"x"],"c":"d\"e\u00e4", "f":null,"g":-1.5e+3,"h":[ ],"a":true} `)
	want := [][2]string{{"a", "1"}, {"b", `[1, 2,"x"]`}, {"c", `"d\"e\u00e4"`}, {"f", "null"}, {"g", "-1.5e+3"}, {"h", "[ ]"}, {"a", "true"}}
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

func TestObjectErrors(t *testing.T) {
	for line, want := range map[string]string{
		``:                    "ends too early, expected '{'",
		`[1]`:                 "character 1: found '[', expected '{'",
		`{"a":1`:              "ends too early, expected ',' or '}'",
		`{"a":1,}`:            `character 8: found '}', expected '"'`,
		`{"a" 1}`:             "character 6: found '1', expected ':'",
		`{"a":01}`:            "character 7: found '1', expected ',' or '}'",
		`{"a":1.}`:            "expected a digit",
		`{"a":NaN}`:           "expected a number, a string, true, false or null",
		`{"a":{"b":1}}`:       "expected a number, a string",
		`{"a":[[1]]}`:         "expected a number, a string",
		`{"a":"b}`:            "ends too early",
		"{\"a\":\"\tb\"}":     "control character",
		`{"a":"\x"}`:          "expected an escaped character",
		`{"a":"\u12g4"}`:      "four hexadecimal digits",
		"{\"a\":\"\\u123`\"}": "four hexadecimal digits",
		`{"a":"\u123@"}`:      "four hexadecimal digits",
		`{"a":"\u123G"}`:      "four hexadecimal digits",
		`{"a":"\u123/"}`:      "four hexadecimal digits",
		`{"a":"\u123:"}`:      "four hexadecimal digits",
		`{"a":true`:           "ends too early, expected ',' or '}'",
		`{"a":tru`:            "expected a number, a string, true",
		`{"a":`:               "ends too early, expected a value",
		`{"a":1}{`:            "expected the end of the line",
		`{"a":[1,2}`:          "expected ',' or ']'",
		`{"a":1 "b":2}`:       "expected ',' or '}'",
		`{"a":"` + "\x00\"":   "control character",
	} {
		if _, err := members(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q in it", line, err, want)
		}
	}
}

// FuzzObject compares with encoding/json.
func FuzzObject(f *testing.F) {
	for _, line := range []string{
		`{"a":1,"b":[1,2],"c":"d"}`, `{"a":-0.5e-7}`, `{"a\u0041":"\ud83d\ude00\n"}`, `{"a":{}}`, `{}`, `{"a":tru}`, "{\"a\":\"\xff\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := members(line)
		if err == nil {
			checkMembers(t, line, got)
			return
		}
		var flat map[string]any
		if json.Unmarshal([]byte(line), &flat) == nil && flat != nil && isFlat(flat) {
			t.Errorf("error %v for a flat object", err)
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
		if err := json.Unmarshal([]byte(`"`+m[0]+`"`), &key); err != nil {
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

func isFlat(members map[string]any) bool {
	for _, v := range members {
		switch v := v.(type) {
		case map[string]any:
			return false
		case []any:
			for _, x := range v {
				switch x.(type) {
				case map[string]any, []any:
					return false
				}
			}
		}
	}
	return true
}
