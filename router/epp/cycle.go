package epp

import "math/rand/v2"

// cycle is one request on its way through the plugins. Plugins name endpoints by their index in eps.
type cycle struct {
	r       *Request
	eps     []Endpoint // the candidates
	matches []Match    // of each candidate; empty without a prefix index
	index   *prefixIndex
	flight  *Flight // nil: not counted
	costs   *flightParams
	rng     *rand.Rand
}

// match returns the prefix index's result for an endpoint.
func (c *cycle) match(i int32) Match {
	if len(c.matches) == 0 {
		return Match{}
	}
	return c.matches[i]
}

// uncached returns the tokens that the request adds to an endpoint.
func (c *cycle) uncached(i int32) int64 {
	m := c.match(i)
	return c.costs.tokens(c.r, &m, c.index != nil)
}

// filter keeps some of the endpoints. It may change the slice that it is given.
type filter interface {
	filter(c *cycle, in []int32) []int32
}

// scorer gives each endpoint a score; out has the length of in.
type scorer interface {
	score(c *cycle, in []int32, out []float64)
}

// picker orders the endpoints that may be picked, the best first, and returns how many of them count.
type picker interface {
	pick(c *cycle, in []int32, totals []float64) int
}

// detector measures how full the endpoints are; 1: full.
type detector interface {
	saturation(c *cycle) float64
}

// committer is notified where a request goes.
type committer interface {
	commit(c *cycle, d *Decision)
}

// admitter refuses requests.
type admitter interface {
	admit(c *cycle, saturation float64) *Rejection
}

// keep filters a slice in place.
func keep(in []int32, ok func(int32) bool) []int32 {
	n := 0
	for _, i := range in {
		if ok(i) {
			in[n] = i
			n++
		}
	}
	return in[:n]
}
