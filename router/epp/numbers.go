package epp

import (
	"fmt"
	"slices"
	"strings"
)

// Number is a number of a configuration that a study may change: the weight of a scorer, or a parameter of a plugin.
type Number struct {
	Plugin string // name of the plugin instance
	// Key is the name of the parameter; "": the weight. In a list, it is like "conditions.0.maxValue".
	Key   string
	Value float64 // current value
	// Low and High are the bounds of a search. The real loaders accept all values between them.
	Low, High float64
	Whole     bool // the number is an integer
	Share     bool // a share, which a search changes by sums; other numbers by factors
	// Missing: the configuration lacks the scorer. [Config.With] adds it. Value is 0.
	Missing bool
}

// Name returns the number's name in a [Change]: PLUGIN or PLUGIN.PARAMETER.
func (n Number) Name() string {
	if n.Key == "" {
		return n.Plugin
	}
	return n.Plugin + "." + n.Key
}

// maxWeight is the largest weight of a search. Decisions follow the ratios of weights, so whole numbers up to it reach
// the ratios from 1/16 to 16; all versions of the loaders take whole weights.
const maxWeight = 16

// tunable is a plugin whose parameters change decisions about requests of equal priority.
type tunable interface{ numbers() []Number }

// Numbers returns the numbers that affect decisions: the weights of the scorers of the first profile, the parameters of
// its plugins, and those of the producers that the plugins read. add lists types of scorers without parameters; those
// that the configuration lacks are returned as Missing. Plugins with one of ": / , + |" in their name are left out,
// because a [Change] cannot name them.
func (c *Config) Numbers(add ...string) (out []Number) {
	m, err := c.assemble()
	if err != nil {
		panic("epp: a parsed configuration does not assemble: " + err.Error())
	}
	made := map[string]plugin{}
	for i, name := range m.names {
		made[name] = m.all[i]
	}
	uses := c.doc.Profiles[0].Plugins
	for i, u := range uses {
		_, scores := made[u.Ref].(scorer)
		twice := slices.ContainsFunc(uses[:i], func(o use) bool { return o.Ref == u.Ref })
		if w, err := weightOf(u); scores && !twice && err == nil {
			out = append(out, Number{Plugin: u.Ref, Value: w, High: max(maxWeight, w), Low: min(0, w), Whole: true})
		}
	}
	for _, typ := range add {
		if c.canAdd(typ) {
			out = append(out, Number{Plugin: typ, High: maxWeight, Whole: true, Missing: true})
		}
	}
	for i, name := range m.names {
		p := m.all[i]
		used := slices.ContainsFunc(uses, func(u use) bool { return u.Ref == name })
		if t, ok := p.(tunable); ok && m.heeds(p, used) {
			for _, n := range t.numbers() {
				n.Plugin = name
				out = append(out, n)
			}
		}
	}
	return slices.DeleteFunc(out, func(n Number) bool { return strings.ContainsAny(n.Plugin, ":/,+|") })
}

// heeds says whether the parameters of a plugin have an effect: it stands in the profile, or the prefix index or the
// in-flight counts take them. With a producer beside it, GIE's prefix-cache-scorer has none.
func (m *machine) heeds(p plugin, used bool) bool {
	switch p := p.(type) {
	case *gieScorer:
		return m.index == &p.index
	case *indexProducer:
		return m.index == &p.indexParams
	case *flightProducer:
		return m.flight == &p.flightParams
	}
	return used
}

// canAdd says whether the configuration lacks a type of scorer that needs no parameters.
func (c *Config) canAdd(typ string) bool {
	return !c.has(typ) && c.find(typ) == nil && IsScorer(c.Dialect, typ)
}

// IsScorer reports whether a dialect has a scorer of type typ that needs no parameters.
func IsScorer(d Dialect, typ string) bool {
	p, ok, err := build(&spec{pluginSpec{Name: typ, Type: typ}, d})
	_, scores := p.(scorer)
	return ok && err == nil && scores
}

// whole, factor and share make numbers with bounds.
func whole(key string, value int64, low, high float64) Number {
	return bounded(Number{Key: key, Value: float64(value), Low: low, High: high, Whole: true})
}

func factor(key string, value, low, high float64) Number {
	return bounded(Number{Key: key, Value: value, Low: low, High: high})
}

