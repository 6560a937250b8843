package replay

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/azure"
)

// functions makes a histogram of one interval with functions named by letters.
func functions(names string, counts ...int64) *azure.Histogram {
	h := &azure.Histogram{}
	for i, n := range counts {
		h.Functions = append(h.Functions, azure.Function{App: "app", Func: names[i : i+1]})
		h.Counts = append(h.Counts, []int64{n})
	}
	return h
}

func TestMapping(t *testing.T) {
	h := functions("dbaceg", 5, 5, 1, 9, 0, 5) // e is idle
	for _, c := range []struct {
		mapping  Mapping
		adapters int
		want     string // functions in order, with their adapters
		traffic  [][]int64
	}{
		{Mapping{Strategy: Stride, Stride: 1}, 2, "a0 b1 c0 d1 g0", [][]int64{{15}, {10}}},
		{Mapping{Strategy: RoundRobin, Stride: 7}, 2, "a0 b1 c0 d1 g0", [][]int64{{15}, {10}}},
		{Mapping{Strategy: Stride, Stride: 2}, 2, "a0 b0 c1 d1 g0", [][]int64{{11}, {14}}},
		{Mapping{Strategy: Stride, Stride: 4}, 3, "a0 b0 c0 d0 g1", [][]int64{{20}, {5}, {0}}},
		{Mapping{Strategy: Stripe}, 2, "a0 b0 c0 d1 g1", [][]int64{{15}, {10}}},
		{Mapping{Strategy: Stripe}, 5, "a0 b1 c2 d3 g4", [][]int64{{1}, {5}, {9}, {5}, {5}}},
		{Mapping{Strategy: RoundRobin, Sort: true}, 2, "c0 b1 d0 g1 a0", [][]int64{{15}, {10}}},
	} {
		t.Run(fmt.Sprint(c.mapping, c.adapters), func(t *testing.T) {
			got, err := c.mapping.apply(h, c.mapping.order(h), c.adapters, 1)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for i, f := range got.Functions {
				text += fmt.Sprintf(" %s%d", f.Func, got.AdapterOf[i])
			}
			if text[1:] != c.want {
				t.Errorf("functions to adapters: %s, expected %s", text[1:], c.want)
			}
			if d := cmp.Diff(c.traffic, got.Histogram); d != "" {
				t.Error(d)
			}
		})
	}
	_, err := Mapping{Strategy: RoundRobin}.apply(h, []int{0, 1}, 3, 1)
	testutil.ExpectError(t, err, "2 functions for 3 adapters")
}

func TestStripesAreEven(t *testing.T) {
	m := Mapping{Strategy: Stripe}
	sizes := map[int32]int{}
	for i := range 1003 {
		sizes[m.adapter(i, 1003, 7)]++
	}
	for k := range int32(7) {
		if sizes[k] != 143 && sizes[k] != 144 {
			t.Errorf("adapter %d has %d of 1003 functions", k, sizes[k])
		}
	}
}

func TestConfigErrors(t *testing.T) {
	adapters := trace.Names(2, nil)
	good := [][]int64{{1}, {2}}
	for _, c := range []struct {
		change    func(*Config)
		histogram [][]int64
		want      []string
	}{
		{func(c *Config) { c.CV = []float64{1, 0} }, good, []string{"cv of adapter 1", "0.001 to 1000"}},
		{func(c *Config) { c.CV = []float64{1e9} }, good, []string{"cv of adapter 0", "1e+09"}},
		{func(c *Config) { c.Requests = 1e9 }, good, []string{"1000000000 requests", "gives only about 3"}},
		{func(*Config) {}, [][]int64{{0}, {0}}, []string{"no traffic"}},
		{func(*Config) {}, [][]int64{{1}}, []string{"1 rows", "expected 2"}},
		{func(*Config) {}, [][]int64{{1}, {1, 2}}, []string{"row 1", "2 intervals"}},
		{func(*Config) {}, [][]int64{{}, {}}, []string{"row 0", "0 intervals"}},
		{func(*Config) {}, [][]int64{{1}, {-1}}, []string{"adapter 1 has -1"}},
	} {
		config := Default()
		c.change(&config)
		_, err := config.ReplayHistogram(adapters, c.histogram)
		testutil.ExpectError(t, err, c.want...)
	}
	_, err := Default().ReplayHistogram(nil, good)
	testutil.ExpectError(t, err, "no adapters")
}

