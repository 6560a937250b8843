package synth

import (
	"fmt"
	"math"
	"testing"

	"lorasim/internal/testutil"

	"pgregory.net/rapid"
)

// multiplier is the rate pattern as its documentation defines it.
func multiplier(p Pattern, t float64) float64 {
	m := 1.0
	if o := p.OnOff; o.Off > 0 && math.Mod(t, o.On+o.Off) >= o.On {
		m *= o.Factor
	}
	if d := p.Diurnal; d.Period > 0 {
		m *= 1 + d.Amplitude*math.Sin(2*math.Pi*t/d.Period)
	}
	if f := p.Flash; f.Duration > 0 && f.Adapter == AllAdapters && t >= f.At && t < f.At+f.Duration {
		m *= f.Factor
	}
	return m
}

var everyPart = Pattern{
	OnOff:   OnOff{On: 3, Off: 1.5, Factor: 0.25},
	Diurnal: Diurnal{Period: 20, Amplitude: 0.7},
	Flash:   Flash{At: 7, Duration: 4, Factor: 5, Adapter: AllAdapters},
}

// The clock's closed forms against a midpoint sum of the definition.
func TestClockIntegratesThePattern(t *testing.T) {
	for _, p := range []Pattern{
		{},
		{OnOff: everyPart.OnOff},
		{Diurnal: everyPart.Diurnal},
		{Flash: everyPart.Flash},
		everyPart,
		{OnOff: OnOff{On: 1, Off: 2}, Diurnal: Diurnal{Period: 5, Amplitude: 1}},
		{Flash: Flash{At: 0, Duration: 3, Factor: 2, Adapter: AllAdapters}, OnOff: OnOff{On: 3, Off: 3, Factor: 2}},
	} {
		c := newClock(p)
		const step = 1e-4
		sum := 0.0
		for i := range 500_000 {
			sum += step * multiplier(p, (float64(i)+0.5)*step)
			if i%50_000 == 49_999 {
				at := float64(i+1) * step
				// Rounding may put an edge into the wrong step: at most 5*step each.
				testutil.Near(t, fmt.Sprintf("%+v up to %v", p, at), c.operational(at), sum, 0.005)
			}
		}
	}
}

func drawPattern(t *rapid.T) Pattern {
	var p Pattern
	if rapid.Bool().Draw(t, "on-off") {
		p.OnOff = OnOff{
			On:     rapid.Float64Range(0.01, 100).Draw(t, "on"),
			Off:    rapid.Float64Range(0.01, 100).Draw(t, "off"),
			Factor: rapid.SampledFrom([]float64{0, 0.1, 1, 3}).Draw(t, "off factor"),
		}
	}
	if rapid.Bool().Draw(t, "diurnal") {
		p.Diurnal = Diurnal{
			Period:    rapid.Float64Range(0.1, 1e5).Draw(t, "period"),
			Amplitude: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "amplitude"),
		}
	}
	if rapid.Bool().Draw(t, "flash") {
		p.Flash = Flash{
			At:       rapid.Float64Range(0, 500).Draw(t, "at"),
			Duration: rapid.Float64Range(0.01, 100).Draw(t, "duration"),
			Factor:   rapid.Float64Range(1, 20).Draw(t, "factor"),
			Adapter:  int32(rapid.IntRange(-1, 3).Draw(t, "adapter")),
		}
	}
	return p
}

// time is the inverse of operational, and neither goes back.
func TestClockInverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPattern(t)
		there, back, again := newClock(p), newClock(p), newClock(p)
		step := rapid.Float64Range(1e-3, 50).Draw(t, "step")
		tau, last := 0.0, 0.0
		for range 300 {
			tau += step
			at := there.time(tau)
			if at < last {
				t.Fatalf("%v: time went back from %v to %v", p, last, at)
			}
			last = at
			// What can be tested is tau: it may stand still while time goes on.
			if got := back.operational(at); math.Abs(got-tau) > 1e-9*(1+tau) {
				t.Fatalf("%v: operational(time(%v)) = %v", p, tau, got)
			}
			if got := again.time(tau); got != at {
				t.Fatalf("%v: time(%v) is %v, then %v", p, tau, at, got)
			}
		}
	})
}
