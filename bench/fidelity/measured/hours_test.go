package measured

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/lengths"
)

const hoursHeader = "use,run,model,group,max_loras,max_lora_rank,module_ranks,max_num_seqs,rates,adapter_rate_index,window_s," +
	"pool_prompts,pool_input_tokens,pool_output_tokens,successful_requests,in_tok_s,out_tok_s,ttft_mean_ms,ttft_median_ms," +
	"tpot_mean_ms,itl_mean_ms,series_run_mean,twin_arrivals\n"

const (
	easy   = "calibration,a/1,tiny,a,2,8,8 4,64,0.5 0.25,0110,200,1000,223000,196400,290,333.3,300,50,40,11,12,2.5,300\n"
	loaded = "validation,a/2,tiny,a,2,8,8,,40,0,200,,,,1000,900,800,20000,15000,60,70,,\n"
)

// hoursFolder writes tables of a model "tiny".
func hoursFolder(t *testing.T) *HourTables {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		kvFile:    "model,slots,rank,kv_tokens\ntiny,0,8,9000\ntiny,2,8,8000\ntiny,2,8,8200\ntiny,8,8,5000\ntiny,4,16,\ntiny,2,16,7000\ntiny,4,16,5200\n",
		loadsFile: "model,adapter_rank,max_lora_rank,cpu_mean_ms,disk_mean_rest_ms\ntiny,4,8,2,20\ntiny,8,8,4,40\ntiny,16,16,5,50\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := ReadHourTables(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// tinyHourProfile is a profile for the runs of the tests.
func tinyHourProfile() *profile.Profile {
	p := profile.Default()
	p.Name = "tiny"
	p.Engine.Scheduler, p.Engine.MaxNumBatchedTokens = profile.SchedulerVLLM, 2048
	p.Latency.Decode = profile.Decode{BaseMs: 10, PerRequestMs: 0.5}
	p.Latency.Prefill = profile.Prefill{BaseMs: 10, PerTokenUs: 20}
	return &p
}

func TestReadHours(t *testing.T) {
	runs, err := ReadHours(strings.NewReader(hoursHeader+easy+loaded), "runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := Hour{HourSetup: HourSetup{
		Line: 2, Use: Calibration, Name: "a/1", Model: "tiny", Group: "a", Slots: 2, MaxRank: 8,
	}, MaxSeqs: 64,
		Ranks: []int{8, 4}, Rates: []float64{0.5, 0.25, 0.25, 0.5}, Window: 200, PoolPrompt: 223, PoolOutput: 196.4,
		InRate:    333.3,
		Measured:  Values{Throughput: 633.3, TPOT: 11, ITL: 12, TTFTMean: 50, TTFTMedian: 40, Running: 2.5},
		Completed: 290, Arrivals: 300}
	got := runs[0]
	if !math.IsNaN(got.Waiting) || !math.IsNaN(got.KVShare) {
		t.Errorf("without their columns %v wait and the cache is %v full, expected NaN", got.Waiting, got.KVShare)
	}
	got.Waiting, got.KVShare = 0, 0
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
	r := runs[1]
	if _, ok := r.Measured[Running]; ok || !math.IsNaN(r.Arrivals) || r.PoolPrompt != 0 || r.MaxSeqs != 256 ||
		len(r.Rates) != 1 || r.Line != 3 {
		t.Errorf("empty fields are read as %+v", r)
	}
}

