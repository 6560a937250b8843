package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/sim"
	"lorasim/sim/autoscale"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// elasticSpec is a parsed Cluster.Elastic: "min=2,max=8,cold_start=60,rule=reactive,target=6", or
// "max=8,rule=schedule,times=600=8+1800=2". The tag rules names the rules that accept an option.
type elasticSpec struct {
	Min       int     `default:"1" check:">=0 <=100000" unit:"workers" help:"fewest workers"`
	Max       int     `required:"yes" check:">=1 <=100000" unit:"workers" help:"most workers, as in max=8"`
	Start     int     `check:">=1 <=100000" unit:"workers" help:"workers at the start; by default num_workers, else min"`
	ColdStart float64 `key:"cold_start" default:"60" check:">=0 <=1e6" unit:"s" help:"time from the decision to start a worker until it serves"`
	Rule      string  `default:"reactive" check:"oneof reactive forecast known schedule" help:"what decides the number of workers: reactive (as Kubernetes does), forecast, known (the arrivals to come) or schedule"`
	Every     float64 `default:"15" check:">=1 <=1e6" unit:"s" rules:"reactive forecast known" help:"time between decisions"`
	Target    float64 `check:">0 <=1e9" unit:"requests" rules:"reactive forecast known" help:"requests in flight for each worker, as in target=6"`
	Capacity  float64 `check:">0 <=1e9" unit:"req/s" rules:"forecast known" help:"requests/s that a worker serves; default: learned at target"`
	Tolerance float64 `default:"0.1" check:">=0 <=10" rules:"reactive forecast known" help:"relative change of the number of workers that is ignored"`
	Stabilize float64 `default:"300" check:">=0 <=1e6" unit:"s" rules:"reactive forecast known" help:"time for which fewer workers must suffice before a scale-down"`
	Alpha     float64 `default:"0.3" check:">0 <=1" rules:"forecast" help:"weight of the latest rate in the forecast's level"`
	Beta      float64 `default:"0.1" check:">=0 <=1" rules:"forecast" help:"weight of the latest change in the forecast's trend"`
	Gamma     float64 `default:"0.3" check:">=0 <=1" rules:"forecast" help:"weight of the latest value in the forecast's season"`
	Period    float64 `check:">=1 <=1e7" unit:"s" rules:"forecast" help:"length of the season; by default none"`
	Times     resizes `pairs:"= +" rules:"schedule" help:"SECONDS=WORKERS, joined by +, as in times=600=8+1800=2"`
}

// resizes are the times at which the number of workers changes: "600=8+1800=2".
type resizes []sim.Resize

// UnmarshalText implements encoding.TextUnmarshaler.
func (rs *resizes) UnmarshalText(text []byte) error {
	*rs = nil
	for part := range strings.SplitSeq(string(text), "+") {
		at, n, _ := strings.Cut(part, "=")
		var r sim.Resize
		var err, atErr error
		r.At, atErr = strconv.ParseFloat(strings.TrimSpace(at), 64)
		if r.Workers, err = strconv.Atoi(strings.TrimSpace(n)); err != nil || atErr != nil ||
			!(r.At >= 0 && r.At <= 1e7) {
			return fmt.Errorf("%q, expected SECONDS=WORKERS, joined by +", part)
		}
		*rs = append(*rs, r)
	}
	return nil
}

// The rules of elastic clusters.
const (
	reactive = "reactive"
	forecast = "forecast"
	known    = "known"
	schedule = "schedule"
)

// ElasticRules lists the rules of autoscaling. The first, "fixed", is the rule of clusters with min = max.
func ElasticRules() []string { return []string{"fixed", reactive, forecast, known, schedule} }

// ElasticRule returns the rule that a value of Cluster.Elastic selects: one of [ElasticRules], or "" if the value is
// invalid.
func ElasticRule(text string) string {
	switch e, err := parseElastic(text); {
	case err != nil:
		return ""
	case e.Min == e.Max:
		return "fixed"
	default:
		return e.Rule
	}
}

