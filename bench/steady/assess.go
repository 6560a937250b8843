package steady

import (
	"fmt"
	"math"

	"lorasim/bench/stats"
)

// The constants of the tests. lab/docs/steady.md has a table of the measured error rates;
// `go test ./bench/steady -run '^$' -bench ErrorRates -benchtime 1x` prints it.
const (
	// batches is the number of batch means.
	batches = 20
	// growthLevel is the probability that a queue at exactly its capacity is called
	// overloaded.
	growthLevel = 0.01
	// A run is too short if the autocorrelation of successive batch means exceeds its limit
	// both with the number of batches and with twice that number. Short correlations exceed
	// only the limit of small batches; chance rarely exceeds both.
	correlated, correlatedHalf = 0.25, 0.45
	// trendLevel is the probability that independent batch means show a trend.
	trendLevel = 0.01
	// leastRelaxations is the smallest length of a steady run, in relaxation times of its
	// queue.
	leastRelaxations = 50
	// leastRequests is the smallest number of requests of a run that can be judged.
	leastRequests = 200
	// leastLatencies and steadyLatencies are the smallest lengths of a run to judge and of a
	// steady run, in latencies of the first requests. So batches are longer than requests.
	leastLatencies, steadyLatencies = 4, 30
	// minGrowth is the smallest growth of the queue of an overloaded run, in requests.
	minGrowth = 5
)

// Assess returns the assessment of the recorded run.
func (r *Recorder) Assess() *Assessment {
	p := r.path()
	a := &Assessment{State: Transient, OfferedRate: p.rate, LastArrival: r.lastArrival}
	a.Needed = r.needed(0)
	if r.requests < leastRequests {
		a.Reason = fmt.Sprintf("too short: %d requests, at least %d are needed", r.requests, leastRequests)
		return a
	}
	if p.burst {
		a.State, a.Reason, a.Needed = Overloaded, "all requests arrive at once", 0
		a.SustainableRate = r.sustainable()
		return a
	}
	if len(p.flight) < 4*batches {
		a.Reason = fmt.Sprintf("too short: all requests arrive within %.3f s", p.length())
		return a
	}
	first := r.firstLatency(p)
	tooShort := func(latencies float64) bool {
		if latencies*first <= p.length() {
			return false
		}
		a.Needed = r.needed(steadyLatencies * first / p.length())
		a.Reason = fmt.Sprintf("too short: all requests arrive within %.1f s, and the first ones take %.1f s",
			p.length(), first)
		return true
	}
	if tooShort(leastLatencies) {
		return a
	}
	warm := p.warmup()
	a.Warmup = float64(warm) * p.width
	_, a.dispersion = p.arrivals(r.slots.slots[warm:len(p.flight)], warm)
	relaxations := p.relaxations(warm)
	a.EffectiveSamples, a.Intervals, a.TooShort, a.Floors = r.means(p, warm)
	if lives, _ := p.lifetimes(r.slots.slots[warm:len(p.flight)]); lives < tailLifetimes {
		a.Tail = twoDigits(min(tailLifetimes/lives, mostLonger) * float64(r.requests))
	}
	if !p.closed && p.growth() {
		a.State, a.Needed = Overloaded, 0
		a.SustainableRate = r.sustainable()
		a.Reason = "the queue grows until the last request arrives"
		a.NoIntervals()
		return a
	}
	a.Needed = r.needed(leastRelaxations / relaxations)
	switch {
	case tooShort(steadyLatencies):
	case depends(p.queue[warm:]):
		a.Reason = "too short: successive parts of the run are correlated"
	case relaxations < leastRelaxations:
		a.Reason = fmt.Sprintf("too short: the run covers %.0f relaxation times of the queue, %d are needed",
			relaxations, leastRelaxations)
	case math.Abs(stats.TrendT(batchMeans(p.flight[warm:], batches))) > stats.TQuantile(1-trendLevel/2, batches-2):
		a.Reason = "the number of requests in flight has a trend"
	default:
		a.State, a.Needed = Steady, 0
	}
	if a.State != Steady {
		a.NoIntervals()
	}
	return a
}

// NoIntervals removes the intervals of a run that is not steady.
func (a *Assessment) NoIntervals() { a.Intervals, a.TooShort, a.Tail = nil, nil, 0 }

const (
	// A run that is too short needs at least lengthen times its requests, and leastNeeded.
	lengthen, leastNeeded = 4, 10_000
	// allowance is for relaxation times and latencies, which short runs underestimate.
	allowance = 2
	// A run at load u needs atLoad / (1-u)² requests, since the relaxation time of a queue grows with 1/(1-u)² in heavy
	// traffic; with bursts, (1 + index of dispersion of the arrivals) / 2 times as many. The constant is
	// measured: of the runs of TestNextDecides (cmd/cli) it decides 19 of 23.
	// nearest is the smallest distance from load 1 that counts.
	atLoad, nearest = 800, 0.05
)

// needed estimates the number of requests of a run that is long enough. factor is the length that the tests ask for,
// as a multiple of the run's; 0: unknown.
func (r *Recorder) needed(factor float64) int64 {
	return twoDigits(max(min(max(lengthen, allowance*factor), mostLonger)*float64(r.requests), leastNeeded))
}