func TestReadHoursErrors(t *testing.T) {
	for want, content := range map[string]string{
		"r.csv: file is empty, expected a header": "",
		`no column "max_loras"`: strings.Replace(hoursHeader, "max_loras",
			"max_lora", 1) + easy,
		"r.csv: no rows":                    hoursHeader,
		`r.csv:2: max_loras: "0", expected`: hoursHeader + strings.Replace(easy, ",2,8,8 4", ",0,8,8 4", 1),
		`module_ranks: "9" is not a rank from 1 to max_lora_rank (8)`: hoursHeader +
			strings.Replace(easy, "8 4", "8 9", 1),
		`rates: "x" is not a rate`: hoursHeader + strings.Replace(easy, "0.5 0.25", "0.5 x", 1),
		`adapter_rate_index: digit 3 is '2', expected an index into the 2 rates`: hoursHeader +
			strings.Replace(easy, "0110", "0120", 1),
		"adapter_rate_index: has 0 digits":        hoursHeader + strings.Replace(easy, "0110", "", 1),
		`window_s: "0", expected a number > 0`:    hoursHeader + strings.Replace(easy, ",200,1000", ",0,1000", 1),
		`tpot_mean_ms: "fast", expected a number`: hoursHeader + strings.Replace(easy, ",11,", ",fast,", 1),
		"row has 1 fields":                        hoursHeader + easy + "x\n",
	} {
		if _, err := ReadHours(strings.NewReader(content), "r.csv"); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("error %v, expected one with %q", err, want)
		}
	}
}

