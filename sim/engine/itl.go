package engine

import (
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// itl knows when the batch's requests saw their latest token: older of them at lastDecode, the others when the
// prefill step of their group ended. Invariant: older and the groups' sizes sum to the batch.
type itl struct {
	lastDecode tick.Ticks
	older      int64
	groups     []group
}

// group is requests whose latest token came at the same time before they joined the batch.
type group struct {
	at tick.Ticks
	n  int64
}

// joined notes that n requests have joined, whose latest token came at a time.
func (l *itl) joined(at tick.Ticks, n int64) { l.groups = append(l.groups, group{at, n}) }

// report reports the gap before the first token of a run, which comes at time t: how long each request of the batch
// has waited depends on when its latest token came.
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

// record notes the gaps of a run for each request of the batch. It is called when the run's steps are counted, but
// its requests are all still there.
func (l *itl) record(b *Batch, run *record.Steps) {
	before := b.Steps - run.Count
	for i := range b.heap {
		if r := b.heap[i].Value; r.Joined <= before {
			l.recordOne(r, before, run)
		}
	}
}

// recordOne notes the gaps of a run for a request; before: the batch's steps before the run.
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

// leave takes a request that is leaving the batch, after so many steps, out of the counts and notes when its latest
// token came.
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
