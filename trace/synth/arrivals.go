package synth

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/trace/internal/renewal"
)

// The distributions of the gaps of Arrivals.
const (
	Gamma         = renewal.Gamma
	Exponential   = renewal.Exponential   // Poisson arrivals; CV 1
	Weibull       = renewal.Weibull       // heavier tail than gamma at the same CV > 1
	Deterministic = renewal.Deterministic // equal gaps; CV 0
)

// Arrivals describes the renewal process of the requests.
//
// By default each adapter has a process of its own, whose rate is its share of
// the total, and the processes are merged. CV is then that of one adapter; the
// merged gaps of many adapters come closer to a Poisson process. With Total a
// single process gives the times and each request draws its adapter.
type Arrivals struct {
	Dist  string
	CV    float64 // coefficient of variation of the gaps; Gamma and Weibull only
	Total bool
}

// ParseArrivals reads "gamma:4" (with the CV; without: 1), "weibull:2",
// "exponential", "deterministic", "bursty" (gamma:4) or "smooth" (gamma:0.5).
// The prefix "total-", as in "total-gamma:4", sets Total.
func ParseArrivals(s string) (Arrivals, error) {
	name, args := splitSpec(s)
	a := Arrivals{Dist: name, CV: 1}
	if rest, ok := strings.CutPrefix(name, "total-"); ok && rest != "" {
		a.Total, a.Dist = true, rest
	}
	var to []*float64
	switch a.Dist {
	case Gamma, Weibull:
		to = append(to, &a.CV)
	case "bursty":
		a.Dist, a.CV = Gamma, 4
	case "smooth":
		a.Dist, a.CV = Gamma, 0.5
	case Exponential, Deterministic:
	default:
		return parsed("arrivals", s, a, suggest.Unknown("name", a.Dist, []string{Gamma, Exponential, Weibull, Deterministic, "bursty", "smooth"}))
	}
	err := assign(args, 0, to...)
	if err == nil && !(a.CV >= renewal.MinCV && a.CV <= renewal.MaxCV) {
		err = fmt.Errorf("cv is %v, expected %g to %g (for cv 0 use %q)", a.CV, renewal.MinCV, renewal.MaxCV,
			Deterministic)
	}
	return parsed("arrivals", s, a, err)
}

// AllAdapters is the Adapter of a flash crowd that multiplies the whole rate.
const AllAdapters int32 = -1

// Pattern is how the rate varies with time: the product of its parts. The zero
// Pattern is constant.
type Pattern struct {
	OnOff   OnOff
	Diurnal Diurnal
	Flash   Flash
}

// OnOff alternates between the full rate for On seconds, starting at time 0,
// and Factor times it for Off seconds.
type OnOff struct {
	On, Off float64 // s; Off 0: absent
	Factor  float64 // >= 0
}

// Diurnal multiplies the rate by 1 + Amplitude sin(2 pi t / Period): it starts
// at the mean and rises.
type Diurnal struct {
	Period    float64 // s; 0: absent
	Amplitude float64 // 0 to 1
}

// Flash multiplies the rate by Factor from At for Duration seconds. With one
// Adapter the crowd comes on top: extra requests, (Factor-1) times those the
// adapter has otherwise when the crowd sets in, from a process of their own.
type Flash struct {
	At, Duration float64 // s; Duration 0: absent
	Factor       float64 // >= 1
	Adapter      int32   // or AllAdapters
}

// part is one part of a pattern; its numbers are 0 where it is absent.
type part struct {
	name    string
	numbers []number
}

const flash = "flash" // the part that may have an adapter, too

func (p *Pattern) parts() []part {
	const phases = ">=1e-3 <=1e12" // s; shorter ones are below the resolution that matters
	o, d, f := &p.OnOff, &p.Diurnal, &p.Flash
	return []part{
		{"constant", nil},
		{"on-off", []number{{"on", &o.On, " s", phases}, {"off", &o.Off, " s", phases},
			{"off factor", &o.Factor, "", ">=0 <=1e6"}}},
		{"diurnal", []number{{"period", &d.Period, " s", phases}, {"amplitude", &d.Amplitude, "", ">=0 <=1"}}},
		{flash, []number{{"start", &f.At, " s", ">=0 <=1e12"}, {"duration", &f.Duration, " s", phases},
			{"factor", &f.Factor, "", ">=1 <=1e6"}}},
	}
}

// ParsePattern reads "constant", "on-off:ON,OFF,FACTOR", "diurnal:PERIOD,AMPLITUDE",
// "flash:AT,DURATION,FACTOR" or "flash:AT,DURATION,FACTOR,ADAPTER" (times in
// seconds), or several different ones joined by "+".
func ParsePattern(s string) (p Pattern, err error) {
	seen := map[string]bool{}
	for text := range strings.SplitSeq(s, "+") {
		name, args := splitSpec(text)
		if seen[name] {
			err = fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if err == nil {
			err = p.parsePart(name, args)
		}
	}
	return parsed("rate pattern", s, p, err)
}

// parsePart sets one part of p from its spec.
func (p *Pattern) parsePart(name string, args []string) error {
	var known []string
	for _, part := range p.parts() {
		if known = append(known, part.name); part.name != name {
			continue
		}
		var to []*float64
		var names []string
		for _, n := range part.numbers {
			to, names = append(to, n.at), append(names, n.name+n.unit)
		}
		adapter := float64(AllAdapters)
		if name == flash {
			to, names = append(to, &adapter), append(names, "adapter")
		}
		if err := assign(args, len(part.numbers), to...); err != nil {
			return fmt.Errorf("%s (%s) %w", name, cmp.Or(strings.Join(names, ", "), "no arguments"), err)
		}
		if len(args) == 4 && !(adapter == math.Trunc(adapter) && adapter >= 0 && adapter < MaxAdapters) {
			return fmt.Errorf("flash adapter is %v, expected an adapter index", adapter)
		}
		if name == flash {
			p.Flash.Adapter = int32(adapter)
		}
		return checkAll(part.numbers)
	}
	return suggest.Unknown("name", name, known)
}

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

	cycle  int64   // on-off cycles begun before from
	off    bool    // the phase
	toggle float64 // when it changes next
	last   float64 // latest time returned
}

func newClock(p Pattern) *clock {
	c := &clock{p: p, plain: p == Pattern{}}
	c.enter()
	return c
}

// enter fills in what the segment that begins at from has.
func (c *clock) enter() {
	c.factor, c.toggle = 1, math.Inf(1)
	if o := c.p.OnOff; o.Off > 0 && c.off {
		c.factor, c.toggle = o.Factor, float64(c.cycle+1)*(o.On+o.Off)
	} else if o.Off > 0 {
		c.toggle = float64(c.cycle)*(o.On+o.Off) + o.On
	}
	c.until = c.toggle
	if f := c.p.Flash; f.Adapter == AllAdapters && c.from < f.At {
		c.until = min(c.until, f.At)
	} else if f.Adapter == AllAdapters && c.from < f.At+f.Duration {
		c.factor *= f.Factor
		c.until = min(c.until, f.At+f.Duration)
	}
	c.end = math.Inf(1)
	if !math.IsInf(c.until, 1) {
		c.end = c.start + c.factor*(c.smooth(c.until)-c.smooth(c.from))
	}
}

// next moves on to the following segment.
func (c *clock) next() {
	if c.until == c.toggle {
		if c.off {
			c.cycle++
		}
		c.off = !c.off
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
