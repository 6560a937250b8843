package router

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
)

// explicit sends each adapter to the workers that a table lists for it: of
// several usable ones to the least loaded, ties seeded. While none of them is
// usable, the next usable worker after the first listed one takes their place.
// The base model has an entry too, all workers by default.
//
// With several workers per adapter it herds on late signals, within the list.
type explicit struct {
	adapters [][]int32 // workers of each adapter, in the order listed
	base     []int32
	rng      *rand.Rand
}

// newExplicit reads the table from the options: see [table] for the syntax.
func newExplicit(o *options, env Env) (*Router, error) {
	inline, file := o.text("map"), o.text("file")
	if (inline == "") == (file == "") {
		return nil, errors.New("expected either map=ADAPTERS@WORKERS,... or file=PATH")
	}
	t := newTable(env)
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := t.read(f, file); err != nil {
			return nil, err
		}
	} else {
		for entry := range strings.SplitSeq(inline, ",") {
			if err := t.add(strings.TrimSpace(entry), "option map"); err != nil {
				return nil, err
			}
		}
	}
	p := &explicit{rng: newRand(env)}
	var err error
	if p.adapters, p.base, err = t.finish(); err != nil {
		return nil, err
	}
	placement := make([][]int32, len(env.Workers))
	for a, workers := range p.adapters {
		for _, w := range workers {
			placement[w] = append(placement[w], int32(a))
		}
	}
	return &Router{Policy: p, Placement: placement}, nil
}

func (p *explicit) Route(r Request, v *View) int {
	workers := p.base
	if r.Adapter >= 0 {
		workers = p.adapters[r.Adapter]
	}
	t := newTally(p.rng)
	for _, i := range workers {
		if w := &v.Workers[i]; w.Usable() {
			t.offer(int(i), float64(w.Load()))
		}
	}
	if t.worker == None {
		return nextUsable(v, int(workers[0]))
	}
	return t.worker
}
