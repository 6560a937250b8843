package info

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/synth"
)

func near(t testing.TB, what string, got Number, want, tol float64) {
	t.Helper()
	testutil.Near(t, what, float64(got), want, tol)
}

func summarize(t testing.TB, w *trace.Workload, top int) *Summary {
	t.Helper()
	s, err := Summarize(w.Source(), top)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// handmade is a workload whose numbers can be worked out on paper: adapter 0
// every second from 0 to 20 s, adapter 1 at 0, 10 and 20 s, the base model at 5 s.
func handmade() *trace.Workload {
	w := &trace.Workload{Adapters: []trace.Adapter{{Name: "chat", Rank: 16}, {Name: "code", Rank: 64}, {Name: "idle"}}}
	add := func(at float64, adapter int32, prompt, output int32) {
		w.Requests = append(w.Requests, trace.Request{
			ID: int64(len(w.Requests)), Arrival: at, Adapter: adapter, Prompt: prompt, Output: output})
	}
	for at := range 21 {
		add(float64(at), 0, 100, 10)
		if at%10 == 0 {
			add(float64(at), 1, 1000, 50)
		}
		if at == 5 {
			add(5, trace.BaseModel, 200, 20)
		}
	}
	return w
}

func TestHandmade(t *testing.T) {
	s := summarize(t, handmade(), 0)
	if s.Requests != 25 || s.Adapters != 3 || s.AdaptersUsed != 2 || s.FirstArrival != 0 || s.LastArrival != 20 {
		t.Errorf("%+v", s)
	}
	near(t, "rate", s.Rate, 24.0/20, 1e-15)
	// 24 gaps: 20 of 1 s, 4 of 0 s.
	near(t, "cv", s.CV, math.Sqrt(20.0/24*4/24)/(20.0/24), 1e-15)
	// Seconds 0 to 19: three have 2 requests (0, 5, 10), 17 have 1.
	near(t, "dispersion in 1 s", s.Dispersion[0].Index, (3*4.0/20+17.0/20-(23.0/20)*(23.0/20))/(23.0/20), 1e-12)
	// Two windows of 10 s, with 12 and 11 requests.
	near(t, "dispersion in 10 s", s.Dispersion[1].Index, 0.25/11.5, 1e-12)
	if !math.IsNaN(float64(s.Dispersion[2].Index)) {
		t.Errorf("20 s have a dispersion in 60 s: %v", s.Dispersion[2])
	}
	// 24 requests with an adapter: the first of each adapter repeats nothing.
	near(t, "locality", s.Locality, 22.0/23, 1e-15)
	// Of 3 adapters, 1, 5 and 10 % are one: 21 of 24 requests. Gini by its
	// definition, the mean absolute difference over twice the mean.
	near(t, "top 1 %", s.Skew.Top1, 21.0/24, 1e-15)
	near(t, "top 10 %", s.Skew.Top10, 21.0/24, 1e-15)
	near(t, "gini", s.Skew.Gini, 2*(18+21+3)/(9*2*8.0), 1e-15)
	for i, want := range []Usage{
		{Name: "chat", Index: 0, Rank: 16, Requests: 21, Share: 21.0 / 25, Rate: 1.2 * 21 / 25, CV: 0},
		{Name: "code", Index: 1, Rank: 64, Requests: 3, Share: 3.0 / 25, Rate: 1.2 * 3 / 25, CV: 0},
		{Name: "base model", Index: trace.BaseModel, Requests: 1, Share: 1.0 / 25, Rate: 1.2 / 25,
			CV: Number(math.NaN())},
	} {
		got := s.Top[i]
		near(t, "rate of "+want.Name, got.Rate, float64(want.Rate), 1e-15)
		got.Rate = want.Rate
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("usage %d is %+v, expected %+v", i, got, want)
		}
	}
	// Prompts: 21 x 100, 200, 3 x 1000. Position 0.9*24 = 21.6 lies between the
	// 200 (21) and the first 1000 (22).
	near(t, "mean prompt", s.Prompt.Mean, 5300.0/25, 1e-12)
	near(t, "p50 prompt", s.Prompt.P50, 100, 0)
	near(t, "p90 prompt", s.Prompt.P90, 200+0.6*800, 1e-9)
	near(t, "p99 prompt", s.Prompt.P99, 1000, 0)
	if s.Prompt.Total != 5300 || s.Prompt.Max != 1000 || s.Output.Total != 380 || s.Output.Max != 50 {
		t.Errorf("tokens %+v, %+v", s.Prompt, s.Output)
	}
	// 60 columns at most: 41 bins of 0.5 s reach 20 s, 0.2 s would take 101.
	if s.Timeline.BinWidth != 0.5 || len(s.Timeline.Counts) != 41 || s.Timeline.Counts[0] != 2 ||
		s.Timeline.Counts[1] != 0 || s.Timeline.Counts[20] != 2 {
		t.Errorf("timeline %+v", s.Timeline)
	}
}