func TestDLoRAErrors(t *testing.T) {
	adapters := trace.Names(2, nil)
	good := DLoRA{
		Trace: azure.V2, Path: "no such folder", End: azure.Instant{Minute: 60}, Requests: 10,
		Distribution: "gamma", Interval: 60, TotalRate: 4, CV: 1, MapStride: 1,
	}
	for _, c := range []struct {
		change func(*DLoRA)
		want   []string
	}{
		{func(*DLoRA) {}, []string{"no such folder"}},
		{func(d *DLoRA) { d.Distribution = "weibull" }, []string{`"weibull"`, "exponential and gamma"}},
		{func(d *DLoRA) { d.TotalRate = 0 }, []string{"total rate is 0"}},
		{func(d *DLoRA) { d.TotalRate = 1e9 }, []string{"too large"}},
		{func(d *DLoRA) { d.CV = 0 }, []string{"cv is 0"}},
		{func(d *DLoRA) { d.Start, d.End = instant("0.1.0"), instant("1.0.30") },
			[]string{"0.1.0 to 0.0.30", "default replay"}},
	} {
		d := good
		c.change(&d)
		_, _, err := d.Replay(t.Context(), adapters)
		testutil.ExpectError(t, err, c.want...)
	}
	_, _, err := good.ReplayHistogram(adapters, [][]int64{{1, 0}, {1, 0}})
	testutil.ExpectError(t, err, "interval 1 of the window (minutes 60 to 120", "no traffic")
	few := good // no request falls to the second interval, which then may be empty
	few.Requests = 1
	if _, s, err := few.ReplayHistogram(adapters, [][]int64{{1, 0}, {1, 0}}); err != nil ||
		s.Counts[0]+s.Counts[1] != 1 {
		t.Errorf("one request in two intervals: %v", err)
	}
}

// TestDLoRALaterDay: the reference asks a later day's file of azure_v1 for
// columns that it does not have, even where the file is there.
func TestDLoRALaterDay(t *testing.T) {
	path := testutil.File(t, "invocations_per_function_md.anon.d02.csv",
		"HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,3,4\n")
	d := DLoRA{
		Trace: azure.V1, Path: filepath.Dir(path), Start: instant("1.0.0"), End: instant("1.0.2"), Requests: 1,
		Distribution: "gamma", Interval: 1, TotalRate: 4, CV: 1, MapStride: 1,
	}
	_, _, err := d.Replay(t.Context(), trace.Names(1, nil))
	testutil.ExpectError(t, err, "columns 1441 to 1442", "default replay")
	// The default replay takes the same window.
	c := Default()
	c.Trace, c.Path, c.Window, c.Interval = azure.V1, d.Path, azure.Window{Start: 1440, End: 1442}, 1
	_, traffic, err := c.Replay(t.Context(), trace.Names(1, nil))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]int64{{3, 4}}, traffic.Histogram); d != "" {
		t.Error(d)
	}
}

// TestDefaultReplayOfTrace counts by start, over the end of a day, and skips
// idle functions.
func TestDefaultReplayOfTrace(t *testing.T) {
	path := shareddata.Path(t, "golden/AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt")
	c := Default()
	c.Path, c.Window, c.Interval = path, azure.Window{Start: 0, End: 1500}, 7
	src, traffic, err := c.Replay(t.Context(), trace.Names(16, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int64, 215) // ceil(1500/7)
	r, err := azure.OpenInvocations(t.Context(), path, azure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows := 0.0
	for v, err := r.Next(); err == nil; v, err = r.Next() {
		if at := v.Start(); at < 90000 {
			want[int(at/420)]++
			rows++
		}
	}
	got := make([]int64, len(want))
	for _, row := range traffic.Histogram {
		for i, n := range row {
			got[i] += n
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	// Poisson arrivals: the number varies by its root.
	if n := float64(len(w.Requests)); math.Abs(n-rows) > 4*math.Sqrt(rows) {
		t.Errorf("%v requests for %v invocations, expected as many within 4 times the root", n, rows)
	}
	c.Path = filepath.Join(filepath.Dir(path), "absent")
	_, _, err = c.Replay(t.Context(), trace.Names(16, nil))
	testutil.ExpectError(t, err, "absent")
}
