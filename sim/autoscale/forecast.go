package autoscale

import (
	"math"

	"lorasim/sim/tick"
	"lorasim/trace"
)

// Capacity is the request rate that a worker serves. It is PerWorker if that is set. Otherwise, it follows from
// Little's law: Target requests in flight, divided by the recent mean time of a request.
type Capacity struct {
	PerWorker float64 // requests/s; 0: from Target and the response times
	Target    float64 // requests in flight
	response  float64 // s; 0: none has ended
}

// learnWeight is the weight of the latest look.
const learnWeight = 0.3

func (c *Capacity) learn(l Look) {
	switch {
	case l.Ended == 0:
	case c.response == 0:
		c.response = l.Response
	default:
		c.response += learnWeight * (l.Response - c.response)
	}
}

// workers returns the number of workers for a rate in requests/s; NaN: unknown.
func (c *Capacity) workers(rate float64) float64 {
	switch {
	case c.PerWorker > 0:
		return rate / c.PerWorker
	case c.response == 0:
		return math.NaN()
	}
	return rate * c.response / c.Target
}

// Forecast needs workers for the largest rate that [Holt] predicts between now and ColdStart plus one interval. A
// worker that leaves now is missing at once, and a worker that starts now helps only after its cold start.
type Forecast struct {
	Capacity
	Holt
	Every, ColdStart float64 // interval between looks, cold start of a worker, s
}

// Need implements Need.
func (f *Forecast) Need(l Look) float64 {
	f.learn(l)
	f.Add(float64(l.Arrived))
	most := 0.0
	for k := range lead(f.Every, f.ColdStart) {
		most = max(most, f.Predict(k+1))
	}
	return f.workers(most / f.Every)
}

// lead is how many intervals to plan for.
func lead(every, coldStart float64) int { return int(math.Ceil(coldStart/every)) + 1 }

// Holt forecasts a series by its level and linear trend (C. Holt, 1957). With a Period it adds a seasonal term (P.
// Winters, 1960), as in Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 8.2 and 8.3. The first period
// sets the initial level and season, with trend 0.
type Holt struct {
	Alpha, Beta, Gamma float64 // weights of the latest value for level, trend and season, 0 to 1
	Period             int     // length of a season, in values; 0 or 1: no season

	n            int
	level, trend float64
	season       []float64 // of the values n mod Period
	first        []float64 // the first period
}

// Add adds the next value of the series.
func (h *Holt) Add(x float64) {
	season := 0.0
	if h.season != nil {
		season = h.season[h.n%h.Period]
	}
	if h.n == 0 {
		h.level = x
	} else {
		before := h.level
		h.level = h.Alpha*(x-season) + (1-h.Alpha)*(h.level+h.trend)
		h.trend = h.Beta*(h.level-before) + (1-h.Beta)*h.trend
	}
	if h.season != nil {
		h.season[h.n%h.Period] += h.Gamma * (x - h.level - season)
	} else if h.Period > 1 {
		if h.first = append(h.first, x); len(h.first) == h.Period {
			h.begin()
		}
	}
	h.n++
}

// begin sets level and season from the first period.
func (h *Holt) begin() {
	h.level, h.trend, h.season = 0, 0, h.first
	for _, x := range h.season {
		h.level += x / float64(h.Period)
	}
	for i := range h.season {
		h.season[i] -= h.level
	}
}

// Predict returns the forecast of the k-th value from now, at least 0; k >= 1.
func (h *Holt) Predict(k int) float64 {
	x := h.level + float64(k)*h.trend
	if h.season != nil {
		x += h.season[(h.n+k-1)%h.Period]
	}
	return max(x, 0)
}

// Known is [Forecast] with the actual future arrivals in place of a forecast. It bounds the gain of any forecast. A
// rate is the mean over knownWindow intervals around a time.
type Known struct {
	Capacity
	Arrivals         *Ahead  // source of the run
	Every, ColdStart float64 // interval between looks, cold start of a worker, s
	looks            int
}

const knownWindow = 4

// Need implements Need.
func (k *Known) Need(l Look) float64 {
	k.learn(l)
	k.looks++
	most := 0.0
	for i := range lead(k.Every, k.ColdStart) {
		sum, n := 0.0, 0
		for j := k.looks + i - knownWindow/2; j < k.looks+i+knownWindow/2; j++ {
			if j >= 0 {
				sum += float64(k.Arrivals.Count(j))
				n++
			}
		}
		most = max(most, sum/float64(n))
	}
	return k.workers(most / k.Every)
}

// Ahead is a source that counts arrivals before it returns them. It keeps the requests that it has read ahead.
type Ahead struct {
	trace.Source
	Every  tick.Ticks // length of an interval
	read   []trace.Request
	counts []int64 // arrivals by interval
	err    error   // of the source, once read is empty
}

// Next implements trace.Source.
func (a *Ahead) Next() (trace.Request, error) {
	if len(a.read) == 0 {
		a.fetch()
	}
	if len(a.read) == 0 {
		return trace.Request{}, a.err
	}
	r := a.read[0]
	a.read = a.read[1:]
	return r, nil
}

// fetch reads a request ahead.
func (a *Ahead) fetch() {
	if a.err != nil {
		return
	}
	r, err := a.Source.Next()
	if err != nil {
		a.err = err
		return
	}
	a.read = append(a.read, r)
	i := 0
	if r.Arrival > 0 && r.Arrival < tick.Max.Seconds() { // else the run will refuse it
		i = int(tick.FromSeconds(r.Arrival) / a.Every)
	}
	for len(a.counts) <= i {
		a.counts = append(a.counts, 0)
	}
	a.counts[i]++
}

// Count returns the number of arrivals in an interval. Interval 0 begins at time 0.
func (a *Ahead) Count(interval int) int64 {
	for len(a.counts) <= interval+1 && a.err == nil { // what follows shows that it is complete
		a.fetch()
	}
	if interval >= len(a.counts) {
		return 0
	}
	return a.counts[interval]
}
