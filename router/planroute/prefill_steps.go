package planroute

import (
	"math"

	"lorasim/router"
)

// prefillSteps is the router's model of the steps in which a worker computes the prompts sent there. A worker takes one
// step after the other. When it forms a step, it takes the prompts that wait; those that come later are computed
// together in a later one. First tokens tell when steps end.
type prefillSteps struct {
	last prefillStep
	ends float64 // s: when the last step ends
	pace float64 // s: the length of the decode steps after it
	// The newest requests of the last step, of the one before it, and of the one before that; equal if that step had
	// ended when the last one was planned.
	newest, before, earlier int64
	ended                   float64 // s: the end of the step before the last one
	// When the prompts sent there will have been computed, if none waits for anything else, s.
	prefilled float64
}

// prefillStep is a step that computes prompts.
type prefillStep struct {
	starts, closes float64 // s: when it begins, and when the worker forms it
	loads          float64 // s, of adapters before the prompts
	prompts        int
	tokens         int64   // of the prompts
	compute        float64 // s, for the tokens; 0: not known
}

// decodeLeft is the time until the decode step ends that is under way at some time, s, if one began with the end of the
// last step.
func (l *prefillSteps) decodeLeft(at float64) float64 {
	if l.pace <= 0 || at <= l.ends {
		return l.pace
	}
	steps := (at - l.ends) / l.pace
	return l.pace * (1 - steps + math.Floor(steps))
}

// next is the step that computes a prompt which comes at some time. What no longer waits, because it was refused or its
// client gave it up, does not count.
func (l *prefillSteps) next(w *router.Worker, s *router.Spec, at float64) prefillStep {
	switch {
	case w.Running+w.Queued == 0:
		return prefillStep{starts: at, closes: at}
	case at < l.last.closes && (s.StepTokens == 0 || l.last.tokens < s.StepTokens):
		n := l.last
		if n.tokens > w.QueuedToks {
			n.tokens, n.prompts, n.compute = w.QueuedToks, min(n.prompts, w.Queued), 0
		}
		if n.tokens <= 0 {
			return prefillStep{starts: n.starts, closes: n.closes}
		}
		return n
	case at < l.ends && !s.Ahead:
		return prefillStep{starts: l.ends, closes: l.ends}
	case at < l.last.starts: // the last step is formed
		return prefillStep{starts: l.ends, closes: l.last.starts}
	case at < l.ends: // a decode step is formed
		return prefillStep{starts: l.ends + l.pace, closes: l.ends}
	case w.Running == 0:
		return prefillStep{starts: at, closes: at}
	}
	end := at + l.decodeLeft(at)
	if s.Ahead {
		return prefillStep{starts: end + l.pace, closes: end}
	}
	return prefillStep{starts: end, closes: end}
}

// prompt is how long a worker computes the prompts of a step with one more of n tokens, and how much of that is due to
// that one, s.
func (n *prefillStep) prompt(tokens int32, c router.CostModel) (all, one float64) {
	all = c.Prefill(n.tokens + int64(tokens))
	switch {
	case n.tokens == 0:
		return all, all
	case n.compute > 0:
		return all, all - n.compute
	}
	return all, all - c.Prefill(n.tokens)
}

// delay is how much later the first tokens of a step come, s, all together, if it computes one more prompt of some
// tokens in one seconds. Tokens beyond most of a step are computed in a later one.
func (n *prefillStep) delay(tokens int32, one float64, most int64) float64 {
	if most > 0 && tokens > 0 {
		one *= min(float64(max(most-n.tokens, 0))/float64(tokens), 1)
	}
	return one * float64(n.prompts)
}

// plan notes that a prompt will be computed in a step, which takes some time without its loads, and that decode steps
// after it have a length of pace. The prompt is part of the step.
func (l *prefillSteps) plan(n prefillStep, id int64, now, takes, pace float64) {
	if n.prompts == 1 || n.starts != l.last.starts {
		if l.earlier = l.before; l.ends < now {
			l.earlier = l.newest
		}
		l.before, l.ended = l.newest, l.ends
	}
	l.last, l.newest, l.pace = n, id, pace
	l.ends = n.starts + n.loads + takes
	l.prefilled = max(l.prefilled, l.ends)
}

// began notes that the first token of a request came: its step has ended. It returns false if that tells nothing.
func (l *prefillSteps) began(id int64, now float64) bool {
	switch {
	case id > l.before && id <= l.newest:
		l.prefilled = max(l.prefilled+now-l.ends, now)
		l.last.closes, l.last.starts, l.ends = min(l.last.closes, now), min(l.last.starts, now), now
		return true
	case id > l.earlier && id <= l.before:
		d := now - l.ended
		l.last.starts, l.last.closes, l.ends, l.ended = l.last.starts+d, l.last.closes+d, l.ends+d, now
		l.prefilled = max(l.prefilled+d, l.ends)
		return true
	}
	return false
}

// beside is how much longer the running requests make a step of prompts, s, if a decode step takes step seconds.
func (p *accounts) beside(j int, w *router.Worker, step float64) float64 {
	if !p.workers[j].Mixes || w.Running == 0 {
		return 0
	}
	return max(step-p.workers[j].Cost.DecodeStep(1, 1, 0, w.MaxRank), 0)
}
