package suggest

import (
	"fmt"
	"strings"
	"testing"
)

func TestUnknown(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"statc", `unknown policy "statc", did you mean "static"? (known: random, static)`},
		{"zzz", `unknown policy "zzz" (known: random, static)`},
	} {
		if got := Unknown("policy", c.name, []string{"random", "static"}).Error(); got != c.want {
			t.Errorf("got %s, expected %s", got, c.want)
		}
	}
	// Of equally near names the first; up to 30 known names are listed beside it.
	known := []string{"cat", "bat"}
	for len(known) < 30 {
		known = append(known, fmt.Sprint("name", len(known)))
	}
	hint := `unknown kind "rat", did you mean "cat"?`
	if got := Unknown("kind", "rat", known).Error(); len(got) < len(hint)+100 || got[:len(hint)] != hint {
		t.Errorf("got %s, expected %s and 30 names", got, hint)
	}
	if got := Unknown("kind", "rat", append(known, "x")).Error(); got != hint {
		t.Errorf("got %s, expected %s alone", got, hint)
	}
	if got := Unknown("kind", "zzz", append(known, "x", "y")).Error(); !strings.HasSuffix(got,
		", name29, and 2 more)") {
		t.Errorf("got %s, expected 30 names and how many there are beside them", got)
	}
	if got, want := Unknown("option", "x", nil).Error(), `unknown option "x", expected none`; got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
}

// What was typed may be the beginning or a part of the name that was meant.
func TestUnknownPart(t *testing.T) {
	known := []string{"h100", "rtx-a100x", "a100-80gb", "a100-40gb", "L40S", "t4"}
	for name, want := range map[string]string{"a100": "a100-80gb", "80gb": "a100-80gb", "l40": "L40S", "h10": "h100",
		"h101": "h100", "t5": "t4", "4": "t4", "zzzz": ""} {
		if got := Likely(name, known); got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := editDistance(c.a, c.b); got != c.d {
			t.Errorf("distance of %q and %q is %d, expected %d", c.a, c.b, got, c.d)
		}
	}
}

// A name of a file may be of any length.
func TestLongName(t *testing.T) {
	if err := Unknown("column", strings.Repeat("x", 1<<20), []string{"id"}); len(err.Error()) > 200 {
		t.Errorf("%d characters of message", len(err.Error()))
	}
}
