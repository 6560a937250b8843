package synth

import (
	"fmt"
	"math"
	"strings"

	"lorasim/trace/internal/renewal"
	"lorasim/trace/settings"
)

// The distributions of the gaps of Arrivals.
const (
	Gamma         = renewal.Gamma
	Exponential   = renewal.Exponential   // Poisson arrivals; CV 1
	Weibull       = renewal.Weibull       // heavier tail than gamma at the same CV > 1
	Pareto        = renewal.Pareto        // the heaviest tail
	Deterministic = renewal.Deterministic // equal gaps; CV 0
	VLLM          = "vllm"                // as vLLM's benchmark client sends: see Paced; New does not take it
)

// Arrivals describes the renewal processes of the requests.
//
// By default each adapter has its own process, whose rate is the adapter's share of the total rate. CV is then the
// coefficient of variation of one adapter's gaps; the merged gaps of many adapters are closer to a Poisson process.
// With Total, a single process gives the times and each request draws its adapter.
type Arrivals struct {
	Dist  string
	CV    []float64 // coefficients of variation of the gaps, by adapter, cycled; Gamma, Weibull and Pareto only
	Total bool
	Shape float64 // shape of the gamma distribution of the gaps, 1/CV^2; VLLM only
}

// OneCV returns the coefficient of variation of the gaps; false: adapters differ, or arrivals are those of a client.
func (a Arrivals) OneCV() (float64, bool) {
	switch {
	case a.Dist == Exponential:
		return 1, true
	case a.Dist == Deterministic:
		return 0, true
	case len(a.CV) == 1:
		return a.CV[0], true
	}
	return 0, false
}

// gaps returns the distributions of the adapters' gaps, cycled.
func (a Arrivals) gaps() []renewal.Gaps {
	if len(a.CV) == 0 {
		return []renewal.Gaps{renewal.New(a.Dist, 1)}
	}
	list := make([]renewal.Gaps, len(a.CV))
	for i, cv := range a.CV {
		list[i] = renewal.New(a.Dist, cv)
	}
	return list
}

// arrivalsOptions are the options of one kind of arrivals.
type arrivalsOptions interface{ arrivals() Arrivals }

type gammaArrivals struct {
	CV []float64 `arg:"1" default:"1" check:">=0.001 <=1000" unit:"std / mean" help:"coefficient of variation of the gaps; a list is used by the adapters in turn; for 0 see deterministic"`
}

func (o *gammaArrivals) arrivals() Arrivals { return Arrivals{Dist: Gamma, CV: o.CV} }

type weibullArrivals struct{ gammaArrivals }

func (o *weibullArrivals) arrivals() Arrivals { return Arrivals{Dist: Weibull, CV: o.CV} }

type paretoArrivals struct{ gammaArrivals }

func (o *paretoArrivals) arrivals() Arrivals { return Arrivals{Dist: Pareto, CV: o.CV} }

// plainArrivals have no options.
type plainArrivals struct {
	Of Arrivals `key:"-"`
}

func (o *plainArrivals) arrivals() Arrivals { return o.Of }

type vllmArrivals struct {
	Burstiness float64 `arg:"1" default:"1" check:">=1e-6 <=1e6 inf" unit:"shape" help:"vLLM's --burstiness, 1/CV^2: 1 exponential gaps, below 1 bursty ones, inf equal ones"`
}

func (o *vllmArrivals) arrivals() Arrivals {
	return Arrivals{Dist: VLLM, Total: true, Shape: o.Burstiness}
}

// totalPrefix is the prefix of kinds with a single process for all adapters.
const totalPrefix = "total-"

