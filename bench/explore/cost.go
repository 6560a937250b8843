package explore

import (
	"lorasim/bench/result"
)

// Cost is the cost of a run, in the unit of the price.
type Cost struct {
	Hour     float64  `json:"hour"`               // cost per hour of all workers, the mean over the run
	Thousand *float64 `json:"thousand,omitempty"` // cost of 1000 successful requests, at the run's throughput
	Million  *float64 `json:"million,omitempty"`  // cost of a million generated tokens
}

// cost is what a run costs; nil without a price. Workers that join and leave cost for the time that they are on.
func (s *study) cost(res *result.Result) (*Cost, error) {
	if s.plan.prices == nil {
		return nil, nil
	}
	hour, err := s.plan.prices.hour(s.workers)
	if err != nil {
		return nil, err
	}
	if e := res.Extra.Elastic; e != nil {
		hour *= e.Mean / float64(len(s.workers))
	}
	c := &Cost{Hour: hour}
	per := func(m result.ID, count float64) *float64 {
		rate, ok := res.Metrics.Get(m)
		if !ok || rate == 0 {
			return nil
		}
		return new(hour / 3600 / rate * count)
	}
	c.Thousand, c.Million = per(result.RequestThroughput, 1e3), per(result.OutputThroughput, 1e6)
	return c, nil
}
