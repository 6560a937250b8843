package synth

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"lorasim/trace"
	"lorasim/trace/info"
)

func sessionsConfig(t testing.TB, spec string, adapters int, requests int64, seed uint64) Config {
	t.Helper()
	c := Default()
	var err error
	if c.Sessions, err = ParseSessions(spec); err != nil {
		t.Fatal(err)
	}
	c.Adapters, c.Requests, c.Seed = adapters, requests, seed
	return c
}

func collect(t testing.TB, c Config) *trace.Workload {
	t.Helper()
	src, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestSessionsReuseAsRecorded holds both models, with the parameters fitted to
// the recorded service, against its LRU hit rates (per cent, 4 to 128 slots;
// lru_curve.csv of the record, GenTD26). The record has 4,858 references, whose
// hit rates vary by up to 0.9 points from seed to seed, so seeds are averaged.
func TestSessionsReuseAsRecorded(t *testing.T) {
	recorded := map[int]float64{4: 71.31, 8: 79.64, 16: 83.08, 32: 85.51, 64: 88.00, 128: 90.47}
	for _, m := range []struct {
		spec     string
		adapters int
	}{
		{"zipf:m=2,nbar=4.53,s=0.9", 800},
		{"copy:m=2.1,nbar=4.53,p_new=0.363,gamma=0.84,j0=11", 4858},
	} {
		const seeds = 20
		got := map[int]float64{}
		for seed := range uint64(seeds) {
			s, err := info.Summarize(collect(t, sessionsConfig(t, m.spec, m.adapters, 4858, seed)).Source(), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range s.LRU {
				got[h.Slots] += 100 * float64(h.Hits) / seeds
			}
		}
		for slots, want := range recorded {
			if math.Abs(got[slots]-want) > 2 {
				t.Errorf("%s: hit rate with %d slots is %.1f %%, expected %.1f +- 2", m.spec, slots, got[slots], want)
			}
		}
	}
}

// TestSessionsRate: the rate of requests is the one asked for from the first
// second on, whatever the law.
func TestSessionsRate(t *testing.T) {
	for _, spec := range []string{"zipf:m=0.5,nbar=3", "zipf:m=2", "zipf:m=64,nbar=20", "copy:m=8"} {
		const seeds, span = 400, 10.0 // s, at 8 requests/s
		var early, all []float64
		for seed := range uint64(seeds) {
			c := sessionsConfig(t, spec, 50, 0, seed)
			c.Duration = span
			n, first := 0.0, 0.0
			for _, r := range collect(t, c).Requests {
				n++
				if r.Arrival < span/10 {
					first++
				}
			}
			early, all = append(early, first), append(all, n)
		}
		for _, x := range []struct {
			what   string
			counts []float64
			want   float64
		}{{"first second", early, 8}, {"10 s", all, 80}} {
			mean, sd := stat.MeanStdDev(x.counts, nil)
			if math.Abs(mean-x.want) > 3.5*sd/math.Sqrt(seeds) {
				t.Errorf("%s: %.2f requests in the %s, expected %v +- %.2f", spec, mean, x.what, x.want,
					3.5*sd/math.Sqrt(seeds))
			}
		}
	}
}

// TestSessionsShape: with one session at a time at most, runs of requests to one
// adapter show the law of lengths and gaps.
func TestSessionsShape(t *testing.T) {
	c := sessionsConfig(t, "zipf:m=0.001,nbar=4,s=0", 1_000_000, 40000, 3)
	w := collect(t, c)
	var lengths, gaps []float64
	run := 0.0
	for i, r := range w.Requests {
		if i > 0 && r.Adapter == w.Requests[i-1].Adapter {
			gaps = append(gaps, r.Arrival-w.Requests[i-1].Arrival)
		} else if i > 0 {
			lengths = append(lengths, run)
			run = 0
		}
		run++
	}
	single := 0.0
	for _, n := range lengths {
		if n == 1 {
			single++
		}
	}
	mean, n := stat.Mean(lengths, nil), float64(len(lengths))
	if math.Abs(mean-4) > 0.15 { // geometric: sd sqrt(12), 10,000 sessions: 4 sigma
		t.Errorf("mean length %.3f, expected 4", mean)
	}
	if p := single / n; math.Abs(p-0.25) > 0.018 {
		t.Errorf("%.3f of the sessions have one request, expected 0.25", p)
	}
	wantGap := 0.001 * 4 / (3 * 8.0)
	if g, sd := stat.MeanStdDev(gaps, nil); math.Abs(g/wantGap-1) > 0.03 || math.Abs(sd/wantGap-1) > 0.05 {
		t.Errorf("gaps have mean %.4g s and deviation %.4g s, expected %.4g for both (exponential)", g, sd, wantGap)
	}
}

// TestCopyingKernel draws J many times against its density.
func TestCopyingKernel(t *testing.T) {
	c := sessionsConfig(t, "copy:m=1,gamma=0.84,j0=11", 10, 1, 1)
	g, err := newGenerator(c)
	if err != nil {
		t.Fatal(err)
	}
	s := g.runs
	for s.started < 50 {
		s.choose()
	}
	sum := 0.0
	for j := 1; j <= 50; j++ {
		sum += math.Pow(float64(j)+11, -0.84)
	}
	const n = 200000
	counts := make([]float64, 51)
	for range n {
		counts[s.back()]++
	}
	for j := 1; j <= 50; j++ {
		want := math.Pow(float64(j)+11, -0.84) / sum
		if got := counts[j] / n; math.Abs(got-want) > 5*math.Sqrt(want/n) {
			t.Errorf("P(J = %d) is %.5f, expected %.5f", j, got, want)
		}
	}
}

// TestCatalogue: new adapters come in order and start again where there are no more.
func TestCatalogue(t *testing.T) {
	c := sessionsConfig(t, "copy:m=1,p_new=1", 3, 1, 1)
	g, err := newGenerator(c)
	if err != nil {
		t.Fatal(err)
	}
	s := g.runs
	first := s.started // those in progress at time 0
	for i := range 7 {
		if got, want := s.choose(), int32((first+i)%3); got != want {
			t.Errorf("session %d uses adapter %d, expected %d", i, got, want)
		}
	}
}

func TestSessionsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Default()
		c.Sessions = Sessions{Kind: rapid.SampledFrom([]string{ZipfSessions, CopySessions}).Draw(t, "kind"),
			Active: rapid.Float64Range(0.01, 300).Draw(t, "m"), Length: rapid.Float64Range(1.01, 50).Draw(t, "nbar"),
			Skew: 0.9, New: rapid.Float64Range(0.01, 1).Draw(t, "p_new"), Gamma: 0.8, Offset: 11}
		c.Adapters, c.Requests, c.Seed = rapid.IntRange(1, 40).Draw(t, "adapters"), 200, rapid.Uint64().Draw(t, "seed")
		c.Drift = rapid.SampledFrom([]float64{0, 5}).Draw(t, "drift")
		c.Pattern = Pattern{OnOff: OnOff{On: 3, Off: 2, Factor: 4}}
		src, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := New(c)
		last := 0.0
		for range c.Requests {
			r, err := src.Next()
			if err != nil || r.Arrival < last || r.Adapter < 0 || int(r.Adapter) >= c.Adapters {
				t.Fatalf("after %v s comes %+v, %v", last, r, err)
			}
			if other, _ := again.Next(); other != r {
				t.Fatalf("%+v, then %+v", r, other)
			}
			last = r.Arrival
		}
	})
}