func FuzzReadHours(f *testing.F) {
	f.Add(hoursHeader + easy + loaded)
	f.Fuzz(func(t *testing.T, content string) {
		runs, err := ReadHours(strings.NewReader(content), "r.csv")
		if err != nil {
			return
		}
		for _, r := range runs {
			if len(r.Rates) == 0 || r.Slots < 1 || !(r.Window > 0) {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}

// TestKVTokens: on the points of the table, between them, between ranks at the
// same slots x rank, and beyond.
func TestKVTokens(t *testing.T) {
	tables := hoursFolder(t)
	for _, c := range []struct {
		slots, rank int
		want        int64
	}{
		{2, 8, 8200},             // the larger of two
		{5, 8, 6600},             // half way from 8200 to 5000
		{10, 8, 5000 - 2*3200/6}, // beyond
		{4, 16, 5200},            // the row without tokens does not count
		{3, 16, 6100},            //
		{2, 12, (8200 - 3200/6 + 7000 + 450) / 2}, // 24 of slots x rank: 3 slots of rank 8, 1.5 of rank 16
		{4, 4, 8200},  // a rank below the table: as 2 slots of rank 8
		{1, 32, 7000}, // a rank above it: as 2 slots of rank 16
	} {
		got, err := tables.KVTokens("tiny", c.slots, c.rank)
		if err != nil || math.Abs(float64(got-c.want)) > 1 {
			t.Errorf("%d slots of rank %d: %d tokens, %v; expected %d", c.slots, c.rank, got, err, c.want)
		}
	}
	for model, slots := range map[string]int{"tiny": 1000, "none": 2} {
		if n, err := tables.KVTokens(model, slots, 8); err == nil {
			t.Errorf("%s with %d slots: %d tokens, expected an error", model, slots, n)
		}
	}
}

func TestLoadTimes(t *testing.T) {
	tables := hoursFolder(t)
	for _, c := range []struct {
		ranks      []int
		max        int
		host, disk float64
	}{{[]int{4, 8}, 8, 3, 30}, {[]int{8, 8}, 8, 4, 40}, {nil, 16, 5, 50}, {[]int{64}, 64, 5, 50}, {
		[]int{5}, 9, 2, 20,
	}} {
		host, disk, ok := tables.load("tiny", c.ranks, c.max)
		if !ok || host != c.host || disk != c.disk {
			t.Errorf("ranks %v in slots of %d: %v and %v ms, expected %v and %v",
				c.ranks, c.max, host, disk, c.host, c.disk)
		}
	}
	if _, _, ok := tables.load("none", nil, 8); ok {
		t.Error("load times of a model that is not in the table")
	}
}

// TestPredictHours: a light load is served and has the offered throughput, a heavy
// one is not; the rows do not depend on the number of processors.
func TestPredictHours(t *testing.T) {
	runs, err := ReadHours(strings.NewReader(hoursHeader+easy+loaded), "runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	runs[1].Model = "tiny"
	tables := hoursFolder(t)
	o := HourOptions{Profiles: map[string]*profile.Profile{"tiny": tinyHourProfile()}}
	rows, err := PredictHours(context.Background(), runs, tables, o)
	if err != nil {
		t.Fatal(err)
	}
	light, heavy := rows[0], rows[1]
	if light.Skipped != "" || heavy.Skipped != "" {
		t.Fatalf("skipped: %s %s", light.Skipped, heavy.Skipped)
	}
	if light.StarvedPredicted || light.StarvedMeasured || !heavy.StarvedPredicted || !heavy.StarvedMeasured {
		t.Errorf("starved: %+v and %+v", light, heavy)
	}
	if light.Arrivals != 300 || math.Abs(float64(heavy.Arrivals)-8000) > 400 {
		t.Errorf("%d and %d arrivals, expected 300 (recorded) and about 8000", light.Arrivals, heavy.Arrivals)
	}
	// 1.5 requests/s of 223 + 194.5 tokens; few requests, so that lengths scatter
	if got := light.Predicted[Throughput]; math.Abs(got/(1.5*417.5)-1) > 0.15 {
		t.Errorf("throughput of the light run is %v, expected about %v", got, 1.5*417.5)
	}
	// A step with one to three requests and no prompt takes 10.5 to 11.5 ms.
	if got := light.Predicted[TPOT]; got < 10.5 || got > 14 {
		t.Errorf("TPOT of the light run is %v ms", got)
	}
	for m, e := range light.Error {
		if want := light.Predicted[m]/light.Measured[m] - 1; math.Abs(e-want) > 1e-12 {
			t.Errorf("error of %s is %v, expected %v", m, e, want)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	again, err := PredictHours(context.Background(), runs, tables, o)
	if err != nil || !reflect.DeepEqual(rows, again) {
		t.Errorf("another number of processors gives other rows (%v)", err)
	}
	if _, err := PredictHours(context.Background(), runs, tables, HourOptions{}); err == nil ||
		!strings.Contains(err.Error(), `no profile of model "tiny"`) {
		t.Errorf("error %v, expected one that names the model", err)
	}
	runs[0].Slots = 1000
	rows, err = PredictHours(context.Background(), runs[:1], tables, o)
	if err != nil || !strings.Contains(rows[0].Skipped, "leave no KV cache") {
		t.Errorf("a run without KV cache: %v, %v", rows[0].Skipped, err)
	}
}

// TestObserver: the figures of two requests, by hand.
func TestObserver(t *testing.T) {
	o := &hourObserver{}
	done := func(sent, first, finish float64, output int32, s record.Status) {
		o.done(&record.Request{Sent: sent, FirstToken: first, Finish: finish, Prompt: 10, Output: output, Status: s})
	}
	done(1, 1.5, 2.5, 11, record.OK) // 10 gaps of 0.1 s
	done(1, 2, 2.6, 3, record.OK)    // 2 gaps of 0.3 s
	done(1, 1.1, 1.1, 1, record.OK)  // none
	done(1, math.NaN(), 9, 0, record.Unfinished)
	o.state(&record.Event{Until: tick.FromSeconds(5), View: &router.View{Workers: []router.Worker{{Running: 4}}}})
	want := Values{
		Throughput: 45 / 10.0, TPOT: 200, ITL: 1000 * 1.6 / 12, TTFTMean: 1000 * 1.6 / 3, TTFTMedian: 500, Running: 2,
	}
	for m, got := range o.values(10) {
		if math.Abs(got-want[m]) > 1e-9 {
			t.Errorf("%s is %v, expected %v", m, got, want[m])
		}
	}
	done(1, 1.2, 1.2, 1, record.OK)
	if got := o.values(10)[TTFTMedian]; math.Abs(got-350) > 1e-9 {
		t.Errorf("median TTFT of four requests is %v, expected 350", got)
	}
	if len((&hourObserver{}).values(10)) != 2 || o.arrived != 5 {
		t.Error("figures of no requests, or a wrong number of arrivals")
	}
}

// TestWorkload: the pool's means scale the lengths.
func TestWorkload(t *testing.T) {
	s, err := lengths.Parse(t.Context(), "sharegpt-llama3")
	if err != nil {
		t.Fatal(err)
	}
	r := &Hour{Rates: []float64{50}, HourSetup: HourSetup{MaxRank: 8}, Window: 400, PoolPrompt: 230, PoolOutput: 190}
	src, err := hourWorkload(r, &hourModel{lengths: s.(*lengths.Copula), prompt: 223.8, output: 196.4})
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	p, o := 0.0, 0.0
	for _, q := range w.Requests {
		p += float64(q.Prompt) / float64(len(w.Requests))
		o += float64(q.Output) / float64(len(w.Requests))
	}
	if math.Abs(p/230-1) > 0.03 || math.Abs(o/(190*0.99)-1) > 0.03 {
		t.Errorf("mean lengths are %v and %v, expected 230 and %v", p, o, 190*0.99)
	}
}

// The embedded intervals are of runs that nothing was fitted to, with the settings
// that these had, and hold what was measured of a few of them.
func TestEmbeddedIntervals(t *testing.T) {
	runs, err := textfile.Read(t.Context(), shareddata.Path(t, "vllm_lora/runs.csv"), ReadHours)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := ReadHourTables(t.Context(), shareddata.Path(t, "vllm_lora"))
	if err != nil {
		t.Fatal(err)
	}
	var sample []Hour
	for name := range hourModels {
		m, err := newHourModel(t.Context(), name, tab, HourOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var like []profile.ValidatedRun
		for i := range runs {
			if r := &runs[i]; r.Model == name && r.Use != Calibration {
				costs, err := hourServer(r, m.profile, tab)
				if err != nil {
					t.Fatal(err)
				}
				if like = append(like, profile.ValidatedRun{Workers: 1, Profile: costs.Profile()}); len(like)%40 == 0 {
					sample = append(sample, *r)
				}
			}
		}
		got, want := *m.profile.Intervals, profile.NewIntervals(m.profile, like)
		of := map[string]float64{}
		for _, b := range got.Bands {
			of[b.Metric] += b.Runs
		}
		if len(of) != 5 || of["mean_tpot_ms"] != float64(len(like)) {
			t.Errorf("%s: runs of the bands by metric %v, expected all %d", name, of, len(like))
		}
		if w := got.Workload; w.Requests < 100 || w.Adapters != 384 || w.Prompt[0] < 150 || w.Prompt[1] > 300 ||
			w.Output[0] < 150 || w.Output[1] > 250 || !w.Window {
			t.Errorf("%s: %+v", name, w)
		}
		want.Workload = got.Workload
		if got.Bands = nil; !reflect.DeepEqual(&got, want) {
			t.Errorf("%s: the profile has %+v, the runs %+v", name, got, want)
		}
	}
	rows, err := PredictHours(t.Context(), sample, tab, HourOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held, all := 0, 0
	for i := range rows {
		p := rows[i].Ran.Base
		for _, b := range p.Intervals.At(rows[i].Ran.Waiting) {
			if m := map[string]Metric{
				"total_throughput": Throughput, "mean_tpot_ms": TPOT, "mean_ttft_ms": TTFTMean,
			}[b.Metric]; m != "" {
				all++
				if x := rows[i].Measured[m] / rows[i].Predicted[m]; x >= b.Most[0] && x <= b.Most[1] {
					held++
				}
			}
		}
	}
	if all < 30 || held*10 < all*8 {
		t.Errorf("%d of %d figures are within their intervals, expected about nine in ten", held, all)
	}
}
