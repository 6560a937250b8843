package hour

import (
	"context"
	"fmt"
	"math"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
	"lorasim/sim/record"
)

// A Row is one figure, measured and predicted.
type Row struct {
	Metric   string  `json:"metric"`
	Measured float64 `json:"measured"`
	Recorded float64 `json:"predicted"`           // requests go to the workers that served them
	Routed   float64 `json:"predicted_by_policy"` // requests go where the policy sends them
}

// Errors are the relative errors of the two predictions.
func (r *Row) Errors() (recorded, routed float64) {
	return r.Recorded/r.Measured - 1, r.Routed/r.Measured - 1
}

// A Minute is a minute of the hour, in means over the requests that arrive in it; ms.
type Minute struct {
	Start    float64 `json:"start_s"`
	Requests int     `json:"requests"`
	TTFT     Row     `json:"mean_ttft_ms"`
	E2E      Row     `json:"mean_e2e_ms"`
	InFlight Row     `json:"mean_in_flight"` // requests of all workers, over the minute
}

// A Load is the requests that a worker served.
type Load struct {
	Worker   string  `json:"worker"`
	Requests int     `json:"requests"`
	Routed   int     `json:"requests_by_policy"`
	Busy     float64 `json:"mean_in_flight"`
	BusyAs   float64 `json:"mean_in_flight_predicted"`
}

// A Proof compares the second half of the hour with its prediction.
type Proof struct {
	Requests int      `json:"requests"`
	Rows     []Row    `json:"rows"`
	Minutes  []Minute `json:"minutes"` // of the whole hour
	Loads    []Load   `json:"loads"`   // in the second half
	// Engines is the mean number of running and waiting requests that the engines state; nil: unknown.
	Engines *float64 `json:"mean_in_flight_of_engines,omitempty"`
	Flight  Row      `json:"mean_in_flight"` // of the whole hour
}

// proven are the figures of a proof. The first ones decide.
var proven = []struct {
	metric measured.Metric
	name   string
}{
	{measured.TTFTMean, "mean TTFT"}, {measured.E2EMean, "mean E2E"}, {measured.TTFTMedian, "median TTFT"},
	{measured.TTFTP90, "P90 TTFT"}, {measured.TTFTP99, "P99 TTFT"}, {measured.E2EP90, "P90 E2E"},
	{measured.E2EP99, "P99 E2E"}, {measured.TPOTMean, "mean TPOT"},
}

// deciding is the number of figures that decide.
const deciding = 2

// prove predicts the hour, and compares the second half with the measured one.
func (s *hourStudy) prove(ctx context.Context, a *Answer) error {
	runs := make([][]record.Request, 2)
	err := parallel.Do(ctx, 2, func(i int) (err error) {
		route := s.recorded
		if i == 1 {
			route = nil
		}
		runs[i], err = s.base.run(ctx, &s.workload, route)
		return err
	}, s.phase("predicting"))
	if err != nil {
		return err
	}
	n := s.half()
	p := &a.Proof
	p.Requests = len(s.Requests) - n
	figures := func(rs []record.Request) measured.Values { return measured.Figures(rs[n:], s.Requests[n:]) }
	seen, recorded, routed := figures(s.Requests), figures(runs[0]), figures(runs[1])
	for i, m := range proven {
		if s.Drawn && i >= deciding {
			break
		}
		if x, ok := seen[m.metric]; ok {
			p.Rows = append(p.Rows, Row{m.name, x, recorded[m.metric], routed[m.metric]})
		}
	}
	p.Minutes = s.minutes(runs)
	p.Flight.Metric = "mean in flight"
	for _, m := range p.Minutes {
		for v := range 3 {
			*p.Flight.at(v) += *m.InFlight.at(v) / float64(len(p.Minutes))
		}
	}
	if f := s.opt.Facts; f != nil && !math.IsNaN(f.InFlight) {
		p.Engines = &f.InFlight
	}
	p.Loads = s.loads(runs, n)
	s.judge(a, runs)
	return nil
}

