package live

import (
	"context"
	"sync/atomic"
	"time"
)

// reading is what one attempt has received so far.
type reading struct {
	c      *client
	j      *job
	before int // tokens that earlier attempts brought

	textBefore int         // bytes of text of theirs
	finish     string      // the finish reason, "" before
	any        atomic.Bool // some bytes have come

	cancel context.CancelCauseFunc // ends the attempt
	timer  *time.Timer             // of the time limit that runs; nil: none yet
}

// limit starts a time limit for the next bytes; 0: none.
func (s *reading) limit(d time.Duration) {
	if d > 0 {
		s.timer = time.AfterFunc(d, s.overdue)
	}
}

func (s *reading) overdue() {
	if s.any.Load() || s.c.cfg.FirstToken == 0 {
		s.cancel(errIdle)
	} else {
		s.cancel(errFirstToken)
	}
}

// seen notes that bytes have come.
func (s *reading) seen() {
	s.any.Store(true)
	switch {
	case s.timer == nil:
	case s.c.cfg.Idle > 0:
		s.timer.Reset(s.c.cfg.Idle)
	default:
		s.timer.Stop()
	}
}

// stop ends the time limit.
func (s *reading) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// take enters the tokens of a piece that arrived at the given time. As in the
// reference benchmark, the gap since the latest token is spread over all tokens
// of a piece, and the tokens that come with the first one leave no gap.
func (s *reading) take(p piece, at time.Time) {
	j := s.j
	have := j.n - s.before
	ids, fresh := s.fresh(p, have)
	s.say(p, have)
	if p.finish != "" {
		s.finish = p.finish
	}
	if fresh <= 0 {
		return
	}
	if len(ids) == fresh {
		if s.keepsIDs() {
			j.tokens = append(j.tokens, ids...)
		}
	} else if j.known {
		j.mu.Lock()
		j.known = false
		j.mu.Unlock()
	}
	s.c.cfg.Fleet.Tokens(&j.fr, fresh, have == 0)
	if have == 0 {
		j.begun = at
	}
	if !p.text && j.n > 0 { // the count at the end, of tokens that came with others or read as nothing
		j.n += fresh
		return
	}
	if j.n == 0 {
		j.rec.FirstToken = s.c.cfg.Clock.at(at) - s.c.start
	} else if !s.c.cfg.NoStream {
		gap := at.Sub(j.token).Seconds() * s.c.cfg.Clock.speed / float64(fresh)
		for range fresh {
			j.rec.Gaps = append(j.rec.Gaps, gap)
		}
	}
	j.n += fresh
	j.token = at
}

// say keeps the text of a piece. That of sglang's own interface repeats the reply
// so far, unless its ids are only those that are new.
func (s *reading) say(p piece, have int) {
	j := s.j
	if s.c.cfg.Text == nil || len(p.said) == 0 {
		return
	}
	if s.c.cfg.Backend == SGLang && (len(p.ids) == 0 || len(p.ids) == p.total) {
		j.text = j.text[:s.textBefore]
	}
	j.text = append(j.text, p.said...)
}

// keepsIDs says whether token ids are needed later: to go on elsewhere, or by
// the caller.
func (s *reading) keepsIDs() bool {
	return !s.c.cfg.NoFailover || s.j.fr.Move != nil || s.c.cfg.Output != nil
}

// fresh is the number of tokens of a piece that are new, and their ids where the
// worker tells them. Workers repeat all ids of the reply in each event, or send
// only the new ones; where they tell neither ids nor a count, a piece with text
// is one token.
func (s *reading) fresh(p piece, have int) (ids []int32, n int) {
	switch {
	case p.total >= 0 && p.ids == nil:
		return nil, p.total - have
	case p.total >= 0 && have+len(p.ids) == p.total:
		return p.ids, len(p.ids)
	case p.total >= 0 && len(p.ids) == p.total && have <= p.total:
		return p.ids[have:], p.total - have
	case p.total >= 0:
		return nil, p.total - have
	case len(p.ids) > 0:
		return p.ids, len(p.ids)
	case p.text:
		return nil, 1
	}
	return nil, 0
}
