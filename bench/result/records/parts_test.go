package records

import (
	"errors"
	"io"
	"math"
	"testing"

	"lorasim/internal/record"
)

// Errors name the file, and the row where there is one; panics of the Arrow
// library are errors too.
func TestGuard(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		row  int64
		f    func() error
		want string
	}{
		{0, func() error { return bad }, "f: bad"}, {1, func() error { return bad }, "f: row 1: bad"}, {9, func() error { return bad }, "f: row 9: bad"},
		{1, func() error { return nil }, ""}, {1, func() error { return io.EOF }, "EOF"},
	} {
		err := guard("f", c.row, c.f)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("row %d: %v, expected %q", c.row, err, c.want)
		}
	}
	if err := guard("f", 3, func() error { panic("arrow") }); err == nil {
		t.Error("a panic was lost")
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{"a\r\nb": "a\nb", "a\rb\r": "a\nb\n", "a\nb": "a\nb", "\xff": "\uFFFD", "": ""} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// Fields of text: numbers may be missing, not a number that is none.
func TestParseField(t *testing.T) {
	var f float64
	var i int64
	var n int32
	var s record.Status
	var gaps []float64
	for _, c := range []struct {
		p    any
		text string
		ok   bool
	}{
		{&f, "1.5", true}, {&f, "", true}, {&f, "NaN", false}, {&f, "x", false}, {&i, "-7", true}, {&i, "", false}, {&i, "1.0", false},
		{&n, "2147483647", true}, {&n, "2147483648", false}, {&n, "-2147483648", true}, {&n, "-2147483649", false},
		{&s, "ok", true}, {&s, "fine", false}, {&gaps, "", true}, {&gaps, "1", false},
	} {
		if err := parseField(c.p, c.text); (err == nil) != c.ok {
			t.Errorf("%T %q: %v", c.p, c.text, err)
		}
	}
	f, i = 0, 0
	if parseField(&f, ""); !math.IsNaN(f) {
		t.Errorf("nothing is %v", f)
	}
	if parseField(&i, "-7"); i != -7 {
		t.Errorf("-7 is %v", i)
	}
}
