package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
	"lorasim/internal/tick"
	"lorasim/sim"
	"lorasim/sim/autoscale"
	"lorasim/trace"
)

// elasticSpec is a parsed Cluster.Elastic.
type elasticSpec struct {
	rule                       string
	min, max, start            float64 // workers; start 0: as num_workers says, else min
	coldStart, every           float64 // s
	tolerance, stabilize       float64
	target, capacity           float64
	alpha, beta, gamma, period float64
	times                      []sim.Resize
}

// The rules of elastic clusters.
const (
	reactive = "reactive"
	forecast = "forecast"
	known    = "known"
	schedule = "schedule"
)

var elasticRules = []string{reactive, forecast, known, schedule}

// ElasticRules lists the rules, after clusters whose limits leave no choice.
func ElasticRules() []string { return append([]string{"fixed"}, elasticRules...) }

// ElasticRule is the rule of a setting of Cluster.Elastic.
func ElasticRule(text string) string {
	switch e, err := parseElastic(text); {
	case err != nil:
		return ""
	case e.min == e.max:
		return "fixed"
	default:
		return e.rule
	}
}

// elasticOption is a number of the spec, with the rules that know it.
type elasticOption struct {
	name  string
	at    *float64
	in    string // bounds
	rules string
}

func (e *elasticSpec) options() []elasticOption {
	const all, looks, rates = "reactive forecast known schedule", "reactive forecast known", "forecast known"
	return []elasticOption{
		{"min", &e.min, ">=0 <=100000", all}, {"max", &e.max, ">=1 <=100000", all},
		{"start", &e.start, ">=1 <=100000", all},
		{"cold_start", &e.coldStart, ">=0 <=1e6", all}, {"every", &e.every, ">=1 <=1e6", looks},
		{"target", &e.target, ">0 <=1e9", looks}, {"capacity", &e.capacity, ">0 <=1e9", rates},
		{"tolerance", &e.tolerance, ">=0 <=10", looks}, {"stabilize", &e.stabilize, ">=0 <=1e6", looks},
		{"alpha", &e.alpha, ">0 <=1", forecast}, {"beta", &e.beta, ">=0 <=1", forecast},
		{"gamma", &e.gamma, ">=0 <=1", forecast}, {"period", &e.period, ">=1 <=1e7", forecast},
	}
}

