package llm

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/info"
)

func TestUsage(t *testing.T) {
	path := testutil.File(t, "refs.csv", "user,adapter,time_s\n1,70,12.5\n2,9,10\n3,70,30\n4,8,20\n")
	for _, c := range []struct {
		name     string
		o        Options
		adapters []trace.Adapter
		arrivals []float64
		uses     []int32
	}{
		{"own adapters", Options{},
			[]trace.Adapter{{Name: "adapter9", Rank: 8}, {Name: "adapter70", Rank: 16}, {Name: "adapter8", Rank: 32}},
			[]float64{0, 2.5, 10, 20}, []int32{0, 1, 2, 1}},
		{"two adapters", Options{Adapters: trace.Names(2, nil)},
			trace.Names(2, nil), []float64{0, 2.5, 10, 20}, []int32{0, 1, 0, 1}},
		{"window", Options{Start: 2.5, End: 20}, []trace.Adapter{
			{Name: "adapter70", Rank: 8}, {Name: "adapter8", Rank: 16},
		},
			[]float64{0, 7.5}, []int32{0, 1}},
	} {
		w, skipped, err := ReadUsage(t.Context(), path, c.o, func(n int) []int { return []int{8, 16, 32}[:n] })
		if err != nil || skipped != 0 {
			t.Errorf("%s: %d skipped, %v", c.name, skipped, err)
			continue
		}
		if !reflect.DeepEqual(w.Adapters, c.adapters) {
			t.Errorf("%s: adapters are %v, expected %v", c.name, w.Adapters, c.adapters)
		}
		var want []trace.Request
		for i := range c.arrivals {
			want = append(want, trace.Request{ID: int64(i), Arrival: c.arrivals[i], Adapter: c.uses[i]})
		}
		if !reflect.DeepEqual(w.Requests, want) {
			t.Errorf("%s: requests are %v, expected %v", c.name, w.Requests, want)
		}
	}
}

func TestUsageBadRows(t *testing.T) {
	for text, want := range map[string]string{
		"time_s,adaptr\n1,2\n":       `"adapter"`,
		"time_s,adapter\n":           "empty trace",
		"time_s,adapter\n1,x\n":      `refs.csv:2: column "adapter"`,
		"time_s,adapter\nNaN,1\n":    `refs.csv:2: column "time_s"`,
		"time_s,adapter\n1e11,1\n":   `refs.csv:2: column "time_s": is 1e+11, expected at most`,
		"time_s,adapter\n-1e11,1\n":  `column "time_s"`,
		"time_s,adapter\n1,1\n2,3,4": "refs.csv:3",
	} {
		if _, _, err := ReadUsage(t.Context(), testutil.File(t, "refs.csv", text), Options{}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected one with %s", text, err, want)
		}
	}
	w, skipped, err := ReadUsage(t.Context(), testutil.File(t, "refs.csv", "time_s,adapter\n1,1\nx,1\n3,1\n"),
		Options{SkipBadRows: true}, nil)
	if err != nil || skipped != 1 || len(w.Requests) != 2 {
		t.Errorf("%+v, %d skipped, %v; expected 2 requests and 1 skipped", w, skipped, err)
	}
	if _, _, err := ReadUsage(t.Context(), testutil.File(t, "refs.csv", "time_s,adapter\n1,1\n2,1\n"),
		Options{Start: 5},
		nil); err == nil ||
		!strings.Contains(err.Error(), "no request in the window from 5 s; the last of 2 is at 1 s") {
		t.Errorf("an empty window gives %v", err)
	}
}

// TestUsageRecorded holds the reader and the LRU curve against the published record.
func TestUsageRecorded(t *testing.T) {
	w, skipped, err := ReadUsage(t.Context(), shareddata.Path(t, "lora_usage/alibaba_lora_refs.csv.gz"), Options{}, nil)
	if err != nil || skipped != 0 {
		t.Fatal(skipped, err)
	}
	if len(w.Requests) != 4858 || len(w.Adapters) != 389 {
		t.Errorf("%d references to %d adapters, expected 4858 and 389", len(w.Requests), len(w.Adapters))
	}
	s, err := info.Summarize(w.Source(), 0)
	if err != nil {
		t.Fatal(err)
	}
	// lru_curve.csv: hits in per cent, mean and deviation over orders of the shuffled ones
	for i, want := range [][3]float64{{29.04, 1.43, .16}, {49.84, 2.83, .23}, {71.31, 5.54, .22}, {79.64, 10.64, .32},
		{83.08, 19.29, .51}, {85.51, 32.55, .57}, {88.0, 50.18, .46}, {90.47, 70.06, .37}, {91.68, 87.14, .29},
		{91.99, 91.99, 0}} {
		if got := 100 * float64(s.LRU[i].Hits); math.Abs(got-want[0]) > 0.0051 {
			t.Errorf("%d slots: hit rate %.3f %%, expected %.2f", s.LRU[i].Slots, got, want[0])
		}
		if got := 100 * float64(s.LRU[i].Shuffled); math.Abs(got-want[1]) > 4*want[2]+0.0051 {
			t.Errorf("%d slots, shuffled: hit rate %.3f %%, expected %.2f +- %.2f",
				s.LRU[i].Slots, got, want[1], 4*want[2])
		}
	}
}

func FuzzUsage(f *testing.F) {
	f.Add("time_s,adapter\n1,1\n0.5,2\n")
	f.Add("adapter,time_s\r\n1,\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, _, err := ReadUsage(t.Context(), testutil.File(t, "refs.csv", text), Options{SkipBadRows: true}, nil)
		if err != nil {
			return
		}
		last := 0.0
		for i, r := range w.Requests {
			if r.ID != int64(i) || r.Arrival < last || int(r.Adapter) >= len(w.Adapters) {
				t.Fatalf("request %d is %+v", i, r)
			}
			last = r.Arrival
		}
	})
}
