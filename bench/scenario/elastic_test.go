package scenario

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/sim"
	"lorasim/sim/autoscale"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/settings"
)

func TestParseElastic(t *testing.T) {
	src := (&trace.Workload{}).Source()
	ahead := &autoscale.Ahead{Source: src, Every: 20 * tick.Second}
	for text, want := range map[string]sim.Elastic{
		"max=8,target=6": {Min: 1, ColdStart: 60, Every: 15,
			Scaler: &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 6}, Tolerance: 0.1, Stabilize: 300}},
		" min=2 , max = 8,rule=reactive,target=6,cold_start=30,every=5,tolerance=0,stabilize=60": {Min: 2,
			ColdStart: 30, Every: 5,
			Scaler: &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 6}, Stabilize: 60}},
		"max=8,rule=forecast,capacity=2.5,period=3600,alpha=0.2,beta=0,gamma=0.1": {Min: 1, ColdStart: 60, Every: 15,
			Scaler: &autoscale.Autoscaler{Tolerance: 0.1, Stabilize: 300,
				Need: &autoscale.Forecast{Capacity: autoscale.Capacity{PerWorker: 2.5},
					Holt: autoscale.Holt{Alpha: 0.2, Gamma: 0.1, Period: 240}, Every: 15, ColdStart: 60}}},
		"max=8,rule=known,target=6,every=20": {Min: 1, ColdStart: 60, Every: 20,
			Scaler: &autoscale.Autoscaler{Tolerance: 0.1, Stabilize: 300,
				Need: &autoscale.Known{Capacity: autoscale.Capacity{Target: 6}, Arrivals: ahead, Every: 20,
					ColdStart: 60}}},
		"min=2,max=8,rule=schedule,times=600=8+1800=2": {Min: 2, ColdStart: 60, Every: 15,
			Times: []sim.Resize{{At: 600, Workers: 8}, {At: 1800, Workers: 2}}},
	} {
		want.Initial = 3
		e, err := parseElastic(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, _ := e.config(3, src); !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, expected %+v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                                       "max is missing",
		"min=2,target=6":                         "max is missing (most workers, as in max=8), expected a whole number from 1 to 100000",
		"min=9,max=8,target=6":                   "min is 9, above max 8",
		"min=1.5,max=8,target=6":                 `min: "1.5" is not a whole number from 0 to 100000`,
		"max=8":                                  "target is missing, the requests in flight for each worker, as in target=6",
		"max=8,rule=forecast":                    "expected capacity (",
		"max=8,rule=known,target=1,capacity=1":   "expected capacity (",
		"max=8,rule=schedule":                    "times are missing, as in times=600=8+1800=2",
		"max=8,rule=reactiv,target=6":            `rule: unknown value "reactiv", did you mean "reactive"?`,
		"max=8,start=9,target=6":                 "start is 9, expected min 1 to max 8",
		"max=8,targt=6":                          `unknown option "targt", did you mean "target"?`,
		"max=x,target=6":                         `max: "x" is not a whole number from 1 to 100000`,
		"max=8,target=0":                         `target: "0" is not a number > 0`,
		"max=8,max=9,target=6":                   "max is given twice",
		"max=8,target=6,alpha=0.1":               "alpha is for the rule forecast, not reactive",
		"max=8,target=6,capacity=1":              "capacity is for the rule forecast or known, not reactive",
		"max=8,target=6,times=1=1":               "times is for the rule schedule, not reactive",
		"max=8,rule=schedule,times=1":            `times: "1", expected SECONDS=WORKERS, joined by +`,
		"max=8,rule=schedule,times=-1=2":         `times: "-1=2", expected SECONDS=WORKERS`,
		"max=8,rule=schedule,times=1=9":          "times: 9 workers, expected min 1 to max 8",
		"max=8,rule=forecast,target=6,period=20": "period is 20 s, expected at least two intervals of 15 s",
	} {
		if _, err := parseElastic(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
}

func TestElasticTags(t *testing.T) {
	if err := settings.FormOf[elasticSpec]()[0].Verify(); err != nil {
		t.Error(err)
	}
}

func FuzzParseElastic(f *testing.F) {
	f.Add("min=2,max=8,cold_start=60,rule=reactive,target=6")
	f.Add("max=3,rule=schedule,times=600=3+1800=1")
	f.Add("max=3,rule=forecast,capacity=1,period=3600")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseElastic(text)
		if err != nil {
			return
		}
		cfg, src := e.config(e.Min, (&trace.Workload{}).Source())
		if cfg.Min < 0 || cfg.Min > e.Max || src == nil || (cfg.Scaler == nil) == (cfg.Times == nil) ||
			!(cfg.Every >= 1) || !(cfg.ColdStart >= 0) || math.IsInf(cfg.ColdStart, 0) {
			t.Errorf("%q: %+v", text, cfg)
		}
	})
}

