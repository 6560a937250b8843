package synth

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/trace/internal/renewal"
)

func TestSpecs(t *testing.T) {
	arrivals := func(s string) (any, error) { return ParseArrivals(s) }
	pattern := func(s string) (any, error) { return ParsePattern(s) }
	ranks := func(s string) (any, error) { return ParseRanks(s) }
	locality := func(s string) (any, error) { return ParseLocality(s) }
	for _, test := range []struct {
		parse func(string) (any, error)
		spec  string
		want  any    // the value, or
		err   string // part of the error
	}{
		{arrivals, "gamma", Arrivals{Dist: Gamma, CV: []float64{1}}, ""},
		{arrivals, "gamma:4", Arrivals{Dist: Gamma, CV: []float64{4}}, ""},
		{arrivals, "gamma:4,1", Arrivals{Dist: Gamma, CV: []float64{4, 1}}, ""},
		{arrivals, "pareto:cv=2,0.5", Arrivals{Dist: Pareto, CV: []float64{2, 0.5}}, ""},
		{arrivals, "vllm", Arrivals{Dist: VLLM, Total: true, Shape: 1}, ""},
		{arrivals, "vllm:inf", Arrivals{Dist: VLLM, Total: true, Shape: math.Inf(1)}, ""},
		{arrivals, "total-weibull:2", Arrivals{Dist: Weibull, CV: []float64{2}, Total: true}, ""},
		{arrivals, "deterministic", Arrivals{Dist: Deterministic}, ""},
		{arrivals, "poison", nil, `unknown arrivals "poison" (known: exponential, gamma, weibull, pareto, deterministic, total-exponential, total-gamma`},
		{arrivals, "gama", nil, `did you mean "gamma"?`},
		{arrivals, "gamma:0", nil, `arrivals gamma: cv: "0" is not a list of numbers from 0.001 to 1000`},
		{arrivals, "exponential:3", nil, `arrivals exponential: "3", expected no options`},
		{arrivals, "total-gamma:2,3", nil, "one process for all adapters has one coefficient of variation, not 2"},
		{arrivals, "vllm:0", nil, `arrivals vllm: burstiness: "0" is not a number from 1e-06`},
		{arrivals, "total-", nil, `unknown arrivals "total-"`},
		{pattern, "constant", Pattern{}, ""},
		{pattern, "on-off:10,20,0.1", Pattern{OnOff: OnOff{10, 20, 0.1}}, ""},
		{pattern, " flash:1,2,3 ", Pattern{Flash: Flash{1, 2, 3, AllAdapters}}, ""},
		{pattern, "diurnal:1e6,0.5+flash:1,2,3,0", Pattern{Diurnal: Diurnal{1e6, 0.5}, Flash: Flash{1, 2, 3, 0}}, ""},
		{pattern, "diurnal:10,1+diurnal:10,1", nil, "diurnal is given twice"},
		{pattern, "dirunal:10,1", nil, `did you mean "diurnal"?`},
		{pattern, "on-off:1,2", nil, "pattern on-off: factor is missing (the other rate, as a share of the full one), expected a number from 0"},
		{pattern, "flash:1,2,3,0.5", nil, `pattern flash: adapter: "0.5" is not a whole number >= -1 and < 10000000`},
		{pattern, "flash:1,2,3,9999999", Pattern{Flash: Flash{1, 2, 3, MaxAdapters - 1}}, ""},
		{pattern, "flash:1,2,3,10000000", nil, `adapter: "10000000" is not a whole number`},
		{pattern, "diurnal:0,0", nil, `pattern diurnal: period: "0" is not a number from 0.001 to 1000000000000`},
		{ranks, "16", Ranks{Values: []int{16}}, ""},
		{ranks, "8, 16", Ranks{Values: []int{8, 16}}, ""},
		{ranks, "drawn:8=3,64=1", Ranks{Values: []int{8, 64}, Weights: []float64{3, 1}, Drawn: true}, ""},
		{ranks, "drwan:8", nil, `did you mean "drawn"?`},
		{ranks, "8,x", nil, `value 2 is "x", expected a whole number`},
		{ranks, "8,0", nil, "rank is 0, expected 1 to 65536"},
		{ranks, "drawn:8=1,16", nil, "some values have a weight"},
		{ranks, "drawn:8,16=1", nil, "some values have a weight"},
		{ranks, "8=1", nil, "only when drawn"},
		{ranks, "drawn:8=-1", nil, "weight of rank 8 is -1"},
		{ranks, "drawn:8=y", nil, `weight of rank 8 is "y"`},
		{ranks, "drawn:8=0", nil, "add up to 0"},
		{locality, "0.5", Locality{0.5, 4}, ""},
		{locality, "0.5,8", Locality{0.5, 8}, ""},
		{locality, "0", Locality{}, ""},
		{locality, "2", nil, `p: "2" is not a number from 0 to 1`},
		{locality, "0.5,0", nil, `recent: "0" is not a whole number from 1 to 1024`},
		{locality, "0.5,1.5", nil, `recent: "1.5" is not a whole number`},
		{locality, "", nil, "p is missing"},
	} {
		got, err := test.parse(test.spec)
		switch {
		case test.err == "" && (err != nil || !reflect.DeepEqual(got, test.want)):
			t.Errorf("%q is %+v, %v, expected %+v", test.spec, got, err, test.want)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%q: error %v, expected %q", test.spec, err, test.err)
		}
	}
}

