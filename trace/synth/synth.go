// Package synth generates workloads without any file: adapter popularity,
// arrival processes, rate patterns, drift and locality. It is the program's
// default source of requests.
//
//	cfg := synth.Default()
//	cfg.Adapters = 64
//	cfg.Arrivals, err = synth.ParseArrivals("gamma:4")
//	cfg.Pattern, err = synth.ParsePattern("diurnal:86400,0.5+flash:600,60,10")
//	src, err := synth.New(cfg)
//
// The requests carry arrival times and adapters; token counts are another
// package's business. Same Config, same requests: every adapter draws from its
// own stream, derived from the seed, so adapters are independent of each other
// and of how many there are.
//
// # Time
//
// Arrivals are renewal processes in operational time, in which a process of
// rate r expects r arrivals per second. A rate pattern m(t) stretches that
// time: operational time tau happens when the integral of m from 0 to t
// reaches tau. Each process starts in equilibrium (its first gap is a residual
// life), so the expected number of requests up to time t is exactly rate times
// the integral of m, from the first second on and for every CV.
package synth

import (
	"fmt"
	"math"

	"lorasim/trace"
)

// Limits of a Config. They keep arrival times finite and indices in an int32.
const (
	MaxAdapters = 10_000_000
	minRate     = 1e-9 // requests/s
	maxRate     = 1e9
)

// Config describes a synthetic workload.
type Config struct {
	Adapters   int        // number of adapters, >= 1
	Ranks      Ranks      // LoRA ranks of the adapters
	Popularity Popularity // how requests spread over the adapters
	Arrivals   Arrivals   // distribution of the gaps between requests
	Rate       float64    // requests/s of all adapters where Pattern is 1; +Inf: all at time 0
	Pattern    Pattern    // how the rate varies with time
	Drift      float64    // s between rotations of the popularity by one rank; 0: none
	Locality   Locality   // repetition of recently used adapters
	Sessions   Sessions   // requests in runs to one adapter, which replaces Popularity and Arrivals
	Requests   int64      // end after so many; 0: no limit
	Duration   float64    // end at this time, s; 0: no limit
	Seed       uint64
}

// Default is the workload of a run without arguments: 32 adapters of rank 16,
// Zipf 0.9, 8 requests/s, exponential gaps, without end.
func Default() Config {
	return Config{
		Adapters:   32,
		Ranks:      Ranks{Values: []int{16}},
		Popularity: Popularity{Kind: Zipf, Param: defaultZipf},
		Arrivals:   Arrivals{Dist: Exponential, CV: 1},
		Rate:       8,
		Seed:       1,
	}
}

// Check says what is wrong with the configuration, or nil.
func (c Config) Check() error {
	switch {
	case c.Adapters < 1 || c.Adapters > MaxAdapters:
		return fmt.Errorf("number of adapters is %d, expected 1 to %d", c.Adapters, MaxAdapters)
	case !math.IsInf(c.Rate, 1) && !(c.Rate >= minRate && c.Rate <= maxRate):
		return fmt.Errorf("rate is %v requests/s, expected %g to %g, or inf for all at time 0", c.Rate, minRate, maxRate)
	case !(c.Drift >= 0) || math.IsInf(c.Drift, 0):
		return fmt.Errorf("drift is %v s, expected a finite time, or 0 for none", c.Drift)
	case c.Requests < 0:
		return fmt.Errorf("number of requests is %d, expected >= 1, or 0 for no limit", c.Requests)
	case !(c.Duration >= 0) || math.IsInf(c.Duration, 0):
		return fmt.Errorf("duration is %v s, expected a finite time, or 0 for no limit", c.Duration)
	}
	for _, check := range []func() error{
		c.Ranks.Check,
		func() error { return c.Popularity.Check(c.Adapters) },
		c.Arrivals.Check,
		func() error { return c.Pattern.Check(c.Adapters) },
		c.Locality.Check,
		c.checkSessions,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if math.IsInf(c.Rate, 1) {
		return c.checkInstant()
	}
	return nil
}

// checkSessions refuses what has no meaning together with sessions.
func (c Config) checkSessions() error {
	if c.Sessions.Kind == "" {
		return nil
	}
	if err := c.Sessions.Check(); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	switch {
	case math.IsInf(c.Rate, 1):
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for sessions")
	case c.Arrivals != Arrivals{Dist: Exponential, CV: 1}:
		return fmt.Errorf("sessions have gaps of their own and leave no room for arrivals %s", c.Arrivals)
	case c.Locality.P > 0:
		return fmt.Errorf("sessions repeat adapters by themselves and leave no room for locality")
	case c.Pattern.Flash.Duration > 0 && c.Pattern.Flash.Adapter != AllAdapters:
		return fmt.Errorf("sessions leave no room for a flash crowd on one adapter")
	}
	return nil
}

// checkInstant refuses what has no meaning when all requests arrive at time 0.
func (c Config) checkInstant() error {
	switch {
	case c.Pattern != Pattern{}:
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for the rate pattern %q", c.Pattern)
	case c.Drift > 0:
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for drift")
	case c.Duration > 0 && c.Requests == 0:
		return fmt.Errorf("rate inf with a duration never ends, expected a number of requests")
	}
	return nil
}

// New returns the workload's requests, with Prompt and Output 0.
func New(c Config) (trace.Source, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("synthetic workload: %w", err)
	}
	g, err := newGenerator(c)
	if err != nil {
		return nil, fmt.Errorf("synthetic workload: %w", err)
	}
	return g, nil
}
