package suggest

import "testing"

func TestUnknown(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"statc", `unknown policy "statc", did you mean "static"? (known: random, static)`},
		{"zzz", `unknown policy "zzz" (known: random, static)`},
	} {
		if got := Unknown("policy", c.name, []string{"random", "static"}).Error(); got != c.want {
			t.Errorf("got %s, expected %s", got, c.want)
		}
	}
	if got, want := Unknown("option", "x", nil).Error(), `unknown option "x": it has none`; got != want {
		t.Errorf("got %s, expected %s", got, want)
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