// The number of workers is that at the start.
func TestElasticWorkers(t *testing.T) {
	const one = "llama-2-7b-rtx-4090-sglang-0.5"
	for _, c := range []struct {
		num           int
		profile       string
		most, initial int
		err           string
	}{
		{0, one, 8, 2, ""}, {2, one, 8, 2, ""}, {5, one, 8, 5, ""},
		{8, one + "*8", 8, 8, ""},
		{9, one, 0, 0, "num_workers is 9, expected 2 to 8 (min and max of elastic)"},
		{1, one, 0, 0, "num_workers is 1, expected 2 to 8 (min and max of elastic)"},
		{3, one + "*3", 0, 0, "elastic has max=8, but profile " + one + "*3 lists 3 workers"},
	} {
		s := Default()
		s.Cluster.NumWorkers = settings.Optional[int]{Value: c.num, Given: c.num > 0}
		testutil.Set(t, &s, "profile", c.profile, "elastic", "min=2,max=8,target=6")
		ps, err := s.Profiles(t.Context())
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		cfg, err2 := s.config(t.Context(), &Input{Source: (&trace.Workload{}).Source()}, RunOptions{})
		if err != nil || err2 != nil || len(ps) != c.most || len(cfg.Workers) != c.most ||
			cfg.Elastic.Initial != c.initial || s.Meta("").Config["cluster.num_workers"] != c.initial {
			t.Errorf("%+v: %d workers, %+v, %v, %v", c, len(ps), cfg.Elastic, err, err2)
		}
	}
}

func TestElasticStart(t *testing.T) {
	c := Cluster{NumWorkers: settings.Some(3), Profile: Default().Cluster.Profile,
		Elastic: as[elasticText]("min=2,max=8,start=5,target=6")}
	if n, err := c.initial(); n != 5 || err != nil {
		t.Errorf("%d workers at the start, %v; expected 5", n, err)
	}
	c.NumWorkers, c.Elastic = settings.Optional[int]{}, as[elasticText]("min=0,max=8,target=5")
	if n, err := c.initial(); n != 0 || err != nil {
		t.Errorf("%d workers at the start, %v; expected none", n, err)
	}
	c.FixWorkers(3)
	if n, err := c.initial(); n != 3 || err != nil {
		t.Errorf("%d workers, %v; expected 3", n, err)
	}
}

// Two workers of two GPUs each, of which one comes after 100 s of 200.
func TestElasticFigures(t *testing.T) {
	s := Default()
	testutil.Set(t, &s, "profile", "analytic:llama-2-7b,h100,tp=2")
	testutil.Set(t, &s, "elastic", "max=2,rule=schedule,times=100=2,cold_start=10")
	testutil.Set(t, &s, "policy", "least-loaded")
	s.Client.NoWarmup = true
	wl := &trace.Workload{Adapters: trace.Names(1, []int{8})}
	for i := range 201 {
		wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i), Prompt: 1, Output: 1})
	}
	res, err := s.Simulate(context.Background(), RunOptions{Input: &Input{Source: wl.Source()}})
	if err != nil {
		t.Fatal(err)
	}
	end, _ := res.Metrics.Get(result.Duration)
	e := *res.Extra.Elastic
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s %v, expected %v", name, got, want)
		}
	}
	near("worker-hours", e.WorkerHours, (end+end-100)/3600)
	near("GPU-hours", e.GPUHours, 2*(end+end-100)/3600)
	near("mean", e.Mean, (end+end-100)/end)
	if e.Min != 1 || e.Max != 2 || e.Ups != 1 || e.Downs != 0 || end < 200 || end > 201 {
		t.Errorf("%+v, %v s", e, end)
	}
	if w := res.Extra.Workers; len(w) != 2 || w[1].Requests < 10 {
		t.Errorf("workers %+v, expected the second to serve some", w)
	} else {
		near("time on of worker 1", w[1].On, end-100)
	}
}
