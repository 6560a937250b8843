package importer

import (
	"math"
	"strings"
	"testing"

	"lorasim/bench/result"
)

// What is a value of a row and what is not.
func TestValuesOfRows(t *testing.T) {
	metric := func(m result.ID) result.Row { return result.Row{Kind: result.MetricRow, Metric: m} }
	for _, c := range []struct {
		row   result.Row
		value string
		ok    bool
	}{
		{metric(result.MeanTTFT), "1.5", true}, {metric(result.MeanTTFT), "-0.25", true},
		{metric(result.MeanTTFT), "nan", false},
		{metric(result.MeanTTFT), "inf", false}, {metric(result.MeanTTFT), "x", false},
		{metric(result.Completed), "7", true}, {metric(result.Completed), "7.0", true},
		{metric(result.Completed), "7.5", false},
		{result.Row{Kind: result.ConcurrencyRow}, "1", true}, {result.Row{Kind: result.ConcurrencyRow}, "0", false},
		{result.Row{Kind: result.ConcurrencyRow}, "-1", false}, {result.Row{Kind: result.ConcurrencyRow}, "4.5", false},
		{result.Row{Kind: result.ConcurrencyRow}, "not set", true},
		{result.Row{Kind: result.BackendRow}, "sglang", true}, {result.Row{Kind: result.BackendRow}, "", false},
		{result.Row{Kind: result.RateRow}, "inf", true}, {result.Row{Kind: result.RateRow}, "2.0", true},
		{result.Row{Kind: result.RateRow}, "-2", false},
	} {
		b := &Imported{Result: &result.Result{}}
		if (b.set(c.row, c.value) == nil) != c.ok {
			t.Errorf("%+v: %q is a value: %v", c.row, c.value, !c.ok)
		}
		if v, there := b.Metrics.Get(c.row.Metric); c.row.Kind == result.MetricRow && (there != c.ok || math.IsNaN(v)) {
			t.Errorf("%q was entered as %v, %v", c.value, v, there)
		}
	}
}

// One row that only a layout has is enough to tell it.
func TestLayoutOfOneRow(t *testing.T) {
	for label, want := range map[string]result.Layout{
		"P95 E2E Latency (ms):": result.SGLang, "P90 TTFT (ms):": result.SGLang, "P90 TPOT (ms):": result.SGLang,
		"P90 ITL (ms):":            result.SGLang,
		"Total input text tokens:": result.SGLang056, "Peak concurrent requests:": result.SGLang056,
		"Mean TPOT (ms):":           result.SGLang056,
		"Total throughput (tok/s):": result.LoRA, "Successful requests:": result.SGLang054,
	} {
		runs, _, err := readResults(strings.NewReader(head+label+strings.Repeat(" ", 41-len(label))+"5\n"+foot), "log")
		if err != nil || len(runs) != 1 || runs[0].Layout != want {
			t.Errorf("%s: %v, %v; expected %v", label, runs, err, want)
		}
	}
}

func TestFields(t *testing.T) {
	for text, want := range map[string]bool{
		"SERVER: a": true, "CLIENT: b": true, "#Input tokens: 5": true, "#Output tokens: 5": true,
		"last arrival: 2.5": true,
		"SERVER:":           false, "SERVER:  ": false, "SERVER a": false, "": false, "#Input tokens: five": false,
		"#Input tokens: 5.5": false, "last arrival: soon": false, "Server: a": false,
	} {
		if got := new(logReader).takeContext(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestProgress(t *testing.T) {
	for text, want := range map[string]bool{"3.2it/s": true, "1.5s/it": true, " 50%|###": true,
		"Mean TTFT (ms): 5": false, "100 %": false, "it / s": false} {
		if isProgress(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
