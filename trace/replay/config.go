package replay

import (
	"fmt"
	"math"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// Config describes the default replay. The window is cut into intervals; in
// each of them the requests of an adapter are a stationary renewal process of
// their own, whose rate is the adapter's in that interval. The random numbers
// of a process depend on the seed, the adapter and the interval alone, so that
// a change to one adapter leaves the others as they were.
type Config struct {
	Trace    azure.Format
	Path     string // file or folder
	Window   azure.Window
	Interval int // minutes, >= 1; the last interval of the window may be shorter
	Mapping  Mapping
	Read     azure.Options

	Seed         uint64
	Distribution Distribution
	CV           []float64 // of the gaps, by adapter, cycled; empty: 1
	CVScale      float64   // multiplies CV

	// TotalRate is the rate of all adapters together, in requests/s, in every
	// interval; the trace then gives the shares of the adapters. Intervals
	// without traffic give none and are left out: the next one follows at once.
	// 0 keeps the trace's own rates, and its silent intervals.
	TotalRate float64
	RateScale float64 // multiplies all rates
	// TimeScale multiplies the length of the intervals: 0.1 runs through the
	// window ten times as fast. The trace's own rates grow accordingly, so that
	// the number of requests stays; TotalRate does not.
	TimeScale float64

	// Requests ends the replay after so many. A window that gives fewer is
	// replayed again, with new random numbers, as often as it takes. 0 stands
	// for those of one pass over the window.
	Requests int64

	// Drift, in s, makes popularity move on: after each such time every adapter
	// takes over the traffic of the one that ranked before it, and the first
	// one that of the last. 0: never.
	Drift float64
	// Locality is the probability that a request uses one of the last Recent
	// distinct adapters, each equally likely, instead of its own.
	Locality float64
	Recent   int // adapters; Locality > 0 only
}

// Default returns the first hour of azure_v2 in one interval, at the trace's
// own rates, with gamma gaps of CV 1.
func Default() Config {
	return Config{
		Trace:        azure.V2,
		Window:       azure.Window{Start: 0, End: 60},
		Interval:     60,
		Mapping:      Mapping{Strategy: Stride, Stride: 1},
		Distribution: Gamma,
		CVScale:      1,
		RateScale:    1,
		TimeScale:    1,
		Recent:       4,
	}
}

// Check says what is wrong with c, or nil. Trace, Path, Window and Mapping are
// checked when they are used.
func (c Config) Check() error {
	if _, err := ParseDistribution(string(c.Distribution)); err != nil {
		return err
	}
	if c.Interval < 1 {
		return fmt.Errorf("interval is %d minutes, expected >= 1", c.Interval)
	}
	for _, f := range []struct {
		name     string
		v        float64
		zeroIsOK bool
	}{
		{"total rate", c.TotalRate, true},
		{"rate scale", c.RateScale, false},
		{"time scale", c.TimeScale, false},
		{"cv scale", c.CVScale, false},
		{"drift", c.Drift, true},
	} {
		if !(f.v >= 0) || math.IsInf(f.v, 1) || f.v == 0 && !f.zeroIsOK {
			return fmt.Errorf("%s is %v, expected a number %s 0", f.name, f.v, map[bool]string{true: ">=", false: ">"}[f.zeroIsOK])
		}
	}
	for k := range max(len(c.CV), 1) {
		if cv := c.cv(k); !(cv >= renewal.MinCV && cv <= renewal.MaxCV) {
			return fmt.Errorf("cv of adapter %d, scaled, is %v, expected %g to %g", k, cv, renewal.MinCV, renewal.MaxCV)
		}
	}
	switch {
	case c.Requests < 0:
		return fmt.Errorf("number of requests is %d, expected >= 0", c.Requests)
	case !(c.Locality >= 0 && c.Locality <= 1):
		return fmt.Errorf("locality is %v, expected a probability from 0 to 1", c.Locality)
	case c.Locality > 0 && c.Recent < 1:
		return fmt.Errorf("locality looks at %d recent adapters, expected >= 1", c.Recent)
	}
	return nil
}

// cv returns the coefficient of variation of an adapter.
func (c Config) cv(adapter int) float64 {
	if len(c.CV) == 0 {
		return c.CVScale
	}
	return c.CV[adapter%len(c.CV)] * c.CVScale
}

// Replay prepares the replay of the trace for the adapters.
func (c Config) Replay(adapters []trace.Adapter) (trace.Source, *Traffic, error) {
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	t, err := c.load(len(adapters))
	if err != nil {
		return nil, nil, fmt.Errorf("replay of %s: %w", c.Path, err)
	}
	src, err := newSource(c, adapters, t.Histogram, c.Window.Minutes())
	return src, t, err
}

// ReplayHistogram prepares the replay of known invocations by adapter and
// interval, without a trace: Trace, Path, Window and Mapping do not matter.
func (c Config) ReplayHistogram(adapters []trace.Adapter, counts [][]int64) (trace.Source, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if len(adapters) < 1 {
		return nil, errNoAdapters
	}
	if err := checkHistogram(counts, len(adapters)); err != nil {
		return nil, err
	}
	return newSource(c, adapters, counts, c.Interval*len(counts[0]))
}

func (c Config) load(adapters int) (*Traffic, error) {
	if adapters < 1 {
		return nil, errNoAdapters
	}
	if err := c.Mapping.Check(); err != nil {
		return nil, err
	}
	q := azure.Query{Format: c.Trace, Window: c.Window, Interval: c.Interval}
	h, err := azure.ReadHistogram(c.Path, q, c.Read)
	if err != nil {
		return nil, err
	}
	return c.Mapping.apply(h, c.Mapping.order(h), adapters, c.Window.Intervals(c.Interval))
}
