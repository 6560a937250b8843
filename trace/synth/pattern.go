package synth

import (
	"fmt"
	"math"
	"strings"

	"lorasim/internal/suggest"
)

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

// The names of patterns in specs.
const (
	constant  = "constant"
	onOff     = "on-off"
	diurnal   = "diurnal"
	flash     = "flash"
	shortest  = 1e-3 // s; shorter phases are below the resolution that matters
	longest   = 1e12 // s
	maxFactor = 1e6
)

// ParsePattern reads "constant", "on-off:ON,OFF,FACTOR", "diurnal:PERIOD,AMPLITUDE",
// "flash:AT,DURATION,FACTOR" or "flash:AT,DURATION,FACTOR,ADAPTER" (times in
// seconds), or several different ones joined by "+".
func ParsePattern(s string) (Pattern, error) {
	var p Pattern
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, "+") {
		name, args := splitSpec(part)
		if seen[name] {
			return Pattern{}, fmt.Errorf("rate pattern %q: %s is given twice", s, name)
		}
		seen[name] = true
		if err := p.parsePart(name, args); err != nil {
			return Pattern{}, fmt.Errorf("rate pattern %q: %w", s, err)
		}
	}
	return p, nil
}

// parsePart sets one part of p from its spec.
func (p *Pattern) parsePart(name string, args []string) error {
	switch name {
	case constant:
		_, err := parseNumbers(args, 0, 0)
		return err
	case onOff:
		xs, err := parseNumbers(args, 3, 3)
		if err != nil {
			return fmt.Errorf("%s (on s, off s, off factor) %w", name, err)
		}
		p.OnOff = OnOff{On: xs[0], Off: xs[1], Factor: xs[2]}
		return p.OnOff.check()
	case diurnal:
		xs, err := parseNumbers(args, 2, 2)
		if err != nil {
			return fmt.Errorf("%s (period s, amplitude) %w", name, err)
		}
		p.Diurnal = Diurnal{Period: xs[0], Amplitude: xs[1]}
		return p.Diurnal.check()
	case flash:
		xs, err := parseNumbers(args, 3, 4)
		if err != nil {
			return fmt.Errorf("%s (at s, duration s, factor, adapter) %w", name, err)
		}
		p.Flash = Flash{At: xs[0], Duration: xs[1], Factor: xs[2], Adapter: AllAdapters}
		if len(xs) == 4 {
			if xs[3] != math.Trunc(xs[3]) || xs[3] < 0 || xs[3] >= MaxAdapters {
				return fmt.Errorf("flash adapter is %v, expected an adapter index", xs[3])
			}
			p.Flash.Adapter = int32(xs[3])
		}
		return p.Flash.check()
	}
	return suggest.Unknown("name", name, []string{constant, onOff, diurnal, flash})
}

// String returns the spec that ParsePattern reads.
func (p Pattern) String() string {
	var parts []string
	if o := p.OnOff; o != (OnOff{}) {
		parts = append(parts, formatSpec(onOff, o.On, o.Off, o.Factor))
	}
	if d := p.Diurnal; d != (Diurnal{}) {
		parts = append(parts, formatSpec(diurnal, d.Period, d.Amplitude))
	}
	if f := p.Flash; f != (Flash{}) {
		xs := []float64{f.At, f.Duration, f.Factor}
		if f.Adapter != AllAdapters {
			xs = append(xs, float64(f.Adapter))
		}
		parts = append(parts, formatSpec(flash, xs...))
	}
	if parts == nil {
		return constant
	}
	return strings.Join(parts, "+")
}

// Check says what is wrong with p for k adapters, or nil.
func (p Pattern) Check(k int) error {
	var err error
	switch {
	case p.OnOff != (OnOff{}) && p.OnOff.check() != nil:
		err = p.OnOff.check()
	case p.Diurnal != (Diurnal{}) && p.Diurnal.check() != nil:
		err = p.Diurnal.check()
	case p.Flash != (Flash{}) && p.Flash.check() != nil:
		err = p.Flash.check()
	case p.Flash != (Flash{}) && int(p.Flash.Adapter) >= k:
		err = fmt.Errorf("flash adapter is %d, expected 0 to %d", p.Flash.Adapter, k-1)
	}
	if err != nil {
		return fmt.Errorf("rate pattern: %w", err)
	}
	return nil
}

func (o OnOff) check() error {
	switch {
	case !(o.On >= shortest && o.On <= longest):
		return fmt.Errorf("on-off: on is %v s, expected %g to %g", o.On, shortest, longest)
	case !(o.Off >= shortest && o.Off <= longest):
		return fmt.Errorf("on-off: off is %v s, expected %g to %g", o.Off, shortest, longest)
	case !(o.Factor >= 0 && o.Factor <= maxFactor):
		return fmt.Errorf("on-off: off factor is %v, expected 0 to %g", o.Factor, maxFactor)
	}
	return nil
}

func (d Diurnal) check() error {
	switch {
	case !(d.Period >= shortest && d.Period <= longest):
		return fmt.Errorf("diurnal: period is %v s, expected %g to %g", d.Period, shortest, longest)
	case !(d.Amplitude >= 0 && d.Amplitude <= 1):
		return fmt.Errorf("diurnal: amplitude is %v, expected 0 to 1", d.Amplitude)
	}
	return nil
}

func (f Flash) check() error {
	switch {
	case !(f.At >= 0 && f.At <= longest):
		return fmt.Errorf("flash: start is %v s, expected 0 to %g", f.At, longest)
	case !(f.Duration >= shortest && f.Duration <= longest):
		return fmt.Errorf("flash: duration is %v s, expected %g to %g", f.Duration, shortest, longest)
	case !(f.Factor >= 1 && f.Factor <= maxFactor):
		return fmt.Errorf("flash: factor is %v, expected 1 to %g", f.Factor, maxFactor)
	case f.Adapter < AllAdapters:
		return fmt.Errorf("flash: adapter is %d, expected an index or %d for all", f.Adapter, AllAdapters)
	}
	return nil
}
