package measured

import (
	"math"
	"slices"

	"lorasim/sim/profile"
)

const (
	// leastStall is the least time, s, in which no request starts although some wait, and stallPrompts the least
	// number of prompts like the next one that the worker could have computed meanwhile.
	leastStall, stallPrompts = 0.5, 5
	// seatSteps is the number of steps, beside the next prompt, within which a limit of running requests admits a
	// request after another has ended. A full KV cache admits none before the requests that it preempted run again.
	seatSteps = 5
	// mostStalls limits the stalls that are examined.
	mostStalls = 1000
)

// A Plateau is a time in which the KV cache of a worker was full: requests waited, and none started, although the
// worker ran requests of their adapters.
type Plateau struct {
	From, To         float64 // s
	Running, Waiting int     // requests at its start
	// Tokens is the size of the KV cache: about the tokens in flight when the next request started.
	Tokens int64
}

// Plateau returns the longest plateau of a run of scheduler vllm with pages of the given number of tokens. ok is
// false if the records show none. Under other schedulers a full cache is less well known: they reserve memory for
// tokens to come.
func (run *Recording) Plateau(costs *profile.Costs) (longest Plateau, ok bool) {
	if costs.Profile().Engine.Scheduler != profile.SchedulerVLLM {
		return longest, false
	}
	for w := range run.Workers {
		if p, found := run.plateauOf(int32(w), costs); found && (!ok || p.To-p.From > longest.To-longest.From) {
			longest, ok = p, true
		}
	}
	return longest, ok
}

// plateauOf returns the longest plateau of a worker.
func (run *Recording) plateauOf(worker int32, costs *profile.Costs) (longest Plateau, ok bool) {
	var sent, first []float64
	for i := range run.Measured {
		if r := &run.Measured[i]; r.WorkerLast == worker && Streamed(r) {
			sent, first = append(sent, r.Sent), append(first, r.FirstToken)
		}
	}
	slices.Sort(sent)
	slices.Sort(first)
	examined := 0
	for i := range max(len(first)-1, 0) {
		from, to := first[i], first[i+1]
		come, _ := slices.BinarySearch(sent, from)
		if to-from < leastStall || come-(i+1) < 2 || to-from <= longest.To-longest.From {
			continue
		}
		if examined++; examined > mostStalls {
			break
		}
		if p, found := run.stall(worker, from, to, costs); found {
			longest, ok = p, true
		}
	}
	return longest, ok
}

// stall returns the plateau between two first tokens in a row. found is false if something else than memory may have
// delayed the waiting requests.
func (run *Recording) stall(worker int32, from, to float64, costs *profile.Costs) (p Plateau, found bool) {
	page := int64(costs.Profile().Engine.PageSize)
	p = Plateau{From: from, To: to}
	runs, prompt := map[int32]bool{-1: true}, int64(0) // the base model needs no slot
	ended, step := math.Inf(1), 0.0
	within := func(i int, t float64) bool {
		r := &run.Measured[i]
		return r.WorkerLast == worker && Streamed(r) && r.FirstToken <= t && r.Finish > t
	}
	for i := range run.Measured {
		r := &run.Measured[i]
		if within(i, from) {
			p.Running++
			runs[r.Adapter] = true
			ended, step = min(ended, r.Finish), max(step, (r.Finish-r.FirstToken)/float64(r.Output-1))
		}
	}
	for i := range run.Measured {
		r := &run.Measured[i]
		if r.WorkerLast == worker && Streamed(r) && r.Sent < from && r.FirstToken > from && runs[r.Adapter] {
			p.Waiting++
			prompt = max(prompt, int64(r.Prompt))
		}
	}
	next := profile.Model{Costs: costs}.Prefill(prompt)
	inFlight := func(t float64) (sum int64) {
		for i := range run.Measured {
			if r := &run.Measured[i]; within(i, t) {
				done := (t - r.FirstToken) / (r.Finish - r.FirstToken)
				tokens := int64(math.Ceil(float64(r.Prompt) + done*float64(r.Output)))
				sum += (tokens + page - 1) / page * page
			}
		}
		return sum
	}
	// The capacity lies between two numbers of tokens. Those in flight at the next start fit. Those in flight before
	// the latest requests ended, together with the next prompt, do not.
	p.Tokens = (inFlight(to) + inFlight(to-next-2*step)) / 2
	return p, p.Waiting >= 2 && to-from > stallPrompts*next && to-ended > next+seatSteps*step
}
