package cli

import (
	"strings"
	"testing"
)

// An error that quotes a huge value keeps its beginning and its end.
func TestShorten(t *testing.T) {
	got := shorten("f.yaml:1: " + strings.Repeat("9é", 1<<20) + " is not a number")
	if len(got) > longestError+10 || !strings.HasPrefix(got, "f.yaml:1: 9") ||
		!strings.HasSuffix(got, " is not a number") {
		t.Errorf("%d bytes: %.100s", len(got), got)
	}
	if got := shorten("short"); got != "short" {
		t.Error(got)
	}
}
