package sim

import (
	"slices"

	"pgregory.net/rapid"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Joining and leaving in the reference engine: times alone, no scaler.

type refPower struct {
	power []refLife
	cold  tick.Ticks
	sizes []Resize
	held  []*refRequest // while no worker is on
}

type refLife struct {
	state record.Power
	born  tick.Ticks
	ready tick.Ticks // when its start will be over
	on    [][2]tick.Ticks
}

// genElastic draws a cluster whose size changes a few times.
func genElastic(t *rapid.T, n int) *Elastic {
	e := &Elastic{Min: rapid.IntRange(0, n).Draw(t, "min"),
		ColdStart: rapid.SampledFrom([]float64{0, 0.0137, 0.3, 5}).Draw(t, "cold_start")}
	e.Initial = rapid.IntRange(e.Min, n).Draw(t, "initial")
	at := 0.0
	for range rapid.IntRange(1, 8).Draw(t, "resizes") {
		at += rapid.SampledFrom([]float64{0, 0.0137, 0.1, 0.25, 1}).Draw(t, "later")
		e.Times = append(e.Times, Resize{At: at, Workers: rapid.IntRange(e.Min, n).Draw(t, "size")})
	}
	return e
}

func (s *reference) initPower(n int, e *Elastic) {
	s.power = make([]refLife, n)
	if e == nil {
		return
	}
	s.cold, s.sizes = tick.FromSeconds(e.ColdStart), slices.Clone(e.Times)
	for i := e.Initial; i < n; i++ {
		s.power[i].state = record.Off
	}
}

// noneOn keeps a request for later while no worker is on, or rejects it where none will be.
func (s *reference) noneOn(r *refRequest) bool {
	in := func(state record.Power) bool {
		return slices.ContainsFunc(s.power, func(p refLife) bool { return p.state == state })
	}
	switch {
	case in(record.On):
		return false
	case in(record.Starting) || len(s.sizes) > 0:
		s.held = append(s.held, r)
	default:
		r.status, r.end = record.Rejected, s.now
	}
	return true
}

func (s *reference) release() {
	held := s.held
	s.held = nil
	for _, r := range held {
		s.send(r)
	}
}

func (s *reference) nextPower() tick.Ticks {
	t := tick.Never
	if len(s.sizes) > 0 {
		t = tick.FromSeconds(s.sizes[0].At)
	}
	for _, p := range s.power {
		if p.state == record.Starting {
			t = min(t, p.ready)
		}
	}
	return t
}

func (s *reference) started() {
	for i := range s.power {
		if p := &s.power[i]; p.state == record.Starting && p.ready == s.now {
			p.state = record.On
		}
	}
	s.release()
}

// drained switches off who drains and has nothing left.
func (s *reference) drained() {
	for i := range s.power {
		w := s.ws[i]
		if s.power[i].state == record.Draining && (!w.busy || w.ahead()) &&
			len(w.waiting)+len(w.running)+len(w.filling)+len(w.entering)+len(w.parked) == 0 && w.chunked == nil {
			s.off(i)
		}
	}
}

func (s *reference) off(i int) {
	p := &s.power[i]
	p.on = append(p.on, [2]tick.Ticks{p.born, s.now})
	p.state = record.Off
	s.ws[i] = s.fresh()
}

// ended says whether all of so many requests have come and ended.
func (s *reference) ended(requests int) bool {
	return len(s.all) == requests && !slices.ContainsFunc(s.all, func(r *refRequest) bool { return r.end == 0 })
}

func (s *reference) resize(requests int) {
	for len(s.sizes) > 0 && tick.FromSeconds(s.sizes[0].At) == s.now {
		if s.ended(requests) {
			s.sizes = nil // loads may still go on, but nobody waits for them
			return
		}
		n := s.sizes[0].Workers
		s.sizes = s.sizes[1:]
		// Workers of a state, in the order in which they began to start.
		of := func(state record.Power) (list []int) {
			for i := range s.power {
				if s.power[i].state == state {
					list = append(list, i)
				}
			}
			slices.SortStableFunc(list, func(a, b int) int { return int(s.power[a].born - s.power[b].born) })
			return list
		}
		for d := n - len(of(record.On)) - len(of(record.Starting)); d != 0; {
			on, starting, draining := of(record.On), of(record.Starting), of(record.Draining)
			switch {
			case d > 0 && len(draining) > 0:
				s.power[draining[0]].state = record.On
				d--
			case d > 0:
				i := slices.IndexFunc(s.power, func(p refLife) bool { return p.state == record.Off })
				p := &s.power[i]
				p.state, p.born, p.ready = record.Starting, s.now, s.now+s.cold
				if s.cold == 0 {
					p.state = record.On
				}
				d--
			case len(starting) > 0:
				s.off(starting[len(starting)-1])
				d++
			default:
				s.power[on[len(on)-1]].state = record.Draining
				d++
			}
		}
		s.drained()
		s.release()
	}
}

// timeOn is how long a worker was on until the last request had ended.
func (s *reference) timeOn(i int) (sum tick.Ticks) {
	end := tick.Ticks(0)
	for _, r := range s.all {
		end = max(end, r.end)
	}
	spans := s.power[i].on
	if s.power[i].state != record.Off {
		spans = append(spans, [2]tick.Ticks{s.power[i].born, end})
	}
	for _, x := range spans {
		sum += max(min(x[1], end)-x[0], 0)
	}
	return sum
}