// The numbers in the golden reports are those that TestHandmade works out.
func TestGoldenText(t *testing.T) {
	s := summarize(t, handmade(), 2)
	for name, opt := range map[string]bool{"unicode": false, "ascii": true} {
		var b bytes.Buffer
		if err := s.WriteText(&b, opt); err != nil {
			t.Fatal(err)
		}
		if opt && strings.ContainsFunc(b.String(), func(r rune) bool { return r > 126 }) {
			t.Error("the ASCII report holds other characters")
		}
		file := "testdata/handmade_" + name + ".golden"
		testutil.Golden(t, file, b.Bytes())
	}
}

// A single request shows beside a thousand, and bars have their heights.
func TestChartBars(t *testing.T) {
	var b bytes.Buffer
	writeChart(&b, Timeline{BinWidth: 2, Counts: []int64{1000, 1, 0, 500, 100}}, false)
	want := []string{
		"requests per 2 s",
		"  1000 │█",
		"       │█",
		"       │█  ▄",
		"       │█  █",
		"       │█▁ █▄",
		"     0 └─────",
		"        0 10 s",
	}
	if got := strings.Split(strings.Trim(b.String(), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nexpected\n%s", b.String(), strings.Join(want, "\n"))
	}
}

// Every number against a slow computation from its definition.
func TestAgainstDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 30).Draw(t, "adapters")
		w := &trace.Workload{Adapters: trace.Names(k, nil)}
		scale := rapid.SampledFrom([]float64{0.001, 0.1, 3, 40}).Draw(t, "scale")
		at := 0.0
		for i := range rapid.IntRange(2, 400).Draw(t, "requests") {
			at += scale * rapid.Float64Range(0, 1).Draw(t, "gap")
			w.Requests = append(w.Requests, trace.Request{
				ID: int64(i), Arrival: at,
				Adapter: int32(rapid.IntRange(0, k-1).Draw(t, "adapter")),
				Prompt:  int32(rapid.IntRange(0, 60_000).Draw(t, "prompt")),
				Output:  int32(rapid.IntRange(0, 300).Draw(t, "output")),
			})
		}
		s, err := Summarize(w.Source(), k)
		if err != nil {
			t.Fatal(err)
		}
		same := func(what string, got Number, want float64) {
			if math.IsNaN(want) != math.IsNaN(float64(got)) || math.Abs(float64(got)-want) > 1e-9*(1+math.Abs(want)) {
				t.Fatalf("%s is %v, expected %v", what, got, want)
			}
		}
		same("cv", s.CV, slowCV(w, -1))
		for _, d := range s.Dispersion {
			same("dispersion", d.Index, slowDispersion(w, d.Window))
		}
		same("locality", s.Locality, slowLocality(w))
		same("gini", s.Skew.Gini, slowGini(w))
		for _, u := range s.Top {
			same("cv of an adapter", u.CV, slowCV(w, u.Index))
		}
		var prompts []float64
		for _, r := range w.Requests {
			prompts = append(prompts, float64(r.Prompt))
		}
		slices.Sort(prompts)
		same("p50", s.Prompt.P50, numpyQuantile(prompts, 0.5))
		same("p90", s.Prompt.P90, numpyQuantile(prompts, 0.9))
		same("p99", s.Prompt.P99, numpyQuantile(prompts, 0.99))
		same("mean", s.Prompt.Mean, stat.Mean(prompts, nil))

		counts := make([]int64, len(s.Timeline.Counts))
		for _, r := range w.Requests {
			counts[int(int64(r.Arrival*1000)/int64(math.Round(s.Timeline.BinWidth*1000)))]++
		}
		if !slices.Equal(counts, s.Timeline.Counts) || len(counts) > timelineColumns {
			t.Fatalf("timeline %v, expected %v", s.Timeline, counts)
		}
	})
}