func arrivalsKinds() []settings.Kind[arrivalsOptions] {
	plain := func(dist string) func() arrivalsOptions {
		return func() arrivalsOptions { return &plainArrivals{Arrivals{Dist: dist}} }
	}
	kinds := []settings.Kind[arrivalsOptions]{
		{Name: Exponential, Summary: "Poisson arrivals", New: plain(Exponential)},
		{Name: Gamma, Summary: "gamma-distributed gaps", New: func() arrivalsOptions { return &gammaArrivals{} }},
		{Name: Weibull, Summary: "Weibull-distributed gaps, a heavier tail than gamma",
			New: func() arrivalsOptions { return &weibullArrivals{} }},
		{Name: Pareto, Summary: "Pareto-distributed gaps, the heaviest tail",
			New: func() arrivalsOptions { return &paretoArrivals{} }},
		{Name: Deterministic, Summary: "equal gaps", New: plain(Deterministic)},
	}
	for _, k := range kinds[:len(kinds):len(kinds)] {
		k.Name, k.Summary = totalPrefix+k.Name, k.Summary+", one process for all adapters"
		kinds = append(kinds, k)
	}
	return append(kinds, settings.Kind[arrivalsOptions]{Name: VLLM,
		Summary: "the gaps of vLLM's client: gamma-distributed, one process for all adapters, which ends at num_prompts / request_rate",
		New:     func() arrivalsOptions { return &vllmArrivals{} }})
}

// ArrivalsForms returns the forms that ParseArrivals reads.
func ArrivalsForms() []settings.Form { return settings.Forms(arrivalsKinds()) }

// ParseArrivals parses "exponential", "deterministic", "gamma:4" (CV 4; default 1; "gamma:4,1": the adapters in turn),
// "weibull:2" or "pareto:2". The prefix "total-", as in "total-gamma:4", sets Total. "vllm:0.25" are the arrivals of
// vLLM's client with that burstiness.
func ParseArrivals(s string) (Arrivals, error) {
	spec, err := settings.Parse("arrivals", arrivalsKinds(), s)
	if err != nil {
		return Arrivals{}, err
	}
	a := spec.Value.arrivals()
	a.Total = a.Total || strings.HasPrefix(spec.Name, totalPrefix)
	if a.Total && len(a.CV) > 1 {
		return Arrivals{}, fmt.Errorf("arrivals %s: one process for all adapters has one coefficient of variation, not %d",
			spec.Name, len(a.CV))
	}
	return a, nil
}

// AllAdapters is the Adapter of a flash crowd that multiplies the whole rate.
const AllAdapters int32 = -1

// A Pattern is the rate over time, as a factor: the product of its parts. The zero Pattern is constant.
type Pattern struct {
	OnOff   OnOff
	Diurnal Diurnal
	Flash   Flash
}

// OnOff alternates between the full rate for On seconds and Factor times the full rate for Off seconds. It starts
// with the full rate at time 0.
type OnOff struct {
	On     float64 `arg:"1" required:"yes" check:">=1e-3 <=1e12" unit:"s" help:"time at the full rate"`
	Off    float64 `arg:"2" required:"yes" check:">=1e-3 <=1e12" unit:"s" help:"time at the other rate"` // 0: absent
	Factor float64 `arg:"3" required:"yes" check:">=0 <=1e6" help:"the other rate, as a share of the full one"`
}

func (o *OnOff) set(p *Pattern) { p.OnOff = *o }

// Diurnal multiplies the rate by 1 + Amplitude sin(2 pi t / Period). At time 0 the rate is the mean and rises.
type Diurnal struct {
	Period    float64 `arg:"1" required:"yes" check:">=1e-3 <=1e12" unit:"s" help:"length of a day"` // 0: absent
	Amplitude float64 `arg:"2" required:"yes" check:">=0 <=1" help:"largest change of the rate, as a share of the mean"`
}

func (d *Diurnal) set(p *Pattern) { p.Diurnal = *d }

