package capacity

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
)

// coverageCase is a cluster whose attainment is to be estimated.
type coverageCase struct {
	name     string
	workers  int
	slo      result.SLO
	attain   float64
	adapters float64 // Options.PerAdapter
	settings string
}

var coverageCases = []coverageCase{
	{"default, 4 workers", 4, result.SLO{TTFT: 500, TPOT: 100}, 0.99, 0, ""},
	{"bursts (gamma:6), 7 workers", 7, result.SLO{TTFT: 1000}, 0.99, 0,
		"arrivals=gamma:6 num_adapters=8 request_rate=12"},
	{"skewed, near 100 %", 6, result.SLO{TTFT: 1000}, 0.99, 0, "request_rate=16"},
	{"at the edge of overload", 5, result.SLO{TTFT: 1000}, 0.99, 0, "request_rate=16"},
	{"per adapter", 4, result.SLO{TTFT: 500, TPOT: 100}, 0.95, 0.9, "num_adapters=16"},
}

// coverageLooks are the sizes of the runs at the looks of a decision.
var coverageLooks = []size{{requests: 16000, warm: 8000}, {requests: 24000, warm: 8000}, {requests: 40000, warm: 8000},
	{requests: 72000, warm: 8000}}

// BenchmarkCoverage prints how often the 95 % intervals of the answers hold the mean over runs of their length: that of
// all runs. Decisions are drawn from the runs, with their looks, and get fresh runs as in an answer. COVERAGE selects
// cases by their names, COVERAGE_RUNS is the number of runs.
//
//	go test ./bench/study/capacity -run '^$' -bench Coverage -benchtime 1x -timeout 0
func BenchmarkCoverage(b *testing.B) {
	n := 120
	if own, err := strconv.Atoi(os.Getenv("COVERAGE_RUNS")); err == nil && own > 1 {
		n = own
	}
	rows := [][]string{{"case", "mean at the first look", "at the last", "accepted", "rejected", "coverage", "too high",
		"too low", "mean half width"}}
	for _, c := range coverageCases {
		if only := os.Getenv("COVERAGE"); !strings.Contains(c.name, only) {
			continue
		}
		row, err := c.row(b, n)
		if err != nil {
			b.Fatal(c.name, err)
		}
		rows = append(rows, row)
	}
	var text strings.Builder
	if err := format.Table(&text, rows); err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + text.String())
}

// row makes the runs of a case, and draws decisions from them.
func (c *coverageCase) row(b *testing.B, n int) ([]string, error) {
	sc := scenario.Default()
	for _, set := range strings.Fields(c.settings) {
		key, value, _ := strings.Cut(set, "=")
		if err := sc.Set(key, value); err != nil {
			return nil, err
		}
	}
	sc.Seed = 77
	s := newSearch(b.Context(), &sc, Options{
		SLO: c.slo, Attain: c.attain, PerAdapter: c.adapters, MaxWorkers: 64, MaxSeeds: 1e6, Budget: 1e12,
	})
	runs := make([][]*run, len(coverageLooks)) // by look
	truth := make([]float64, len(runs))
	for i := range runs {
		runs[i] = make([]*run, n)
	}
	if err := parallel.Do(b.Context(), n, func(i int) error {
		t := s.newTrack(Candidate{Workers: c.workers}, s.seed(forInterval, i))
		defer t.stop()
		for look, z := range coverageLooks {
			if err := t.to(z.requests); err != nil {
				return err
			}
			runs[look][i] = t.run(z)
		}
		return nil
	}, nil); err != nil {
		return nil, err
	}
	for look := range runs {
		for _, r := range runs[look] {
			truth[look] += r.value
		}
		truth[look] /= float64(n) // exact for equal values
	}
	const draws = 2000
	rng, rule := rand.New(rand.NewPCG(77, 1)), s.rule()
	count := map[Decision]int{}
	covered, high, low, width := 0, 0, 0, 0.0
	for range draws {
		drawn := make([]int, panelRuns+freshRuns)
		for i := range drawn {
			drawn[i] = rng.IntN(n)
		}
		at := func(look, k int) (list []sample) {
			for _, i := range drawn[:k] {
				list = append(list, runs[look][i].sample)
			}
			return list
		}
		d, look := Undecided, 0
		for ; ; look++ {
			rule.level = lookLevel(look, lengthLooks)
			rule.unseen = badTime(rule.target, coverageLooks[look].requests-coverageLooks[look].warm)
			if d, _ = rule.look(at(look, panelRuns)); d != Undecided || look == len(coverageLooks)-1 {
				break
			}
		}
		count[d]++
		values, _, _ := columns(at(look, len(drawn)))
		from, to := rule.interval(values, 0.025)
		width += (to - from) / 2 / draws
		switch {
		case from > truth[look]:
			high++
		case to < truth[look]:
			low++
		default:
			covered++
		}
	}
	share := func(n int) string { return format.Percent(float64(n)/draws, 1) }
	return []string{c.name, percent(truth[0]), percent(truth[len(truth)-1]), share(count[Holds]),
		share(count[Fails] + count[Overloaded]), share(covered), share(high), share(low),
		fmt.Sprintf("%.2f points", 100*width)}, nil
}
