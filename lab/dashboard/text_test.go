package dashboard

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"lorasim/router/promtext"
)

// FuzzText: what Prometheus' own parser reads, promtext.Parse reads alike. It takes more: blanks at the end of a line.
func FuzzText(f *testing.F) {
	page, err := os.ReadFile("../../router/promtext/testdata/page.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(page))
	for line := range strings.Lines(string(page)) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) { compare(t, text) })
}

// compare compares with the parser of Prometheus.
func compare(t *testing.T, text string) {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	want, err := p.TextToMetricFamilies(strings.NewReader(text))
	got, own := promtext.Parse(text)
	if err != nil {
		return
	}
	if own != nil || len(got) != len(want) {
		t.Fatalf("%q: %d metrics, %v; Prometheus' parser reads %d", text, len(got), own, len(want))
	}
	for name, family := range want {
		if len(got[name]) != len(family.Metric) {
			t.Fatalf("%q: %d series of %s, expected %d", text, len(got[name]), name, len(family.Metric))
		}
		for i, m := range family.Metric {
			if !same(got[name][i], m) {
				t.Fatalf("%q: series %d of %s is %+v, expected %v", text, i, name, got[name][i], m)
			}
		}
	}
}

func same(got *promtext.Metric, want *dto.Metric) bool {
	if len(got.Labels) != len(want.Label) || got.Time != want.GetTimestampMs() {
		return false
	}
	for i, l := range want.Label {
		if got.Labels[i] != (promtext.Label{Name: l.GetName(), Value: l.GetValue()}) {
			return false
		}
	}
	alike := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	switch got.Type {
	case promtext.Gauge:
		return want.Gauge != nil && alike(got.Value, want.Gauge.GetValue())
	case promtext.Counter:
		return want.Counter != nil && alike(got.Value, want.Counter.GetValue())
	case promtext.Untyped:
		return want.Untyped != nil && alike(got.Value, want.Untyped.GetValue())
	case promtext.Histogram, promtext.GaugeHistogram:
		h := want.Histogram
		if h == nil || !alike(got.Sum, h.GetSampleSum()) || len(got.Buckets) != len(h.Bucket) ||
			!alike(got.Count, max(float64(h.GetSampleCount()), h.GetSampleCountFloat())) {
			return false
		}
		for i, b := range h.Bucket {
			if !alike(got.Buckets[i].Bound, b.GetUpperBound()) ||
				!alike(got.Buckets[i].Count, max(float64(b.GetCumulativeCount()), b.GetCumulativeCountFloat())) {
				return false
			}
		}
		return true
	}
	return want.Summary != nil && alike(got.Sum, want.Summary.GetSampleSum())
}

// TestNames: the metrics follow Prometheus' rules for names, types and help.
func TestNames(t *testing.T) {
	for component, start := range map[string]func(*testing.T) *target{"gateway": startGateway, "epp": startEPP} {
		to := start(t)
		to.load()
		page, _ := to.scrape()
		problems, err := promlint.New(bytes.NewReader(page)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "lorasim_") {
				t.Errorf("%s: %s: %s", component, p.Metric, p.Text)
			}
		}
		if !bytes.Contains(page, []byte("\nlorasim_"+component+"_requests_total{")) {
			t.Errorf("%s: no requests_total in\n%s", component, page)
		}
	}
}