// Flash is a flash crowd: it multiplies the rate by Factor from At for Duration seconds. For a single Adapter the
// crowd adds requests from a process of its own. Their rate is Factor-1 times the adapter's rate when the crowd
// begins.
type Flash struct {
	At       float64 `arg:"1" required:"yes" check:">=0 <=1e12" unit:"s" help:"start of the crowd"`
	Duration float64 `arg:"2" required:"yes" check:">=1e-3 <=1e12" unit:"s" help:"length of the crowd"` // 0: absent
	Factor   float64 `arg:"3" required:"yes" check:">=1 <=1e6" help:"rate during the crowd, as a multiple"`
	Adapter  int32   `arg:"4" default:"-1" check:">=-1 <10000000" help:"index of the adapter with the crowd; -1: all adapters"`
}

func (f *Flash) set(p *Pattern) { p.Flash = *f }

type constant struct{}

func (*constant) set(*Pattern) {}

// Period is the time after which the rate repeats, s: the longest period of the parts; 0: the rate does not repeat.
func (p Pattern) Period() float64 {
	period := p.Diurnal.Period
	if p.OnOff.Off > 0 {
		period = max(period, p.OnOff.On+p.OnOff.Off)
	}
	return period
}

// Covers is the time after which a run has seen all of the pattern, s: a period, and the end of a flash crowd.
func (p Pattern) Covers() float64 {
	covers := p.Period()
	if p.Flash.Duration > 0 {
		covers = max(covers, p.Flash.At+p.Flash.Duration)
	}
	return covers
}

// Busiest is the largest factor of the rate in a period, and the first time of that factor, s. Flash crowds are left
// out.
func (p Pattern) Busiest() (factor, at float64) {
	factor = 1
	if p.OnOff.Off > 0 && p.OnOff.Factor > 1 {
		factor, at = p.OnOff.Factor, p.OnOff.On
	}
	if p.Diurnal.Period > 0 {
		factor *= 1 + p.Diurnal.Amplitude
		at = max(at, p.Diurnal.Period/4)
	}
	return factor, at
}

// Mean is the mean factor of the rate over a period, without flash crowds. Where an on-off pattern and a sine wave
// have different periods it is that over a long time.
func (p Pattern) Mean() float64 {
	if o := p.OnOff; o.Off > 0 {
		return (o.On + o.Off*o.Factor) / (o.On + o.Off)
	}
	return 1
}

// patternPart is a part of a pattern.
type patternPart interface{ set(p *Pattern) }

func patternKinds() []settings.Kind[patternPart] {
	return []settings.Kind[patternPart]{
		{Name: "constant", Summary: "a constant rate", New: func() patternPart { return &constant{} }},
		{Name: "on-off", Summary: "two rates in turn", New: func() patternPart { return &OnOff{} }},
		{Name: "diurnal", Summary: "a sine wave", New: func() patternPart { return &Diurnal{} }},
		{Name: "flash", Summary: "a sudden crowd", New: func() patternPart { return &Flash{} }},
	}
}

// PatternForms returns the forms of a part of a pattern.
func PatternForms() []settings.Form { return settings.Forms(patternKinds()) }

// ParsePattern parses "constant", "on-off:ON,OFF,FACTOR", "diurnal:PERIOD,AMPLITUDE", "flash:AT,DURATION,FACTOR" or
// "flash:AT,DURATION,FACTOR,ADAPTER", or several different parts joined by "+". Times are in seconds.
func ParsePattern(s string) (p Pattern, err error) {
	seen := map[string]bool{}
	for text := range strings.SplitSeq(s, "+") {
		part, err := settings.Parse("pattern", patternKinds(), text)
		if err != nil {
			return Pattern{}, err
		}
		if seen[part.Name] {
			return Pattern{}, fmt.Errorf("pattern %s is given twice", part.Name)
		}
		seen[part.Name] = true
		part.Value.set(&p)
	}
	return p, nil
}

// clock converts between time and operational time, the integral of the rate pattern over time. It walks forward
// through the segments with a constant factor of on-off and flash crowd, so calls must not go back in time. It
// ignores a flash crowd on one adapter.
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

// enter sets the fields of the segment that begins at from.
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
