package records

import "testing"

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb": "a\nb", "a\rb\r": "a\nb\n", "a\nb": "a\nb", "\xff": "\uFFFD", "": "",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}