// Quantiles are exact.
func TestHistogramResolution(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistogram()
		var xs []float64
		for _, v := range rapid.SliceOfN(rapid.Int32Min(0), 1, 200).Draw(t, "values") {
			h.add(v)
			xs = append(xs, float64(v))
		}
		slices.Sort(xs)
		for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 1} {
			want, got := numpyQuantile(xs, q), float64(h.quantile(q))
			if math.Abs(got-want) > 1e-9*math.Abs(want) {
				t.Fatalf("quantile %v is %v, expected %v", q, got, want)
			}
		}
		if h.max != int64(xs[len(xs)-1]) {
			t.Fatalf("max is %d, expected %v", h.max, xs[len(xs)-1])
		}
	})
}

// Bins are widened only as far as is needed.
func TestTimelineRound(t *testing.T) {
	for ms, want := range map[int][2]int{
		200: {1, 200}, 201: {2, 101}, 400: {2, 200}, 401: {5, 81}, 1000: {5, 200}, 1001: {10, 101},
	} {
		tl := newTimeline(2, 2000)
		for i := range ms {
			tl.add(1, float64(i)/1000+1e-5)
		}
		tl.round(200)
		if tl.width != int64(want[0]) || tl.used != want[1] || tl.row(1)[0] != int64(want[0]) ||
			len(tl.row(0)) != want[1] {
			t.Errorf("%d ms: %d bins of %d ms with %v, expected %d of %d",
				ms, tl.used, tl.width, tl.row(1), want[1], want[0])
		}
	}
}

func TestShortWorkloads(t *testing.T) {
	for _, n := range []int{0, 1, 2} {
		w := handmade()
		w.Requests = w.Requests[:n]
		s := summarize(t, w, 0)
		var text, js bytes.Buffer
		if err := s.WriteText(&text, false); err != nil {
			t.Error(err)
		}
		if strings.Contains(text.String(), "NaN") || strings.Contains(text.String(), "Inf") {
			t.Errorf("%d requests:\n%s", n, text.String())
		}
		if err := s.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(js.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if back["requests"] != float64(n) || back["cv"] != nil || back["rate_req_s"] != nil {
			t.Errorf("%d requests: %s", n, js.String())
		}
		if _, isList := back["top"].([]any); !isList {
			t.Errorf("%d requests: top is %v, expected a list", n, back["top"])
		}
	}
}

func TestBadRequests(t *testing.T) {
	for _, test := range []struct {
		want string
		r    trace.Request
	}{
		{"request 1: arrival is 1 s, expected the order of arrival (the previous one is 2 s)", trace.Request{
			ID: 1, Arrival: 1,
		}},
		{"arrival is NaN s", trace.Request{ID: 1, Arrival: math.NaN()}},
		{"arrival is +Inf s", trace.Request{ID: 1, Arrival: math.Inf(1)}},
	} {
		w := &trace.Workload{Adapters: trace.Names(1, nil), Requests: []trace.Request{{Arrival: 2}, test.r}}
		if _, err := Summarize(w.Source(), 0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, expected %q", err, test.want)
		}
	}
}

// The same numbers for a synthetic workload as its configuration asks for.
func TestSyntheticWorkload(t *testing.T) {
	c := synth.Default()
	c.Adapters, c.Rate, c.Requests = 10, 50, 200_000
	c.Popularity = synth.Popularity{Kind: synth.Zipf, Param: 1}
	c.Arrivals = synth.Arrivals{Dist: synth.Gamma, CV: []float64{2}, Total: true}
	src, err := synth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarize(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "rate", s.Rate, 50, 50*5*2/math.Sqrt(200_000))
	near(t, "cv", s.CV, 2, 0.05)
	near(t, "dispersion in 60 s", s.Dispersion[2].Index, 4, 3) // 67 windows only
	shares, _ := c.Popularity.Shares(c.Adapters)
	for i, u := range s.Top {
		near(t, "share", u.Share, shares[i], 5*math.Sqrt(shares[i]/200_000))
	}
}

func BenchmarkSummarize(b *testing.B) {
	c := synth.Default()
	src, err := synth.New(c)
	if err != nil {
		b.Fatal(err)
	}
	w, err := trace.Collect(trace.Limit(src, 1<<16))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	col, i, shift := newCollector(w.Adapters, newTimeline(1, timelineBins)), 0, 0.0
	for b.Loop() {
		r := w.Requests[i]
		r.Arrival += shift
		r.Prompt, r.Output = int32(i%4000), int32(i%500)
		col.add(r)
		if i++; i == len(w.Requests) {
			i, shift = 0, r.Arrival
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mreq/s")
	if err := col.summary(0).WriteText(io.Discard, false); err != nil {
		b.Fatal(err)
	}
}