// judge fills Refused.
func (s *hourStudy) judge(a *Answer, runs [][]record.Request) {
	refuse := func(text string, args ...any) { a.Refused = append(a.Refused, fmt.Sprintf(text, args...)) }
	left := 0
	for _, l := range s.Left {
		if !l.Client {
			left += l.Requests
		}
	}
	if float64(left) > mostLeft*float64(s.Asked) {
		refuse("%d of %d requests got no whole reply%s", left, s.Asked, s.leftText())
	}
	for i, rs := range runs {
		lost := 0
		for k := range rs {
			if rs[k].Status != record.OK {
				lost++
			}
		}
		if lost > 0 {
			refuse("%d requests that got a reply get none in the simulation (%s)", lost,
				[]string{"as recorded", "by the policy"}[i])
		}
	}
	wrong := false
	for _, r := range a.Proof.Rows {
		if recorded, _ := r.Errors(); isProven(r.Metric) && !(math.Abs(recorded) <= s.opt.MaxError) {
			wrong = true
			refuse("%s of the second half is %+.0f %% off (limit: %s)", r.Metric, 100*recorded,
				format.Percent(s.opt.MaxError, 0))
		}
	}
	if errs := shareErrors(s.shares[1], runs[0][s.half():]); len(errs) > 0 {
		worst := 0
		for i, e := range errs {
			if math.Abs(e) > math.Abs(errs[worst]) {
				worst = i
			}
		}
		if x := s.shares[1][worst]; !(math.Abs(errs[worst]) <= s.opt.MaxError) {
			refuse("%s of the requests of the second half have a TTFT of at most %s, predicted are %s (limit: %s off)",
				format.Percent(x.of, 0), result.Latency(1000*x.ttft), format.Percent(x.of+errs[worst], 0),
				format.Percent(s.opt.MaxError, 0))
		}
	}
	a.Refused = append(a.Refused, s.strangeWorkers(runs[0])...)
	if len(a.Refused) > 0 {
		if p := s.opt.Profile; p != nil && a.missed > mostMissed {
			refuse("the fit misses the first half, too, by a factor of %s in the mean: profile %s may not be that of your "+
				"model and GPU; without --profile, the embedded ones are tried", format.Digits(math.Exp(a.missed)),
				p.Name)
		}
		return
	}
	for _, r := range a.Proof.Rows {
		if _, routed := r.Errors(); isProven(r.Metric) && !wrong && !(math.Abs(routed) <= s.opt.MaxError) {
			refuse("with policy %s, %s of the second half is %+.0f %% off (limit: %s), though requests that go as "+
				"recorded are predicted well: state the policy of the fleet with --policy", a.Policy, r.Metric,
				100*routed, format.Percent(s.opt.MaxError, 0))
		}
	}
}

func isProven(metric string) bool { return metric == proven[0].name || metric == proven[1].name }

// mostMissed is the mean deviation of the figures of the first half, in logarithms, beyond which a fit has failed.
const mostMissed = 0.4

// Limits of the pace of a worker in a part of the hour: measured over predicted.
const (
	parts     = 12   // of the hour: 5 minutes
	leastPart = 20   // requests
	mostPace  = 1.25 // time per output token
	mostE2E   = 1.6  // E2E latency, which includes queues
)

