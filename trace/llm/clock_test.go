package llm

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	for _, s := range []string{
		"2023-11-16 18:15:46.6805900", "2024-02-29T23:59:59.999999999Z", "2024-05-12 00:00:00+00:00",
		"2024-05-12 01:30:00.5+05:30", "2024-05-12 01:30:00.5-05:30", "1970-01-01 00:00:00", "2200-12-31 23:59:59",
	} {
		want, ok := slowStamp(s)
		if got, err := stamp([]byte(s)); err != nil || !ok || got != want {
			t.Errorf("%s is %d, %v; expected %d, %v", s, got, err, want, ok)
		}
	}
	for _, s := range []string{
		"", "2023-11-16", "2023-11-16 18:15", "2023-11-16 24:00:00", "2023-11-16 23:60:00", "2023-11-16 23:59:60",
		"2023-13-16 18:15:46",
		"2023-11-31 18:15:46", "2023-11-16 18:15:46.", "2023-11-16 18:15:46.12345678901234567", "2023-11-16 18:15:46z",
		"2023-11-16 18:15:46+0000",
		"2023-11-16 1a:15:46", "2023-11-16x18:15:46", "1969-12-31 23:59:59", "9999-01-01 00:00:00",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00 18:15:46", " 2023-11-16 18:15:46",
	} {
		if got, err := stamp([]byte(s)); err == nil {
			t.Errorf("%q is %d, expected an error", s, got)
		}
	}
}

// slowStamp reads a time stamp with the standard library, which takes decimal
// places after the seconds of any layout.
func slowStamp(s string) (int64, bool) {
	for _, layout := range []string{
		"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05Z07:00",
	} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UnixNano(), true
		}
	}
	return 0, false
}

// FuzzClock compares with time.Parse.
func FuzzClock(f *testing.F) {
	for _, s := range []string{"2023-11-16 18:15:46.6805900", "2024-10-15T23:59:59.5Z", "2024-05-12 02:00:01-12:30"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := stamp([]byte(s))
		if err != nil {
			return
		}
		if want, ok := slowStamp(s); !ok || got != want {
			t.Errorf("%q is %d, expected %d (%v)", s, got, want, ok)
		}
	})
}

func BenchmarkClock(b *testing.B) {
	b.ReportAllocs()
	text := []byte("2023-11-16 18:15:46.6805900")
	for b.Loop() {
		if _, err := stamp(text); err != nil {
			b.Fatal(err)
		}
	}
}
