package engine

import (
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// itl tracks when the requests of the batch got their latest token: older of them at lastDecode, the others
// when the prefill step of their group ended. Invariant: older and the groups' sizes sum to the batch.
type itl struct {
	lastDecode tick.Ticks
	older      int64
	groups     []group
}

// group is a number of requests that joined the batch and whose latest token before that came at the same
// time.
type group struct {
	at tick.Ticks
	n  int64
}

// joined adds n requests that have joined the batch, with their latest token at the given time.
func (l *itl) joined(at tick.Ticks, n int64) { l.groups = append(l.groups, group{at, n}) }

// report reports the gaps before the first token of a run, which comes at time t. The gap of a request
// depends on the time of its latest token.
func (l *itl) report(t tick.Ticks, o Observer) {
	if l.older > 0 {
		o.Gap(t-l.lastDecode, l.older)
	}
	for _, g := range l.groups {
		if g.n > 0 {
			o.Gap(t-g.at, g.n)
		}
	}
	l.groups = l.groups[:0]
}

// record appends the gaps of a run to each request of the batch. It is called after the run's steps are
// counted, and before its requests leave.
func (l *itl) record(b *Batch, run *record.Steps) {
	before := b.Steps - run.Count
	for i := range b.heap {
		if r := b.heap[i].Value; r.Joined <= before {
			l.recordOne(r, before, run)
		}
	}
}

// recordOne appends the gaps of a run to a request. before is the number of the batch's steps before the run.
func (l *itl) recordOne(r *Request, before int64, run *record.Steps) {
	last := l.lastDecode
	if r.Joined == before {
		last = r.joinTime
	}
	for k := range run.Count {
		end := run.End(k + 1)
		r.Gaps = append(r.Gaps, (end - last).Seconds())
		last = end
	}
}

// leave removes a request that leaves the batch after the given number of steps, and stores the time of its
// latest token.
func (l *itl) leave(r *Request, steps int64) {
	if r.Joined < steps {
		l.older--
		r.lastTokenAt = l.lastDecode
		return
	}
	r.lastTokenAt = r.joinTime
	for k := range l.groups {
		if l.groups[k].at == r.joinTime && l.groups[k].n > 0 {
			l.groups[k].n--
			return
		}
	}
}

func (l *itl) size() int64 {
	n := l.older
	for _, g := range l.groups {
		n += g.n
	}
	return n
}
