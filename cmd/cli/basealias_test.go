package cli

import (
	"maps"
	"testing"
)

func TestBaseAliases(t *testing.T) {
	for _, c := range []struct {
		list []string
		want map[string]string // nil: an error
	}{
		{nil, map[string]string{}},
		{[]string{"a=b", "c=b"}, map[string]string{"a": "b", "c": "b"}},
		{[]string{"a=b=c"}, map[string]string{"a": "b=c"}},
		{[]string{"a"}, nil},
		{[]string{"=b"}, nil},
		{[]string{"a="}, nil},
		{[]string{"a=a"}, nil},
		{[]string{"a=b", "a=c"}, nil},
	} {
		got, err := baseAliases(c.list)
		if (err == nil) != (c.want != nil) || err == nil && !maps.Equal(got, c.want) {
			t.Errorf("%q: %v, %v", c.list, got, err)
		}
	}
}