// strangeWorkers finds workers that were much slower or faster than predicted in a part of the hour, in which requests
// go to the workers that served them: a throttled GPU, a noisy neighbor, another load.
func (s *hourStudy) strangeWorkers(predicted []record.Request) (list []string) {
	type sums struct {
		n                int
		e2e, e2eAs       float64
		decode, decodeAs float64
	}
	length := s.length()/parts + 1e-9
	cells := make([][parts]sums, len(s.Workers))
	for i := range s.Requests {
		r, q := &s.Requests[i], &predicted[i]
		c := &cells[r.WorkerLast][int((r.Arrival-s.Requests[0].Arrival)/length)]
		c.n++
		c.e2e, c.e2eAs = c.e2e+r.E2E(), c.e2eAs+q.E2E()
		if measured.Streamed(r) {
			c.decode, c.decodeAs = c.decode+r.Finish-r.FirstToken, c.decodeAs+q.Finish-q.FirstToken
		}
	}
	for w := range cells {
		from, worst := -1, 1.0
		what := ""
		end := func(k int) {
			if from >= 0 {
				list = append(list, fmt.Sprintf("worker %s: %s was %s times the prediction from %s to %s", s.Workers[w],
					what, format.Digits(worst), s.clock(float64(from)*length), s.clock(float64(k)*length)))
			}
			from, worst = -1, 1
		}
		for k := range cells[w] {
			c := &cells[w][k]
			pace, e2e := 1.0, 1.0
			if c.n >= leastPart {
				e2e = c.e2e / c.e2eAs
				if c.decodeAs > 0 {
					pace = c.decode / c.decodeAs
				}
			}
			off, of := e2e, "E2E latency"
			strange := beyond(e2e, mostE2E)
			if beyond(pace, mostPace) {
				off, of, strange = pace, "time per output token", true
			}
			if !strange {
				end(k)
				continue
			}
			if from < 0 {
				from = k
			}
			if math.Abs(math.Log(off)) > math.Abs(math.Log(worst)) {
				worst, what = off, of
			}
		}
		end(parts)
	}
	return list
}

// beyond reports whether a ratio is above limit or below 1/limit.
func beyond(ratio, limit float64) bool { return !(ratio <= limit && ratio >= 1/limit) }

// clock is the time of day at s seconds.
func (h *Hour) clock(s float64) string { return h.at(s).Format("15:04:05") }

// minutes compares the minutes of the hour.
func (s *hourStudy) minutes(runs [][]record.Request) (list []Minute) {
	const minute = 60.0
	first := s.Requests[0].Arrival
	n := int(s.length()/minute) + 1
	list = make([]Minute, n)
	streamed := make([]int, n)
	for i := range list {
		list[i].Start = float64(i) * minute
	}
	for i := range s.Requests {
		rows := [3]*record.Request{&s.Requests[i], &runs[0][i], &runs[1][i]}
		k := int((rows[0].Arrival - first) / minute)
		m := &list[k]
		m.Requests++
		stream := measured.Streamed(rows[0])
		if stream {
			streamed[k]++
		}
		for v, r := range rows {
			*m.E2E.at(v) += 1000 * r.E2E()
			if stream {
				*m.TTFT.at(v) += 1000 * r.TTFT()
			}
			for j := k; j < n && first+float64(j)*minute < r.Finish; j++ {
				from, to := first+float64(j)*minute, first+float64(j+1)*minute
				*list[j].InFlight.at(v) += (min(to, r.Finish) - max(from, r.Sent)) / minute
			}
		}
	}
	for k := range list {
		for v := range 3 {
			*list[k].E2E.at(v) /= float64(max(list[k].Requests, 1))
			*list[k].TTFT.at(v) /= float64(max(streamed[k], 1))
		}
	}
	return list
}

// at returns a value by its number: measured, predicted as recorded, predicted by the policy.
func (r *Row) at(i int) *float64 { return [3]*float64{&r.Measured, &r.Recorded, &r.Routed}[i] }

// loads counts the requests of the workers from request n on.
func (s *hourStudy) loads(runs [][]record.Request, n int) []Load {
	list := make([]Load, max(len(s.Workers), s.base.workers)) // metrics may have workers that served no request
	span := s.Requests[len(s.Requests)-1].Arrival - s.Requests[n].Arrival
	for i := range list {
		if list[i].Worker = fmt.Sprintf("worker %d, without requests", i); i < len(s.Workers) {
			list[i].Worker = s.Workers[i]
		}
	}
	for i := n; i < len(s.Requests); i++ {
		r, q := &s.Requests[i], &runs[1][i]
		list[r.WorkerLast].Requests++
		list[r.WorkerLast].Busy += r.E2E() / span
		if q.WorkerLast >= 0 {
			list[q.WorkerLast].Routed++
			list[q.WorkerLast].BusyAs += q.E2E() / span
		}
	}
	return list
}