// NeedsAt raises Needed to the number of requests that a run at an arrival rate needs, if the run is transient and the
// sustainable rate is known.
func (a *Assessment) NeedsAt(rate float64) {
	if a.State != Transient || a.SustainableRate == 0 {
		return
	}
	distance := max(math.Abs(1-rate/a.SustainableRate), nearest)
	a.Needed = max(a.Needed, twoDigits(atLoad/(distance*distance)*max(1, (1+a.dispersion)/2)))
}

// twoDigits rounds up to two digits.
func twoDigits(n float64) int64 {
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return int64(math.Ceil(n/unit) * unit)
}

// depends reports whether successive parts of a series are correlated.
func depends(xs []float64) bool {
	return stats.LagOne(batchMeans(xs, batches)) > correlated &&
		stats.LagOne(batchMeans(xs, 2*batches)) > correlatedHalf
}

// relaxations returns the length of the run after step from, in relaxation times of its
// queue. In heavy traffic a queue is a reflected Brownian motion. With drift -m and variance
// v per second its length is exponential with mean v/2m. Its relaxation time is v/m², which
// is four times the variance of the length, divided by v. v is estimated from arrivals minus
// departures over short times.
//
// Source: W. Whitt, "Planning queueing simulations", Management Science 35(11), 1989.
func (p *path) relaxations(from int) float64 {
	_, variance := stats.MeanVariance(p.queue[from:])
	if variance == 0 || p.closed { // a closed loop bounds the queue
		return math.Inf(1)
	}
	moves := 0.0
	for i := from + 1; i < len(p.queue); i++ {
		d := p.flight[i] - p.flight[i-1]
		moves += d * d
	}
	return moves / (4 * variance)
}

// path describes a run over the time in which requests arrive.
type path struct {
	width  float64   // of a step, s
	flight []float64 // requests in flight at the end of each step
	queue  []float64 // requests that wait for their first token at the end of each step
	rate   float64   // arrival rate, requests/s
	period float64   // of the arrival rate, s; 0: it does not repeat
	burst  bool      // all requests arrived at once
	closed bool      // the client limits the requests in flight
}

// path returns the run from time 0 to the last arrival. In a closed loop all requests are
// scheduled at once, so a request arrives when it is sent.
func (r *Recorder) path() *path {
	p := &path{width: r.slots.width, period: r.Period, closed: r.closed()}
	end, arrived := r.lastArrival, func(s *slot) int64 { return s.arrived }
	if p.closed {
		end, arrived = r.lastSent, func(s *slot) int64 { return s.sent }
	}
	p.burst = r.requests > 0 && end < atOnce*r.end
	if end > 0 && !p.burst {
		p.rate = float64(r.requests) / end
	}
	steps := min(int(end*r.slots.inverse), len(r.slots.slots))
	p.flight, p.queue = make([]float64, steps), make([]float64, steps)
	var flight, queue int64
	for i := range steps {
		s := &r.slots.slots[i]
		flight += arrived(s) - s.finished
		queue += arrived(s) - s.begun
		p.flight[i], p.queue[i] = float64(flight), float64(queue)
	}
	return p
}

// atOnce is the largest share of a run in which requests count as arriving at once.
const atOnce = 0.01

// length returns the time in which the requests arrive, s.
func (p *path) length() float64 { return float64(len(p.flight)) * p.width }

// closed reports whether the loop is closed: only the client's limit of requests in flight
// determines when requests are sent.
func (r *Recorder) closed() bool { return r.lastArrival < atOnce*r.end && r.lastSent >= atOnce*r.end }

// firstLatency returns the mean E2E latency of the requests sent in the first twentieth of
// the run, s, before queues can have grown much.
func (r *Recorder) firstLatency(p *path) float64 {
	var first slot
	for i := range max(len(p.flight)/20, 1) {
		first.add(&r.slots.slots[i])
	}
	if first.done == 0 {
		return 0
	}
	return first.e2e / float64(first.done)
}

// warmup returns the number of steps until the requests in flight have settled, by MSER-5,
// but at most a quarter of the run. The rest is then tested, since MSER alone drops whatever
// does not fit and finds a steady part in any run.
func (p *path) warmup() int {
	const group = 5
	groups := batchMeans(p.flight, len(p.flight)/group)
	return min(group*mser(groups, group), len(p.flight)/4)
}

// growth reports whether the queue grew significantly more than a queue at its capacity. At
// capacity, arrivals minus departures of a queue that never empties are a Brownian motion
// without drift. For a queue that empties at times the motion is reflected at 0, and ends
// above x with twice the probability. The motion's variance comes from the increments of
// batches.
func (p *path) growth() bool {
	size := (len(p.queue) - 1) / batches
	start := len(p.queue) - 1 - batches*size
	steps := make([]float64, batches)
	for k := range steps {
		steps[k] = p.queue[start+(k+1)*size] - p.queue[start+k*size]
	}
	grown := p.queue[len(p.queue)-1] - p.queue[start]
	_, variance := stats.MeanVariance(steps)
	limit := stats.TQuantile(1-growthLevel/2, batches-1) * math.Sqrt(variance*batches)
	return grown >= minGrowth && grown > limit
}
