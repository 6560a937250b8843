package bearer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/serving/bearer"
)

func TestAccept(t *testing.T) {
	two := bearer.New("first", "second")
	for _, c := range []struct {
		keys   bearer.Keys
		header []string
		want   bool
	}{
		{bearer.Keys{}, nil, true}, {bearer.Keys{}, []string{"Bearer x"}, true}, {bearer.New(), nil, true},
		{two, nil, false}, {two, []string{"Bearer first"}, true}, {two, []string{"bearer second"}, true},
		{two, []string{"Bearer First"}, false}, {two, []string{"Bearer firs"}, false},
		{two, []string{"Bearer first "}, false},
		{two, []string{"Bearer  first"}, false}, {two, []string{"Bearer "}, false}, {two, []string{"Bearer"}, false},
		{two, []string{""}, false},
		{two, []string{"first"}, false}, {two, []string{"Basic first"}, false},
		{two, []string{"Bearer wrong", "Bearer first"}, false}, // the first header counts
		{two, []string{"Bearer " + strings.Repeat("x", 1<<20)}, false},
	} {
		if got := c.keys.Accept(&http.Request{Header: http.Header{"Authorization": c.header}}); got != c.want {
			t.Errorf("%.40q: %v, expected %v", c.header, got, c.want)
		}
	}
}

func TestReadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "keys")
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{"k1\n", []string{"k1"}, ""}, {"k1", []string{"k1"}, ""},
		{"# old and new\r\n\n k1 \r\nk2\n", []string{"k1", "k2"}, ""},
		{"", nil, "no key, expected one per line"}, {"\n# none\n", nil, "no key"},
		{"k1\nsecret two\n", nil, "keys:2: byte 7 of the key is 0x20"},
		{"k\x00\n", nil, "keys:1: byte 2 of the key is 0x00"},
		{"schlüssel\n", nil, "keys:1: byte 5"}, {strings.Repeat("x\n", 1<<16), nil, "is larger than 64 KiB"},
		{strings.Repeat("x", 1<<16), nil, "keys: "},
	} {
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := bearer.ReadFile(t.Context(), name)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%.30q: %q, %v; expected %q, %q", c.text, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a key: %v", err)
		}
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir(), "/dev/zero", "/dev/null"} {
		if keys, err := bearer.ReadFile(t.Context(), name); err == nil {
			t.Errorf("%s: %q, expected an error", name, keys)
		}
	}
}