// parseElastic reads "min=2,max=8,cold_start=60,rule=reactive,target=6", or
// "max=8,rule=schedule,times=600=8+1800=2".
func parseElastic(text string) (*elasticSpec, error) {
	e := &elasticSpec{rule: reactive, min: 1, coldStart: 60, every: 15, tolerance: 0.1, stabilize: 300, alpha: 0.3,
		beta: 0.1, gamma: 0.3}
	options, names := e.options(), []string{"rule", "times"}
	for _, o := range options {
		names = append(names, o.name)
	}
	given, err := suggest.Options("option", text, names, func(i int, value string) (err error) {
		value = strings.TrimSpace(value)
		switch i {
		case 0:
			e.rule = value
			return suggest.Among("rule", value, elasticRules)
		case 1:
			e.times, err = parseTimes(value)
			return err
		}
		o := options[i-2]
		b := bounds.MustParse(o.in)
		if *o.at, err = strconv.ParseFloat(value, 64); err != nil || !b.Has(*o.at) {
			return fmt.Errorf("%s is %q, expected a number %s", o.name, value, b)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, e.check(given)
}

// parseTimes reads "600=8+1800=2".
func parseTimes(text string) (times []sim.Resize, err error) {
	for part := range strings.SplitSeq(text, "+") {
		at, n, _ := strings.Cut(part, "=")
		var r sim.Resize
		var atErr error
		r.At, atErr = strconv.ParseFloat(strings.TrimSpace(at), 64)
		if r.Workers, err = strconv.Atoi(strings.TrimSpace(n)); err != nil || atErr != nil ||
			!(r.At >= 0 && r.At <= 1e7) {
			return nil, fmt.Errorf("times: %q, expected SECONDS=WORKERS, joined by +", part)
		}
		times = append(times, r)
	}
	return times, nil
}

// check says what is wrong with the spec as a whole.
func (e *elasticSpec) check(given map[string]bool) error {
	for _, o := range e.options() {
		if given[o.name] && !slices.Contains(strings.Fields(o.rules), e.rule) {
			return fmt.Errorf("%s is for the rules %s, not %s", o.name, strings.Join(strings.Fields(o.rules), ", "),
				e.rule)
		}
	}
	switch {
	case !given["max"]:
		return errors.New("max is missing, the most workers, as in max=8")
	case e.min != float64(int(e.min)) || e.max != float64(int(e.max)) || e.start != float64(int(e.start)):
		return fmt.Errorf("min, max and start are %v, %v and %v, expected whole numbers", e.min, e.max, e.start)
	case e.min > e.max:
		return fmt.Errorf("min is %v, above max %v", e.min, e.max)
	case e.start != 0 && (e.start < e.min || e.start > e.max):
		return fmt.Errorf("start is %v, expected min %v to max %v", e.start, e.min, e.max)
	case e.rule == schedule && e.times == nil:
		return errors.New("times are missing, as in times=600=8+1800=2")
	case e.rule != schedule && e.times != nil:
		return fmt.Errorf("times is for the rule schedule, not %s", e.rule)
	case e.min == e.max && e.times == nil: // there is nothing to decide
	case e.rule == reactive && e.target == 0:
		return errors.New("target is missing, the requests in flight for each worker, as in target=6")
	case (e.rule == forecast || e.rule == known) && (e.target == 0) == (e.capacity == 0):
		return errors.New("expected either capacity, the requests/s that a worker serves, or target, the requests in flight to learn it by")
	case e.period != 0 && e.period < 2*e.every:
		return fmt.Errorf("period is %v s, expected at least two intervals of %v s", e.period, e.every)
	}
	for _, r := range e.times {
		if float64(r.Workers) < e.min || float64(r.Workers) > e.max {
			return fmt.Errorf("times: %d workers, expected min %v to max %v", r.Workers, e.min, e.max)
		}
	}
	return nil
}

// elastic is the cluster's setting, nil where it has none.
func (c *Cluster) elastic() (*elasticSpec, error) {
	if c.Elastic == "" {
		return nil, nil
	}
	e, err := parseElastic(c.Elastic)
	if err != nil {
		return nil, fmt.Errorf("elastic: %w", err)
	}
	if n := float64(c.NumWorkers); n != 0 && (n < e.min || n > e.max) {
		return nil, fmt.Errorf("num_workers is %d, expected %v to %v, as elastic says", c.NumWorkers, e.min, e.max)
	}
	return e, nil
}

// initial is the number of workers at the start.
func (c *Cluster) initial() (int, error) {
	if e, err := c.elastic(); err != nil {
		return 0, err
	} else if e != nil {
		return cmp.Or(int(e.start), c.NumWorkers, int(e.min)), nil
	}
	_, kinds, err := c.workers()
	return len(kinds), err
}

// config is the setting for the simulator, and the source to give it.
func (e *elasticSpec) config(initial int, src trace.Source) (*sim.Elastic, trace.Source) {
	cfg := &sim.Elastic{Initial: initial, Min: int(e.min), ColdStart: e.coldStart, Every: e.every, Times: e.times}
	if e.rule == schedule {
		return cfg, src
	}
	capacity := autoscale.Capacity{PerWorker: e.capacity, Target: e.target}
	var need autoscale.Need
	switch e.rule {
	case reactive:
		need = autoscale.Reactive{Target: e.target}
	case forecast:
		need = &autoscale.Forecast{Capacity: capacity, Every: e.every, ColdStart: e.coldStart,
			Holt: autoscale.Holt{Alpha: e.alpha, Beta: e.beta, Gamma: e.gamma, Period: int(e.period/e.every + 0.5)}}
	default:
		ahead := &autoscale.Ahead{Source: src, Every: tick.FromSeconds(e.every)}
		need, src = &autoscale.Known{Capacity: capacity, Arrivals: ahead, Every: e.every, ColdStart: e.coldStart}, ahead
	}
	cfg.Scaler = &autoscale.Autoscaler{Need: need, Tolerance: e.tolerance, Stabilize: e.stabilize}
	return cfg, src
}
