package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{percent(.0194), "1.9 %"}, {percent(.04), "4 %"}, {percent(.4708), "47 %"}, {percent(0), "0 %"},
		{signed(-.0734), "-7.3 %"}, {signed(.0001), "+0 %"}, {signed(-.0001), "+0 %"}, {signed(2.36), "+236 %"},
		{number(12060.28), "12060"}, {number(39.65), "39.6"}, {number(.91268), "0.913"}, {number(0), "0"},
		{target{.03, .12}.text(.02, .09), "3 %, each 12 %: met"},
		{target{.03, .12}.text(.02, .13), "3 %, each 12 %: " + missed},
		{target{median: .03}.text(.04, .09), "3 %: " + missed},
		{target{worst: .2}.text(.04, .2), "each 20 %: met"},
		{target{}.text(1, 1), "-"},
		{target{worst: .05}.one(-.06), "5 %: " + missed},
		{target{worst: .05}.one(-.05), "5 %: met"},
		{withinFactor(1.5), "factor 1.5: met"}, {withinFactor(.66), "factor 1.5: " + missed},
	} {
		if c.got != c.want {
			t.Errorf("%q, expected %q", c.got, c.want)
		}
	}
}

func TestSeveral(t *testing.T) {
	got := several("x", " s", []comparison{{1, 1.1}, {2, 2}, {4, 2}}, target{.1, .4})
	want := row{"x, 3 runs", "2 s", "2 s", "10 %, worst 50 %", "10 %, each 40 %: " + missed, "-", "a"}
	if got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

func TestFigurePoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.csv")
	text := "figure,series,x,y\n11a,RR (dispatch_only),2,0.5\n5,WX,2,9\n11a,dLoRA (period_mig),8,0.25\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := figurePoints(file, "11a")
	if err != nil || len(got) != 2 || got[1] != (point{"dLoRA (period_mig)", 8, .25}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("figure,series,x,y\n11a,RR,2,much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := figurePoints(file, "11a"); err == nil {
		t.Error("a text is taken as a number")
	}
}

func TestEngineRow(t *testing.T) {
	var s section
	for _, line := range []string{
		"| run | sglang: measured | predicted | error | vLLM: measured | predicted | error |", "|---|---|---|",
		"| long | 452 / 39.3 | 446 / 43.9 | x | 450 / 55.6 | 425 / 58.9 | x |",
		"| (low) | 670 / 28.8 | 633 / 31.4 | x | 581 / 31.9 | 613 / 36.3 | x |",
	} {
		if err := s.engineRow(line); err != nil {
			t.Fatal(err)
		}
	}
	want := row{"mean TTFT, vLLM, long", "55.6 ms", "58.9 ms", "+5.9 %", "25 %: met", "-", "a"}
	if len(s.rows) != 4 || s.rows[3] != want {
		t.Errorf("%+v", s.rows)
	}
	if err := s.engineRow("| long | 452 | 446 / 43.9 | x | 450 / 55.6 | 425 / 58.9 | x |"); err == nil {
		t.Error("one time is taken for two")
	}
}
