package synth_test

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/nprand"
	"lorasim/trace/synth"
)

// TestSharedPoissonDraws follows the description with a plain list in place of
// the heap.
func TestSharedPoissonDraws(t *testing.T) {
	rates := []float64{0.5, 2, 0, 1}
	r := nprand.New(7)
	due := make([]float64, len(rates))
	for i, rate := range rates {
		due[i] = 1 / rate * r.StandardExponential()
	}
	src, err := synth.NewSharedPoisson(synth.SharedPoisson{Rates: rates, Requests: 500, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	if n := src.Len(); n != 500 {
		t.Errorf("%d requests to come, expected 500", n)
	}
	got, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range got.Requests {
		first := 0
		for k := range due {
			if due[k] < due[first] {
				first = k
			}
		}
		if q.ID != int64(i) || q.Arrival != due[first] || q.Adapter != int32(first) {
			t.Fatalf("request %d is %+v, expected adapter %d at %v", i, q, first, due[first])
		}
		due[first] += 1 / rates[first] * r.StandardExponential()
	}
	if len(got.Requests) != 500 {
		t.Errorf("%d requests, expected 500", len(got.Requests))
	}
}

// TestSharedPoissonDuration: the workload ends before the duration, and a number
// of requests may end it earlier.
func TestSharedPoissonDuration(t *testing.T) {
	collect := func(c synth.SharedPoisson) []trace.Request {
		src, err := synth.NewSharedPoisson(c)
		if err != nil {
			t.Fatal(err)
		}
		if sized := src.Len() >= 0; sized == (c.Duration > 0) {
			t.Errorf("%+v: size known: %v", c, sized)
		}
		w, err := trace.Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		return w.Requests
	}
	long := collect(synth.SharedPoisson{Rates: []float64{1, 3}, Requests: 1000})
	at := long[99].Arrival
	if got := collect(synth.SharedPoisson{Rates: []float64{1, 3}, Duration: at}); len(got) != 99 {
		t.Errorf("%d requests before the 100th, expected 99", len(got))
	}
	if got := collect(synth.SharedPoisson{Rates: []float64{1, 3}, Duration: math.Nextafter(at, 1e9)}); len(got) != 100 {
		t.Errorf("%d requests up to the 100th, expected 100", len(got))
	}
	if got := collect(synth.SharedPoisson{Rates: []float64{1, 3}, Duration: at, Requests: 10}); len(got) != 10 {
		t.Errorf("%d requests, expected 10", len(got))
	}
}

// TestSharedPoissonCounts: the arrivals of measured runs in 3600 s, which the
// authors of the client recorded, to within 0.2 % up to 100,000 of them. (Above,
// the client could not keep up.)
func TestSharedPoissonCounts(t *testing.T) {
	f, err := os.Open(shareddata.Path(t, "vllm_lora/runs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	header, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range header {
		column[name] = i
	}
	var errs []float64
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		want, err := strconv.ParseFloat(row[column["twin_arrivals"]], 64)
		if err != nil || want > 100_000 {
			continue // not recorded
		}
		var levels []float64
		for _, s := range strings.Fields(row[column["rates"]]) {
			x, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			levels = append(levels, x)
		}
		var rates []float64
		for _, digit := range row[column["adapter_rate_index"]] {
			rates = append(rates, levels[digit-'0'])
		}
		src, err := synth.NewSharedPoisson(synth.SharedPoisson{Rates: rates, Duration: 3600})
		if err != nil {
			t.Fatal(err)
		}
		w, err := trace.Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, math.Abs(float64(len(w.Requests))/want-1))
	}
	sort.Float64s(errs)
	n := len(errs)
	if n < 100 {
		t.Fatalf("%d runs with known arrivals, expected more than 100", n)
	}
	t.Logf("%d runs: median error %.4f %%, P90 %.4f %%, largest %.4f %%", n, 100*errs[n/2], 100*errs[n*9/10],
		100*errs[n-1])
	if errs[n-1] > 0.002 {
		t.Errorf("the arrivals of one run are off by %.3f %%, expected 0.2 %% at most", 100*errs[n-1])
	}
}

func TestSharedPoissonErrors(t *testing.T) {
	for want, c := range map[string]synth.SharedPoisson{
		"rate of adapter 1 is -1":   {Rates: []float64{1, -1}, Requests: 1},
		"rate of adapter 0 is +Inf": {Rates: []float64{math.Inf(1)}, Requests: 1},
	} {
		if _, err := synth.NewSharedPoisson(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, expected one with %q", c, err, want)
		}
	}
}