func share(key string, value, low float64) Number {
	return bounded(Number{Key: key, Value: value, Low: low, High: 1, Share: true})
}

// bounded widens the bounds to what the configuration has today.
func bounded(n Number) Number {
	n.Low, n.High = min(n.Low, n.Value), max(n.High, n.Value)
	return n
}

func (s *tokenLoadScorer) numbers() []Number {
	return []Number{whole("queueThresholdTokens", int64(s.Threshold), 1024, 1<<24)}
}

func (s *latencyScorer) numbers() []Number {
	return []Number{factor("compositeKVWeight", s.KV, 0, maxWeight),
		factor("compositeQueueWeight", s.Queue, 0, maxWeight), factor("compositePrefixWeight", s.Prefix, 0, maxWeight)}
}

func (s *prefixScorer) numbers() []Number {
	return []Number{share("matchLengthWeight", s.Weight, 0), factor("matchLengthScaleTokens", s.Scale, 256, 1<<18)}
}

func (s *gieScorer) numbers() []Number     { return s.index.numbers() }
func (p *indexProducer) numbers() []Number { return p.indexParams.numbers() }

// numbers leaves out what metrics of the workers override (autoTune), and the LRU size, which GIE v1.5.0 ignores.
func (p *indexParams) numbers() []Number {
	least := 1.0
	if p.dialect == LLMD {
		least = minBlock
	}
	var out []Number
	if !p.AutoTune {
		out = append(out, whole("blockSizeTokens", int64(p.Block), least, 1024))
		if p.dialect == LLMD {
			out = append(out, whole("lruCapacityPerServer", int64(p.Capacity), 100, 1e7))
		}
	}
	if p.MaxTokens > 0 {
		return append(out, whole("maxPrefixTokensToMatch", int64(p.MaxTokens), least, 1<<20))
	}
	return append(out, whole("maxPrefixBlocksToMatch", int64(p.MaxBlocks), 1, 1<<14))
}

func (p *flightProducer) numbers() []Number {
	if !p.AddOutput || p.dialect == GIE {
		return nil
	}
	out := []Number{factor("outputRatio", p.OutputRatio, 0, maxWeight)}
	if p.MaxOutput > 0 {
		out = append(out, whole("maxEstimatedOutputTokens", int64(p.MaxOutput), 1, 1<<20))
	}
	return out
}

func (s *activeScorer) numbers() []Number {
	return []Number{whole("idleThreshold", s.Idle, 0, 256), share("maxBusyScore", s.Busy, 0)}
}

func (s *loadAwareScorer) numbers() []Number {
	return []Number{whole("threshold", int64(s.Threshold), 1, 4096)}
}

func (s *noHitScorer) numbers() []Number {
	return []Number{whole("lruSize", int64(s.Size), 1, 4096)}
}

// numbers has the penalties that need no predictor.
func (f *affinityFilter) numbers() []Number {
	out := []Number{share("affinityThreshold", f.Threshold, 0.05), share("explorationProbability", f.Explore, 0)}
	if f.dialect == LLMD && f.Source != "latencyPrediction" {
		out = append(out, whole("maxTTFTPenaltyMs", int64(f.MaxTTFT), 0, 120_000))
	}
	if f.MaxTokens > 0 {
		out = append(out, whole("maxTokensInFlightPenalty", f.MaxTokens, 1000, 1e7))
	}
	return out
}

func (u *utilization) numbers() []Number {
	return []Number{whole("queueDepthThreshold", int64(u.Queue), 1, 1024), share("kvCacheUtilThreshold", u.KV, 0.05)}
}

func (d *concurrency) numbers() (out []Number) {
	if d.Mode != "tokens" {
		out = append(out, whole("maxConcurrency", d.Requests, 1, 100_000))
	}
	if d.Mode != "requests" {
		out = append(out, whole("maxTokenConcurrency", d.MaxTokens, 1000, 1e8))
	}
	return out
}

func (f *utilizationFilter) numbers() (out []Number) {
	for i, x := range f.Conditions {
		key := fmt.Sprintf("conditions.%d.maxValue", i)
		if x.Metric == "kv-cache-utilization" {
			out = append(out, share(key, x.Max, 0.05))
		} else {
			out = append(out, factor(key, x.Max, 1, 4096))
		}
	}
	return out
}
