package measured

import (
	"slices"

	"lorasim/sim/record"
)

// hourObserver collects the figures of a run.
type hourObserver struct {
	ttft    []float64 // TTFT of completed requests, s
	tpot    float64   // sum over requests with two tokens or more, s
	several int64     // number of those requests
	gaps    float64   // between pieces of the replies of completed requests
	decode  float64   // sum of the gaps between pieces, s
	tokens  int64     // tokens of completed requests
	prompts float64   // prompt tokens of completed requests
	arrived int64
	running float64 // requests x s
	scrapes scrapes
}

func (o *hourObserver) done(r *record.Request) {
	o.arrived++
	if r.Status != record.OK {
		return
	}
	// A request that the front end receives late begins late in the engine.
	late := o.scrapes.after(r.Sent) - r.Sent
	first, last := o.scrapes.after(r.FirstToken+late), o.scrapes.after(r.Finish+late)
	o.ttft = append(o.ttft, first-r.Sent)
	o.tokens += int64(r.Prompt) + int64(r.Output)
	o.prompts += float64(r.Prompt)
	if r.Output > 1 {
		d := last - first
		o.several++
		o.tpot += d / float64(r.Output-1)
		o.decode += d
		o.gaps += o.scrapes.pieces(float64(r.Output-1), r.FirstToken+late, r.Finish+late)
	}
}

// state adds a period of the run.
func (o *hourObserver) state(e *record.Event) {
	w := &e.View.Workers[0]
	o.scrapes.watch(e.Until.Seconds(), w)
	o.running += float64(w.Running) * (e.Until - e.From).Seconds()
}

// values returns the figures of a run of the given length, s. Figures without requests are absent.
func (o *hourObserver) values(window float64) Values {
	v := Values{Throughput: float64(o.tokens) / window, Running: o.running / window}
	if n := len(o.ttft); n > 0 {
		sum := 0.0
		for _, x := range o.ttft {
			sum += x
		}
		slices.Sort(o.ttft)
		v[TTFTMean], v[TTFTMedian] = 1000*sum/float64(n), 1000*(o.ttft[(n-1)/2]+o.ttft[n/2])/2
	}
	if o.several > 0 {
		v[TPOT], v[ITL] = 1000*o.tpot/float64(o.several), 1000*o.decode/o.gaps
	}
	return v
}
