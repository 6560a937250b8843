package scenario

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/internal/parallel"
)

// arrivalCases are workloads by their arrival process, at about 70 % of what four workers sustain in bursts.
var arrivalCases = [][2]string{
	{"Poisson", ""},
	{"gamma, CV 2", "arrivals=total-gamma:2"},
	{"gamma, CV 4", "arrivals=total-gamma:4"},
	{"gamma, CV 8", "arrivals=total-gamma:8"},
	{"on-off, 110 s", "pattern=on-off:60,50,0.5"},
	{"diurnal, 100 s", "pattern=diurnal:100,0.5"},
	{"sessions", "sessions=zipf:m=8"},
	{"conversations", "conversations=chat"},
	{"drift", "drift=60"},
}

// BenchmarkArrivals prints how often the intervals of steady runs hold the true mean, by arrival process. The truth
// comes from runs of eight times the length, without their first quarter. REPETITIONS is the number of runs, REQUESTS
// their length, ARRIVALS selects cases.
//
//	go test ./bench/scenario -run '^$' -bench Arrivals -benchtime 1x -timeout 0
func BenchmarkArrivals(b *testing.B) {
	number := func(env string, n int) int {
		if v, err := strconv.Atoi(os.Getenv(env)); err == nil {
			return v
		}
		return n
	}
	repetitions, requests := number("REPETITIONS", 200), number("REQUESTS", 20000)
	metrics := map[string]result.ID{
		"mean_e2e_latency_ms": result.MeanE2E, "mean_ttft_ms": result.MeanTTFT, "mean_tpot_ms": result.MeanTPOT,
	}
	fmt.Printf("\n| arrivals | steady | too short | overloaded | E2E covered | TPOT covered | TTFT covered |\n" +
		"|---|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range arrivalCases {
		if !strings.Contains(c[0], os.Getenv("ARRIVALS")) {
			continue
		}
		const longRuns, longer = 6, 8
		runs := make([]*result.Result, repetitions+longRuns)
		err := parallel.Do(b.Context(), len(runs), func(i int) (err error) {
			sc := builtIn(10, int64(requests), uint64(1000+i))
			if i >= repetitions {
				sc = builtIn(10, int64(longer*requests), uint64(1000+i))
				sc.Client.Warmup = as[warmupText](fmt.Sprint(longer * requests / 4 / 10))
			}
			for _, set := range strings.Fields(c[1]) {
				key, value, _ := strings.Cut(set, "=")
				if err := sc.Set(key, value); err != nil {
					return err
				}
			}
			runs[i], err = sc.Simulate(b.Context(), RunOptions{})
			return err
		}, nil)
		if err != nil {
			b.Fatal(c[0], err)
		}
		truth := map[string]float64{}
		states := map[steady.State]int{}
		covered, printed := map[string]int{}, map[string]int{}
		for name, id := range metrics {
			for _, r := range runs[repetitions:] {
				x, _ := r.Metrics.Get(id)
				truth[name] += x / longRuns
			}
		}
		for _, r := range runs[:repetitions] {
			states[r.Steady.State]++
			for _, in := range r.Steady.Intervals {
				if printed[in.Metric]++; in.Low <= truth[in.Metric] && truth[in.Metric] <= in.High {
					covered[in.Metric]++
				}
			}
		}
		row := fmt.Sprintf("| %s | %d | %d | %d |", c[0], states[steady.Steady], states[steady.Transient],
			states[steady.Overloaded])
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			share := 100 * float64(covered[name]) / math.Max(float64(printed[name]), 1)
			row += fmt.Sprintf(" %.0f %% |", share)
		}
		fmt.Println(row)
	}
}
