package fit

import (
	"compress/gzip"
	"encoding/csv"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// slotRank is the rank of the slots of the A100 runs, to which vLLM's kernels pad every adapter.
const slotRank = 64

// slotRuns reads the runs of vLLM on an A100, by name. In runs of mode multi_lora the base model has the weights of
// hot-lora.
func slotRuns(t *testing.T) map[string][]record.Request {
	t.Helper()
	path := shareddata.Path(t, "vllm_slots_a100") + "/requests.csv.gz"
	rows, err := textfile.Read(t.Context(), path, func(in io.Reader, _ string) ([][]string, error) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		return csv.NewReader(z).ReadAll()
	})
	if err != nil {
		t.Fatal(err)
	}
	adapters := map[string]int32{"hot-lora": 0, "cold-lora1": 1, "cold-lora2": 2}
	runs := map[string][]record.Request{}
	for _, row := range rows[1:] {
		number := func(column string) float64 {
			x, err := strconv.ParseFloat(row[slices.Index(rows[0], column)], 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		run, adapter := row[0], adapters[row[slices.Index(rows[0], "adapter")]]
		r := record.Request{ID: int64(number("id")), Adapter: adapter, Rank: slotRank, Arrival: number("arrival_s"),
			Prompt: int32(number("prompt_tokens")), Output: int32(number("output_tokens"))}
		if adapter == 0 && strings.HasPrefix(run, "multi_lora") {
			r.Adapter, r.Rank = trace.BaseModel, 0
		}
		r.Sent, r.FirstToken, r.Finish = r.Arrival, r.Arrival+number("ttft_s"), r.Arrival+number("e2e_s")
		runs[run] = append(runs[run], r)
	}
	return runs
}

// slotServer is the computed profile of the server of the A100 runs, with the given number of slots: vLLM 0.11 with a
// memory share of 0.8.
func slotServer(t *testing.T, p *profile.Profile, slots int) *profile.Profile {
	t.Helper()
	if p == nil {
		var err error
		if p, err = profile.Load(t.Context(), "analytic:llama-2-7b,a100-40gb"); err != nil {
			t.Fatal(err)
		}
		s, err := profile.ParseServing("vllm-0.11")
		if err == nil {
			err = s.Apply(p)
		}
		if err == nil {
			err = p.UseMemoryShare(0.8)
		}
		p.FollowScheduler()
		if err != nil {
			t.Fatal(err)
		}
	}
	q := *p
	q.Engine.MaxLorasPerBatch, q.Engine.MaxLoraRank = slots, slotRank
	return &q
}

// Four runs with a slot for every adapter, fitted by default, predict fourteen others: runs with fewer slots than
// adapters, where requests starve, and runs with enough. go test -v prints the errors.
func TestA100Slots(t *testing.T) {
	runs := slotRuns(t)
	fitted := []string{"baseline-slots3-hot0.5", "baseline-slots3-hot1.0", "multi_lora-slots3-hot0.5",
		"multi_lora-slots3-hot1.0"}
	var in [][]record.Request
	for _, name := range fitted {
		in = append(in, runs[name])
	}
	start := slotServer(t, nil, 3)
	fit, err := Records(t.Context(), in, RecordsOptions{Options: Options{Start: start}, Holdout: 0.25,
		MemoryStated: true})
	if err != nil {
		t.Fatal(err)
	}
	if e := fit.estimate("lora.kernel_factor"); e == nil || e.Held || !(e.RelStd < 0.05) {
		t.Errorf("lora.kernel_factor: %+v, expected a standard error below 5 %%", e)
	}
	t.Logf("deviation %.2f before, %.2f after; %s", fit.StartLoss, fit.Loss, strings.Join(fit.Notes, " "))
	for _, model := range []struct {
		name   string
		of     *profile.Profile
		limits bool
	}{{"computed", start, false}, {"fitted", fit.Profile, true}} {
		errs := map[string][]float64{}
		for _, name := range slices.Sorted(maps.Keys(runs)) {
			if slices.Contains(fitted, name) {
				continue
			}
			slots, _ := strconv.Atoi(strings.Split(name, "slots")[1][:1])
			run, err := measured.NewRecording(name, runs[name], 0)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := measured.PredictRecordings(t.Context(), []*measured.Recording{run},
				slotServer(t, model.of, slots), nil)
			if err != nil {
				t.Fatal(err)
			}
			group := "others"
			if rows[0].Measured[measured.TTFTMean] > 1000 {
				group = "starved"
			}
			line := ""
			for _, m := range []measured.Metric{measured.E2EMean, measured.TTFTMean, measured.TPOTMean,
				measured.Duration} {
				e := rows[0].Error[m]
				errs[group+" "+string(m)] = append(errs[group+" "+string(m)], math.Abs(e))
				line += strconv.FormatFloat(100*e, 'f', 1, 64) + " % " + string(m) + "  "
			}
			t.Logf("%-9s %-8s %-24s %s", model.name, group, name, line)
		}
		for _, key := range slices.Sorted(maps.Keys(errs)) {
			slices.Sort(errs[key])
			median, worst := stats.Quantile(errs[key], 0.5), slices.Max(errs[key])
			t.Logf("%-9s %-20s median %4.1f %%, worst %4.1f %%", model.name, key, 100*median, 100*worst)
			limit := map[string][2]float64{"starved e2e_mean": {0.04, 0.12}, "starved ttft_mean": {0.05, 0.2},
				"others e2e_mean": {0.03, 0.06}, "others ttft_mean": {0.06, 0.12}}[key]
			if model.limits && limit[0] > 0 && (median > limit[0] || worst > limit[1]) {
				t.Errorf("%s: median %.1f %%, worst %.1f %%, expected at most %v", key, 100*median, 100*worst, limit)
			}
		}
	}
}
