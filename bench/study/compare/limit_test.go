package compare

import (
	"slices"
	"strings"
	"testing"
)

func TestParseLimits(t *testing.T) {
	got, err := ParseLimits(" mean_ttft_ms > 5 %, output_throughput>2.5%,failed>0%")
	want := []Limit{{"mean_ttft_ms", 0.05}, {"output_throughput", 0.025}, {"failed", 0}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
	if got[0].ratio() != 1.05 || got[1].ratio() != 0.975 || got[0].text() != "+5 %" || got[1].text() != "-2.5 %" {
		t.Errorf("at the limit: %v, %v, %s, %s", got[0].ratio(), got[1].ratio(), got[0].text(), got[1].text())
	}
	for text, want := range map[string]string{
		"":                                "no limit, expected METRIC>N%",
		"mean_ttft_ms>5%,":                "expected METRIC>N%",
		"mean_ttft>5%":                    `unknown metric "mean_ttft", did you mean "mean_ttft_ms"?`,
		"request_throughput<-3%":          "as in request_throughput>3%",
		"mean_ttft_ms>=5%":                "expected METRIC>N%",
		"mean_ttft_ms>5":                  "the limit is a percentage",
		"mean_ttft_ms>x%":                 `expected a number instead of "x"`,
		"mean_ttft_ms>0x5%":               `expected a number instead of "0x5"`,
		"mean_ttft_ms>inf%":               `expected a number instead of "inf"`,
		"mean_ttft_ms>-5%":                "expected 0% or more",
		"mean_ttft_ms>1e9%":               "expected at most 10000%",
		"output_throughput>100%":          "expected less than 100%",
		"concurrency>5%":                  "neither more nor less of concurrency is worse",
		"mean_ttft_ms>5%,mean_ttft_ms>6%": "two limits of mean_ttft_ms",
		strings.Repeat("x", 1000) + ">5%": "xxx...",
	} {
		if _, err := ParseLimits(text); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
}

func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"mean_ttft_ms>5%", "output_throughput>2.5%, failed>0%", "a<1%", ">%",
		"p99_ttft_ms>1e2%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := ParseLimits(text)
		if err != nil {
			return
		}
		var again []string
		for _, l := range limits {
			if r := l.ratio(); !(r > 0) || r > 101 || l.better() == 0 {
				t.Fatalf("%q: %+v", text, l)
			}
			again = append(again, l.String())
		}
		read, err := ParseLimits(strings.Join(again, ","))
		if err != nil || len(read) != len(limits) {
			t.Fatalf("%q is read as %v, and its text as %v, %v", text, limits, read, err)
		}
		for i := range read {
			if d := read[i].Share - limits[i].Share; read[i].Metric != limits[i].Metric || d > 1e-9 || d < -1e-9 {
				t.Fatalf("%q: %v and %v", text, limits[i], read[i])
			}
		}
	})
}
