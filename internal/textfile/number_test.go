package textfile_test

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/textfile"
)

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "007": 7, "-12": -12, "123456789012345678": 123456789012345678,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"0000000000000000000000000005": 5,
	} {
		if got, err := textfile.Int([]byte(text)); err != nil || got != want {
			t.Errorf("Int(%q) is %d, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", "-": "not a whole number", "+1": "not a whole number", "1.0": `"1.0" is not a whole number`,
		"12a": "not a whole number", " 1": "not a whole number", "--1": "not a whole number",
		"1-":                  "not a whole number",
		"9223372036854775808": "out of range", strings.Repeat("9", 500): "out of range",
	} {
		if _, err := textfile.Int([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Int(%.30q): error %v, expected %q in it", text, err, want)
		}
	}
}

func TestCount(t *testing.T) {
	if got, err := textfile.Count([]byte("2147483647")); got != math.MaxInt32 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	for text, want := range map[string]string{"-1": "-1 is negative, expected >= 0", "2147483648": "too large",
		"x": "not a whole number"} {
		if _, err := textfile.Count([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Count(%q): error %v, expected %q in it", text, err, want)
		}
	}
}

func TestFloat(t *testing.T) {
	for _, text := range []string{"", "x", "inf", "NaN", "0x10", "1_000", "1e999", "-", ".", "1e", "1,5"} {
		if x, err := textfile.Float([]byte(text)); err == nil {
			t.Errorf("Float(%q) is %v, expected an error", text, x)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64().Draw(t, "x")
		for _, style := range []byte("efg") {
			text := strconv.FormatFloat(x, style, -1, 64)
			if got, err := textfile.Float([]byte(text)); err != nil || got != x {
				t.Fatalf("Float(%q) is %v, %v", text, got, err)
			}
		}
	})
}

func TestFixed(t *testing.T) {
	for _, c := range []struct {
		text   string
		places int
		want   int64
	}{
		{"1.5", 3, 1500}, {"0", 9, 0}, {"19440110.0", 9, 19440110_000000000}, {"3536999", 6, 3536999_000000},
		{"0.123456789", 9, 123456789}, {"0.1234567890000", 9, 123456789}, {"9223372036.854775807", 9, math.MaxInt64},
	} {
		if got, err := textfile.Fixed([]byte(c.text), c.places); err != nil || got != c.want {
			t.Errorf("Fixed(%q, %d) is %d, %v; expected %d", c.text, c.places, got, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", "-1": "negative", "1.": "not a decimal", ".5": "not a decimal", "1.2.3": "not a decimal",
		"1e5":          "not a decimal",
		"0.0000000001": "more than 9 decimal places", "99999999999999999999": "too large",
		"9223372036.854775808": "too large",
		"9223372037":           "too large", "-": "not a decimal", "NaN": "not a decimal",
	} {
		if got, err := textfile.Fixed([]byte(text), 9); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Fixed(%q) is %d, %v; expected %q in the error", text, got, err, want)
		}
	}
}

// FuzzFixed compares with exact rational arithmetic.
func FuzzFixed(f *testing.F) {
	for _, s := range []string{"1.5", "19440110.0", "0.123456789", "9223372036.854775807", "00.10", "1e3", "-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const places = 9
		got, err := textfile.Fixed([]byte(text), places)
		want, ok := new(big.Rat).SetString(text)
		plain := strings.Trim(text, "0123456789.") == "" && !strings.HasPrefix(text, ".") &&
			!strings.HasSuffix(text, ".")
		if !ok || !plain {
			if err == nil {
				t.Fatalf("took %q as %d", text, got)
			}
			return
		}
		want.Mul(want, new(big.Rat).SetInt64(1_000_000_000))
		fits := want.IsInt() && want.Num().IsInt64()
		if fits != (err == nil) || fits && want.Num().Int64() != got {
			t.Fatalf("Fixed(%q) is %d, %v; expected %s", text, got, err, want.RatString())
		}
	})
}
