package synth

import "math"

// clock converts between time and operational time, the integral of the rate
// pattern over time. It walks forward through the segments in which the factor
// of on-off and flash crowd is constant, so calls must not go back in time.
// A flash crowd on one adapter is no part of it.
type clock struct {
	p     Pattern
	plain bool // the pattern is constant

	// The current segment.
	from, until float64 // s
	factor      float64
	start, end  float64 // operational time at from and until

	cycle    int64 // on-off cycles begun before from
	on       bool
	flashing flashState
	last     float64 // latest time returned
}

type flashState uint8

const (
	beforeFlash flashState = iota
	inFlash
	afterFlash
)

func newClock(p Pattern) *clock {
	c := &clock{p: p, plain: p == Pattern{}, on: true}
	if p.Flash.Duration == 0 || p.Flash.Adapter != AllAdapters {
		c.flashing = afterFlash
	} else if p.Flash.At == 0 {
		c.flashing = inFlash
	}
	c.enter()
	return c
}

// enter fills in factor and the end of the segment that begins at from.
func (c *clock) enter() {
	c.factor = 1
	if !c.on {
		c.factor = c.p.OnOff.Factor
	}
	if c.flashing == inFlash {
		c.factor *= c.p.Flash.Factor
	}
	c.until = min(c.toggle(), c.flashEdge())
	c.end = math.Inf(1)
	if !math.IsInf(c.until, 1) {
		c.end = c.start + c.factor*(c.smooth(c.until)-c.smooth(c.from))
	}
}

// toggle is when the on-off phase changes next.
func (c *clock) toggle() float64 {
	o := c.p.OnOff
	if o.Off == 0 {
		return math.Inf(1)
	}
	edge := float64(c.cycle)*(o.On+o.Off) + o.On
	if !c.on {
		edge = float64(c.cycle+1) * (o.On + o.Off)
	}
	return edge
}

// flashEdge is when the flash crowd begins or ends next.
func (c *clock) flashEdge() float64 {
	switch c.flashing {
	case beforeFlash:
		return c.p.Flash.At
	case inFlash:
		return c.p.Flash.At + c.p.Flash.Duration
	}
	return math.Inf(1)
}

// next moves on to the following segment.
func (c *clock) next() {
	if c.until == c.toggle() {
		if !c.on {
			c.cycle++
		}
		c.on = !c.on
	}
	if c.until == c.flashEdge() {
		c.flashing++
	}
	c.from, c.start = c.until, c.end
	c.enter()
}

// operational returns the operational time of time t.
func (c *clock) operational(t float64) float64 {
	for t > c.until {
		c.next()
	}
	return c.start + c.factor*(c.smooth(t)-c.smooth(c.from))
}

// time returns the time of operational time tau, never less than before. Where
// the rate is 0 for a while, that is the start of the pause.
func (c *clock) time(tau float64) float64 {
	if c.plain {
		return tau
	}
	for tau > c.end {
		c.next()
	}
	t := c.from
	if tau > c.start {
		t = c.unsmooth(c.smooth(c.from) + (tau-c.start)/c.factor)
	}
	c.last = max(c.last, min(t, c.until))
	return c.last
}

// smooth is the integral of the diurnal factor from 0 to t.
func (c *clock) smooth(t float64) float64 {
	d := c.p.Diurnal
	if d.Amplitude == 0 {
		return t
	}
	w := 2 * math.Pi / d.Period
	s := math.Sin(w * t / 2) // 1-cos(x) = 2 sin^2(x/2), without cancellation
	return t + d.Amplitude/w*2*s*s
}

// unsmooth is the inverse of smooth, by Newton's method kept inside a bracket:
// smooth(t) lies between t and t + amplitude*period/pi. The error
// after a step is about step^2 w/2, which ends the search once it is lost in
// rounding.
func (c *clock) unsmooth(y float64) float64 {
	d := c.p.Diurnal
	if d.Amplitude == 0 {
		return y
	}
	w := 2 * math.Pi / d.Period
	lo, hi := y-2*d.Amplitude/w, y
	t := min(max(c.last, lo), hi)
	for range 100 {
		sin, cos := math.Sincos(w * t / 2)
		err := t + d.Amplitude/w*2*sin*sin - y
		switch {
		case err == 0:
			return t
		case err > 0:
			hi = t
		default:
			lo = t
		}
		step := err / (1 + d.Amplitude*2*sin*cos)
		next := t - step
		if !(next > lo && next < hi) {
			next, step = lo+(hi-lo)/2, math.Inf(1)
		}
		if step*step*w <= 1e-15*math.Abs(next) || next == t {
			return next
		}
		t = next
	}
	return t
}
