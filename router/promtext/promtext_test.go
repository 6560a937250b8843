package promtext

import (
	_ "embed"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// page has all kinds of lines. The lab compares with Prometheus' parser on it, too.
//
//go:embed testdata/page.txt
var page string

// TestParse reads a page with all kinds of lines.
func TestParse(t *testing.T) {
	f, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(f.Names(), "|"); names != "n_total|name with blanks|plain|s|s_bucket|t|up" {
		t.Errorf("names: %s", names)
	}
	up := f["up"]
	if len(up) != 2 || up[0].Type != Gauge || up[0].Time != 1772373600000 || up[0].Label("a") != "x\"y\\z\n" ||
		up[0].Label("c") != "" || up[1].Value != 0 {
		t.Errorf("up: %+v", up)
	}
	h := f["t"]
	if len(h) != 2 || h[0].Count != 3 || h[0].Sum != 1.25 || len(h[0].Buckets) != 2 ||
		h[0].Buckets[0] != (Bucket{0.5, 2}) || !math.IsInf(h[0].Buckets[1].Bound, 1) ||
		h[1].Label("a") != "2" || len(h[1].Labels) != 1 {
		t.Errorf("t: %+v", h)
	}
	if s := f["s"]; len(s) != 1 || s[0].Type != Summary || s[0].Count != 2 || s[0].Sum != 9 {
		t.Errorf("s: %+v", s)
	}
	if v := f["name with blanks"][0]; v.Label("label with blanks") != "v" || !math.IsInf(v.Value, -1) {
		t.Errorf("%+v", v)
	}
}

// TestErrors: wrong texts are errors with the number of the line.
func TestErrors(t *testing.T) {
	for _, text := range []string{
		"a", "a 1", "a b\n", "a 1 b\n", "a 1 2 3\n", "{} 1\n", "{a=\"b\"} 1\n", "a{b} 1\n", "a{b=c} 1\n",
		"a{b=\"c} 1\n", "a{b=\"\\x\"} 1\n", "a{b=\"c\" d=\"e\"} 1\n",
		"a{b=\"1\",b=\"2\"} 1\n", "a{__name__=\"b\"} 1\n", "a 0x1p3\n",
		"a 1_0\n", "# TYPE a gauge\n# TYPE a gauge\n", "a 1\n# TYPE a gauge\n", "# TYPE a thing\n",
		"# HELP a b\n# HELP a c\n", "1a 2\n", "a{b=\"\xff\"} 1\n", "# TYPE a histogram\na_bucket{le=\"x\"} 1\n",
		"# TYPE a histogram\na_count -1\n",
	} {
		f, err := Parse("ok 1\n" + text)
		if err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}

// TestPage: what a page writes is sorted and can be read.
func TestPage(t *testing.T) {
	var p Page
	p.Add(Counter, "b_total", "Help\nof \\ b.", 3, Label{"z", "1\"\n\\"}, Label{"a", "bad \xff"})
	p.Add(Counter, "b_total", "", 1e21, Label{"z", "0"}, Label{"a", ""})
	p.Add(Gauge, "a", "A.", math.Inf(1))
	p.AddHistogram("h_seconds", "H.", []float64{0.5, 1}, []uint64{1, 0, 2}, 7.25, Label{"of", "x"})
	p.AddHistogram("h_seconds", "H.", []float64{0.5, 1}, []uint64{0, 0, 0}, 0)
	p.AddSummary("s", "S.", []Bucket{{0, 1}, {1, 2}}, 4, 5)
	var b strings.Builder
	if n, err := p.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Error(n, err)
	}
	want := `# HELP a A.
# TYPE a gauge
a +Inf
# HELP b_total Help\nof \\ b.
# TYPE b_total counter
b_total{a="",z="0"} 1e+21
b_total{a="bad ` + "\uFFFD" + `",z="1\"\n\\"} 3
# HELP h_seconds H.
# TYPE h_seconds histogram
h_seconds_bucket{le="0.5"} 0
h_seconds_bucket{le="1"} 0
h_seconds_bucket{le="+Inf"} 0
h_seconds_sum 0
h_seconds_count 0
h_seconds_bucket{of="x",le="0.5"} 1
h_seconds_bucket{of="x",le="1"} 1
h_seconds_bucket{of="x",le="+Inf"} 3
h_seconds_sum{of="x"} 7.25
h_seconds_count{of="x"} 3
# HELP s S.
# TYPE s summary
s{quantile="0"} 1
s{quantile="1"} 2
s_sum 5
s_count 4
`
	if b.String() != want {
		t.Errorf("%s\nexpected\n%s", b.String(), want)
	}
	if f, err := Parse(b.String()); err != nil || len(f) != 4 || len(f["b_total"]) != 2 ||
		f["h_seconds"][1].Count != 3 {
		t.Errorf("%v, %v", f, err)
	}
}

// FuzzParse: of any text, Parse returns an error, or series that a Page writes so that Parse reads them again. In the
// lab, lab/dashboard compares Parse with Prometheus' own parser.
func FuzzParse(f *testing.F) {
	f.Add(page)
	for line := range strings.Lines(page) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		families, err := Parse(text)
		if err != nil {
			return
		}
		for name, series := range families {
			var p Page
			for _, m := range series {
				for _, l := range m.Labels {
					if l.Name == "" || !utf8.ValidString(l.Name+l.Value) {
						t.Fatalf("%q: label %+v", text, l)
					}
				}
				p.Add(Gauge, "a", name, m.Value, Label{"value", m.Label("a")})
			}
			var b strings.Builder
			p.WriteTo(&b)
			again, err := Parse(b.String())
			if err != nil || len(again["a"]) != len(series) {
				t.Fatalf("%q: %v, %q", text, err, b.String())
			}
		}
	})
}