func parseElastic(text string) (*elasticSpec, error) {
	e := &elasticSpec{}
	if _, err := settings.Decode(text, e); err != nil {
		return nil, err
	}
	return e, nil
}

// Check implements settings.Checker.
func (e *elasticSpec) Check(given settings.Given) error {
	for _, f := range settings.Fields[elasticSpec]() {
		rules := strings.Fields(f.Tag.Get("rules"))
		if len(rules) > 0 && given.Has(f.Key) && !slices.Contains(rules, e.Rule) {
			return fmt.Errorf("%s is for the rule %s, not %s", f.Key, strings.Join(rules, " or "), e.Rule)
		}
	}
	switch {
	case e.Min > e.Max:
		return fmt.Errorf("min is %v, above max %v", e.Min, e.Max)
	case e.Start != 0 && (e.Start < e.Min || e.Start > e.Max):
		return fmt.Errorf("start is %v, expected min %v to max %v", e.Start, e.Min, e.Max)
	case e.Rule == schedule && e.Times == nil:
		return errors.New("times are missing, as in times=600=8+1800=2")
	case e.Min == e.Max && e.Times == nil: // there is nothing to decide
	case e.Rule == reactive && e.Target == 0:
		return errors.New("target is missing, the requests in flight for each worker, as in target=6")
	case (e.Rule == forecast || e.Rule == known) && (e.Target == 0) == (e.Capacity == 0):
		return errors.New(
			"expected capacity (requests/s that a worker serves) or target (requests in flight per worker, to learn the capacity)")
	case e.Period != 0 && e.Period < 2*e.Every:
		return fmt.Errorf("period is %v s, expected at least two intervals of %v s", e.Period, e.Every)
	}
	for _, r := range e.Times {
		if r.Workers < e.Min || r.Workers > e.Max {
			return fmt.Errorf("times: %d workers, expected min %v to max %v", r.Workers, e.Min, e.Max)
		}
	}
	return nil
}

// elastic is the cluster's setting, nil where it has none.
func (c *Cluster) elastic() (*elasticSpec, error) {
	e, n := c.Elastic.Value(), c.NumWorkers
	if e != nil && n.Given && (n.Value < e.Min || n.Value > e.Max) {
		return nil, fmt.Errorf("num_workers is %d, expected %v to %v (min and max of elastic)", n.Value, e.Min, e.Max)
	}
	return e, nil
}

// initial is the number of workers at the start.
func (c *Cluster) initial() (int, error) {
	if e, err := c.elastic(); err != nil {
		return 0, err
	} else if e != nil {
		return cmp.Or(e.Start, c.NumWorkers.Value, e.Min), nil
	}
	_, kinds, err := c.workers()
	return len(kinds), err
}

// config is the setting for the simulator, and the source to give it.
func (e *elasticSpec) config(initial int, src trace.Source) (*sim.Elastic, trace.Source) {
	cfg := &sim.Elastic{Initial: initial, Min: e.Min, ColdStart: e.ColdStart, Every: e.Every, Times: e.Times}
	if e.Rule == schedule {
		return cfg, src
	}
	capacity := autoscale.Capacity{PerWorker: e.Capacity, Target: e.Target}
	var need autoscale.Need
	switch e.Rule {
	case reactive:
		need = autoscale.Reactive{Target: e.Target}
	case forecast:
		need = &autoscale.Forecast{Capacity: capacity, Every: e.Every, ColdStart: e.ColdStart,
			Holt: autoscale.Holt{Alpha: e.Alpha, Beta: e.Beta, Gamma: e.Gamma, Period: int(e.Period/e.Every + 0.5)}}
	default:
		ahead := &autoscale.Ahead{Source: src, Every: tick.FromSeconds(e.Every)}
		need, src = &autoscale.Known{Capacity: capacity, Arrivals: ahead, Every: e.Every, ColdStart: e.ColdStart}, ahead
	}
	cfg.Scaler = &autoscale.Autoscaler{Need: need, Tolerance: e.Tolerance, Stabilize: e.Stabilize}
	return cfg, src
}
