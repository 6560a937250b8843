package azure

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/trace"
	"lorasim/trace/synth"
)

// twoDays is a workload over two days with one adapter that is never used.
func twoDays(t *testing.T) *trace.Workload {
	t.Helper()
	c := synth.Default()
	c.Adapters, c.Popularity = 4, synth.Popularity{Kind: synth.Explicit, Weights: []float64{5, 0, 2, 1}}
	c.Rate, c.Duration = 0.02, 2*86400
	src, err := synth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestExportMinutesReadsBack(t *testing.T) {
	w, dir := twoDays(t), t.TempDir()
	files, err := WriteMinutes(w.Source(), dir)
	if err != nil || files != 2 {
		t.Fatalf("%d files, %v", files, err)
	}
	want := make([][]int64, 4)
	for a := range want {
		want[a] = make([]int64, 48)
	}
	for _, r := range w.Requests {
		want[r.Adapter][int(r.Arrival/3600)]++
	}
	q := Query{Format: V1, Window: Window{Start: 0, End: 2 * minutesPerDay}, Interval: 60}
	h, err := ReadHistogram(t.Context(), dir, q, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Functions) != 4 {
		t.Fatalf("%d functions, expected 4", len(h.Functions))
	}
	for i, f := range h.Functions {
		if name := functionOf(int32(i)); f != (Function{name, name, name}) {
			t.Errorf("function %d is %v", i, f)
		}
		for hour, n := range want[i] {
			if got := at(h.Counts[i], hour); got != n {
				t.Errorf("adapter %d has %d requests in hour %d, expected %d", i, got, hour, n)
			}
		}
	}
}

// at is counts[i], or 0 for no counts.
func at(counts []int64, i int) int64 {
	if counts == nil {
		return 0
	}
	return counts[i]
}

func TestExportInvocationsReadsBack(t *testing.T) {
	for _, mean := range []float64{0, 30} {
		w, name := twoDays(t), filepath.Join(t.TempDir(), "trace.txt.gz")
		rows, err := WriteInvocations(w.Source(), name, synth.Durations(mean, 1))
		if err != nil || rows != int64(len(w.Requests)) {
			t.Fatalf("%d rows, %v", rows, err)
		}
		in, err := OpenInvocations(t.Context(), name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum, lastEnd, disordered := 0.0, 0.0, false
		for _, r := range w.Requests {
			v, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(v.Start()-r.Arrival) > 1e-9 || in.Functions()[v.Function].Func != functionOf(r.Adapter) {
				t.Fatalf("request %+v is %+v", r, v)
			}
			sum += v.Duration
			disordered = disordered || v.End < lastEnd
			lastEnd = v.End
		}
		if _, err := in.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last row: %v", err)
		}
		in.Close()
		n := float64(len(w.Requests))
		if math.Abs(sum/n-mean) > 5*mean/math.Sqrt(n) {
			t.Errorf("the mean execution time is %v, expected %v", sum/n, mean)
		}
		if disordered != (mean > 0) {
			t.Errorf("mean %v s: ends out of order: %v", mean, disordered)
		}
	}
}

func TestExportErrors(t *testing.T) {
	requests := func(rs ...trace.Request) trace.Source {
		return (&trace.Workload{Adapters: trace.Names(2, nil), Requests: rs}).Source()
	}
	for _, test := range []struct {
		want  string
		write func(dir string) error
	}{
		{"request 7 uses no adapter", func(dir string) error {
			_, err := WriteMinutes(requests(trace.Request{ID: 7, Adapter: trace.BaseModel}), dir)
			return err
		}},
		{"request 7 uses no adapter", func(dir string) error {
			_, err := WriteInvocations(requests(trace.Request{}, trace.Request{ID: 7, Adapter: trace.BaseModel}),
				filepath.Join(dir, "x.gz"), synth.Durations(1, 1))
			return err
		}},
		{"expected within 99 days", func(dir string) error {
			_, err := WriteMinutes(requests(trace.Request{Arrival: 1e9}), dir)
			return err
		}},
	} {
		dir := t.TempDir()
		if err := test.write(dir); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, expected %q", err, test.want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: %v is left behind", test.want, left)
		}
	}
}
