package capacity

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/format"
)

// coverageCase is a cluster whose attainment is to be estimated.
type coverageCase struct {
	name     string
	workers  int
	slo      result.SLO
	adapters float64 // Options.PerAdapter
	long     int64   // requests of the runs that tell the truth
	settings string
}

var coverageCases = []coverageCase{
	{"default, 4 workers", 4, result.SLO{TTFT: 500, TPOT: 100}, 0, 4 * coverageRun, ""},
	{"bursts (gamma:6), 7 workers", 7, result.SLO{TTFT: 1000}, 0, 4 * coverageRun,
		"arrivals=gamma:6 num_adapters=8 request_rate=12"},
	{"skewed, near 100 %", 6, result.SLO{TTFT: 1000}, 0, 4 * coverageRun, "request_rate=16"},
	{"at the edge of overload", 5, result.SLO{TTFT: 1000}, 0, 4 * coverageRun, "request_rate=16"},
	// the share depends on the length,
	{"per adapter", 4, result.SLO{TTFT: 500, TPOT: 100}, 0.9, coverageRun, "num_adapters=16"},
}

// coverageRun is the length of the runs: that of the shortest in a search.
const coverageRun = shortest

// BenchmarkCoverage prints how often the 95 % intervals of the answers, from
// intervalSeeds runs, hold the mean over runs of their length: the mean of all
// repetitions. It prints the mean over longer runs, too: the difference is what a slow
// transient adds. COVERAGE selects cases by their names; COVERAGE_SEEDS is the number of runs of
// an interval, with 3200 runs in all.
//
//	go test ./bench/study/capacity -run '^$' -bench Coverage -benchtime 1x -timeout 0
func BenchmarkCoverage(b *testing.B) {
	const longRuns = 64
	seeds := intervalSeeds
	if n, err := strconv.Atoi(os.Getenv("COVERAGE_SEEDS")); err == nil && n > 1 {
		seeds = n
	}
	repetitions := 200 * intervalSeeds / seeds
	rows := [][]string{
		{"case", "mean over runs", "over longer ones", "coverage", "too high", "too low", "mean half width"},
	}
	for _, c := range coverageCases {
		if only := os.Getenv("COVERAGE"); !strings.Contains(c.name, only) {
			continue
		}
		sc := scenario.Default()
		for _, set := range strings.Fields(c.settings) {
			key, value, _ := strings.Cut(set, "=")
			if err := sc.Set(key, value); err != nil {
				b.Fatal(err)
			}
		}
		sc.Seed = 77
		s := newSearch(b.Context(), &sc, Options{
			SLO: c.slo, Attain: 0.95, PerAdapter: c.adapters, MaxWorkers: 64, MaxSeeds: 1e6,
		})
		truths, err := s.measureAll(Candidate{Workers: c.workers}, 1, forDecision, 0, longRuns, half(c.long), 0)
		if err != nil {
			b.Fatal(err)
		}
		runs, err := s.measureAll(Candidate{Workers: c.workers}, 1, forInterval, 0, repetitions*seeds,
			size{requests: shortest / 2 * (1 + intervalLength), warm: shortest / 2}, 0)
		if err != nil {
			b.Fatal(err)
		}
		longer, _, _ := columns(samples(truths))
		all, _, _ := columns(samples(runs))
		truth, rule := stat.Mean(all, nil), s.rule()
		covered, high, low, width := 0, 0, 0, 0.0
		for i := range repetitions {
			values, _, _ := columns(samples(runs[i*seeds : (i+1)*seeds]))
			from, to := rule.interval(values, 0.025)
			width += (to - from) / 2 / float64(repetitions)
			switch {
			case from > truth:
				high++
			case to < truth:
				low++
			default:
				covered++
			}
		}
		rows = append(rows, []string{c.name,
			fmt.Sprintf("%s ± %.2f", percent(truth), 196*stat.StdDev(all, nil)/math.Sqrt(float64(len(all)))),
			fmt.Sprintf("%s ± %.2f", percent(stat.Mean(longer, nil)), 196*stat.StdDev(longer, nil)/math.Sqrt(longRuns)),
			format.Percent(float64(covered)/float64(repetitions), 1), fmt.Sprint(high), fmt.Sprint(low),
			fmt.Sprintf("%.2f points", 100*width)})
	}
	var text strings.Builder
	if err := format.Table(&text, rows); err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + text.String())
}
