package yamlerr

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestIn(t *testing.T) {
	type inner struct {
		Rate float64       `yaml:"rate"`
		Wait time.Duration `yaml:"wait"`
	}
	for _, c := range []struct{ text, want string }{
		{"n: many", `f.yaml:1: n: "many" is not a whole number`},
		{"n: [1]", `f.yaml:1: n: expected a whole number`},
		{"in:\n  rate: fast", `f.yaml:2: rate: "fast" is not a number`},
		{"on: 3", `f.yaml:1: on: "3" is not true or false`},
		{"list: x", `f.yaml:1: list: "x" is not a list`},
		{"in: 3", `f.yaml:1: in: "3" is not a block of keys and values`},
		{"small: 300", `f.yaml:1: small: "300" is not a whole number of this size`},
		{"\nx: 1", `f.yaml:2: unknown key "x"`},
		{"n: " + strings.Repeat("many ", 100), `f.yaml:1: n: "` + strings.Repeat("many ", 12) +
			`" is not a whole number`},
		{"n: 1\nn: 2", `f.yaml:2: mapping key "n" already defined`},
		{"n: [", `f.yaml:1: `},
	} {
		var v struct {
			N     int   `yaml:"n"`
			Small int8  `yaml:"small"`
			On    bool  `yaml:"on"`
			List  []int `yaml:"list"`
			In    inner `yaml:"in"`
		}
		err := In("f.yaml", yaml.UnmarshalWithOptions([]byte(c.text), &v, yaml.Strict()))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, expected %s", c.text, err, c.want)
		}
	}
	if err := In("f", errors.New("x")); err.Error() != "f: x" {
		t.Error(err)
	}
	if err := In("f", nil); err != nil {
		t.Error(err)
	}
}