func TestParseSessions(t *testing.T) {
	for spec, want := range map[string]Sessions{
		"":                       {},
		"zipf:m=32":              {Kind: ZipfSessions, Active: 32, Length: 4.53, Skew: 0.9},
		"zipf: s=0 , nbar=2,m=1": {Kind: ZipfSessions, Active: 1, Length: 2},
		"copy:m=2.1": {Kind: CopySessions, Active: 2.1, Length: 4.53, New: 0.363, Gamma: 0.84,
			Offset: 11},
		"copy:m=1,p_new=1,gamma=0,j0=0":    {Kind: CopySessions, Active: 1, Length: 4.53, New: 1},
		"zipf:m=1000000,nbar=1.0001,s=100": {Kind: ZipfSessions, Active: 1e6, Length: 1.0001, Skew: 100},
	} {
		if s, err := ParseSessions(spec); err != nil || s != want {
			t.Errorf("%q is %+v, %v; expected %+v", spec, s, err, want)
		}
	}
	for spec, want := range map[string]string{
		"zpf:m=2":            `did you mean "zipf"`,
		"zipf":               "sessions zipf: m is missing (sessions in progress on average)",
		"zipf:nbar=2":        "m is missing",
		"zipf:m=0":           `m: "0" is not a number > 0 and <= 1000000`,
		"zipf:m=1,nbar=1":    `nbar: "1" is not`,
		"zipf:m=1,s=-1":      `s: "-1" is not`,
		"zipf:m=NaN":         `m: "NaN" is not`,
		"zipf:m=1,m=2":       "m is given twice",
		"zipf:m=1,gamma=2":   `unknown option "gamma"`,
		"copy:m=1,p_new=0":   `p_new: "0" is not`,
		"copy:m=1,p_new=1.1": `p_new: "1.1" is not`,
		"copy:m=1,j0=-1":     `j0: "-1" is not`,
		"copy:m=x":           `m: "x" is not`,
	} {
		if _, err := ParseSessions(spec); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, expected one with %q", spec, err, want)
		}
	}
}

func TestSessionsContradictions(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"rate inf":             func(c *Config) { c.Rate = math.Inf(1) },
		"arrivals gamma":       func(c *Config) { c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{2}} },
		"exclude locality":     func(c *Config) { c.Locality = Locality{P: 0.5, Window: 2} },
		"crowd on one adapter": func(c *Config) { c.Pattern.Flash = Flash{At: 1, Duration: 2, Factor: 3, Adapter: 1} },
	} {
		c := sessionsConfig(t, "zipf:m=2", 10, 10, 1)
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected one with %q", err, want)
		}
	}
}

func FuzzParseSessions(f *testing.F) {
	fuzzSpec(f, ParseSessions, func(s Sessions, c *Config) { c.Sessions = s },
		"zipf:m=32", "copy:m=2.1,nbar=4.53,p_new=0.363,gamma=0.84,j0=11")
}

func BenchmarkSessions(b *testing.B) {
	c := sessionsConfig(b, "copy:m=256", 1000, int64(b.N)+1, 1)
	src, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := src.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