// The tags are sound, and their bounds are those of the generator.
func TestTags(t *testing.T) {
	for _, f := range slices.Concat(ArrivalsForms(), PatternForms(), PopularityForms(), LocalityForms(),
		SessionsForms(), ConversationForms()) {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
	for spec, ok := range map[string]bool{
		fmt.Sprintf("gamma:%v", renewal.MinCV): true, fmt.Sprintf("gamma:%v", renewal.MinCV*0.999): false,
		fmt.Sprintf("gamma:%v", renewal.MaxCV): true, fmt.Sprintf("gamma:%v", renewal.MaxCV*1.001): false,
	} {
		if _, err := ParseArrivals(spec); (err == nil) != ok {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// fuzzSpec checks that a parser never panics and that what it accepts makes
// requests in order.
func fuzzSpec[T any](f *testing.F, parse func(string) (T, error), use func(T, *Config), seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parse(s)
		if err != nil {
			return
		}
		c := Config{Adapters: 5, Popularity: Popularity{Kind: Uniform}, Arrivals: Arrivals{Dist: Exponential},
			Rate: 8, Requests: 100}
		use(v, &c)
		rs := generate(t, c)
		for i, r := range rs {
			if !(r.Arrival >= rs[max(i-1, 0)].Arrival) || r.Adapter < 0 || int(r.Adapter) >= c.Adapters {
				t.Fatalf("%q is %+v: request %d is %+v", s, v, i, r)
			}
		}
		if len(rs) != 100 {
			t.Errorf("%q is %+v, which makes %d requests", s, v, len(rs))
		}
	})
}

func FuzzPopularity(f *testing.F) {
	fuzzSpec(f, ParsePopularity, func(p Popularity, c *Config) {
		c.Popularity, c.Adapters = p,
			cmp.Or(len(p.Weights), 5)
	},
		"zipf:0.9", "powerlaw:0.3", "maf2", "uniform", "explicit:5,3,1", "zipf", "explicit:1e300,1e-300")
}

func FuzzArrivals(f *testing.F) {
	fuzzSpec(f, ParseArrivals, func(a Arrivals, c *Config) {
		if c.Arrivals = a; a.Dist == VLLM { // the times of a client
			c.Arrivals = Arrivals{Dist: Exponential}
		}
	},
		"gamma:4", "weibull:2", "exponential", "deterministic", "pareto:3,0.5", "total-gamma:0.5", "vllm:0.2")
}

func FuzzPattern(f *testing.F) {
	fuzzSpec(f, ParsePattern, func(p Pattern, c *Config) { p.Flash.Adapter %= 5; c.Pattern = p },
		"constant", "on-off:10,20,0.1", "diurnal:86400,0.5", "flash:600,60,10", "diurnal:1e6,0.5+flash:1,2,3,4")
}

func FuzzRanks(f *testing.F) {
	fuzzSpec(f, ParseRanks, func(r Ranks, c *Config) { c.Ranks = r }, "16", "8,16,32,64", "drawn:8,16",
		"drawn:8=3,64=1", "")
}

func FuzzLocality(f *testing.F) {
	fuzzSpec(f, ParseLocality, func(l Locality, c *Config) { c.Locality = l }, "0.5", "0.5,4", "0", "1,1")
}
