package format

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

func TestClip(t *testing.T) {
	for in, want := range map[string]string{"äbc": "äbc", "äbcd": "äb…", "a\nb": "a b", "\x7f\t": "  "} {
		if got := Clip(in, 3); got != want {
			t.Errorf("Clip(%q, 3) = %q, want %q", in, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	if got := Percent(0.12345, 1) + Percent(1, 0) + Percent(math.NaN(), 2); got != "12.3 %100 %-" {
		t.Error(got)
	}
}

func TestDigits(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.0000123456: "0.0000123", 0.01: "0.01", 1: "1", 9.999: "10", 24.31: "24.3", -24.35: "-24.4",
		999.4: "999", 999.5: "1000", 1239.2: "1239", 12_345_678: "12345678", math.Inf(1): "+Inf",
	} {
		if got := Digits(x); got != want {
			t.Errorf("%v: %s, expected %s", x, got, want)
		}
	}
	for _, c := range []struct {
		mean, half float64
		want       string
	}{{24.31, 0.5678, "24.3 ± 0.6"}, {1239.2, 56.7, "1239 ± 57"}, {0.01234, 0.001, "0.0123 ± 0.0010"}} {
		if got := PlusMinus(c.mean, c.half); got != c.want {
			t.Errorf("%s, expected %s", got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 looks", 1: "1 look", 2: "2 looks"} {
		if got := Count(n, "look"); got != want {
			t.Errorf("%d: %q, expected %q", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, [][]string{{"A", "LONG", "C"}, {"bcd", "e", "f"}, {"g", "", ""}}); err != nil {
		t.Fatal(err)
	}
	if want := "A    LONG  C\nbcd  e     f\ng\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestNotFinite(t *testing.T) {
	inf := math.Inf(1)
	text, err := json.Marshal([]any{Number(math.NaN()), Number(-inf), Number(0.5), finite(inf), finite(2)})
	if err != nil || string(text) != "[null,null,0.5,null,2]" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestObject(t *testing.T) {
	nan, none := math.NaN(), []int(nil)
	text, err := json.Marshal(Object{"b", 1, "a", nan, "list", none, "x,omitempty", nan, "zero,omitempty", 0.0,
		"n,omitempty", 0, "o", Object{},
		"empty,omitempty", []int{}, "nil,omitempty", nil, "p,omitempty", (*int)(nil), "s", "<", "yes,omitempty", true,
		"no,omitempty", false})
	if want := `{"b":1,"a":null,"list":null,"zero":0,"o":{},"s":"\u003c","yes":true}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v, expected %s", text, err, want)
	}
	if _, err := json.Marshal(Object{"f", func() {}}); err == nil {
		t.Error("a function is no JSON")
	}
}
