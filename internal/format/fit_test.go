package format

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestFit(t *testing.T) {
	rows := [][]string{
		{"request_rate", "policy", "Mean E2E Latency (ms)", "vs static", "Goodput"},
		{"4", "static", "2922.0 ±812.9", "-", "1"},
		{"16", "period_mig:interval=5,margin=0.1,horizon=20", "93474.5 ±9.5", "-26.3 % ±40.2", "0.98"},
	}
	for width, want := range map[int]string{
		58: `request_                          Mean E2E
rate      policy                  Latency (ms)
4         static                   2922.0 ±812.9
16        period_mig:interval=5,  93474.5 ±9.5
          margin=0.1,horizon=20

request_
rate      policy                  vs static      Goodput
4         static                      -             1
16        period_mig:interval=5,  -26.3 % ±40.2  0.98
          margin=0.1,horizon=20
`,
		0: `request_                                     Mean E2E
rate      policy                             Latency (ms)    vs static      Goodput
4         static                              2922.0 ±812.9      -             1
16        period_mig:interval=5,margin=0.1,  93474.5 ±9.5    -26.3 % ±40.2  0.98
          horizon=20
`,
	} {
		var b strings.Builder
		if err := Fit(&b, rows, 2, width); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%d:\n%s", width, b.String())
		}
	}
}

// No line is wider than it may be, as long as names and numbers are short; nothing
// is lost.
func TestFitFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		columns, keys := rapid.IntRange(2, 12).Draw(rt, "columns"), rapid.IntRange(1, 2).Draw(rt, "keys")
		width := rapid.IntRange(80, 120).Draw(rt, "width")
		rows := make([][]string, rapid.IntRange(2, 5).Draw(rt, "rows"))
		letters := ""
		for i := range rows {
			for k := range columns {
				cell := rapid.StringMatching(`[a-z0-9 ,_±]{0,16}`).Draw(rt, "cell")
				rows[i] = append(rows[i], cell)
				if k >= keys {
					letters += strings.Map(func(r rune) rune {
						if r == ' ' {
							return -1
						}
						return r
					}, cell)
				}
			}
		}
		var b strings.Builder
		if err := Fit(&b, rows, keys, width); err != nil {
			rt.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				rt.Fatalf("%d columns, at most %d: %q", n, width, line)
			}
		}
		for _, r := range letters {
			if strings.Count(b.String(), string(r)) < strings.Count(letters, string(r)) {
				rt.Fatalf("%q is missing:\n%s", r, b.String())
			}
		}
	})
}

func TestParagraph(t *testing.T) {
	const text = "one two three four"
	if got := Paragraph(text, 9); got != "one two\n  three\n  four" {
		t.Errorf("%q", got)
	}
	if got := Paragraph("a one,two,three,four", 10); got != "a\n  one,two,\n  three,\n  four" {
		t.Errorf("%q", got)
	}
	if got := Paragraph(text, 0); got != text {
		t.Errorf("%q", got)
	}
}
