package epp

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// plugin is an instance of a plugin: whatever it implements of filter, scorer, picker, detector, admitter, committer,
// or one of the values below.
type plugin any

// ignored is a plugin that has no part in decisions here: parsers, sources of metrics, policies of queues.
type ignored struct{}

// single is single-profile-handler.
type single struct{}

// disagg is disagg-profile-handler: decode, then prefill where the decider says so.
type disagg struct {
	Deciders map[string]string `json:"deciders"`
	Profiles map[string]string `json:"profiles"`
}

// decider decides whether a prompt is prefilled on another server than the one that decodes.
type decider struct {
	NonCached int `json:"nonCachedTokens"`
	Prompt    int `json:"promptTokens"`
	always    bool
}

// splits decides for the endpoint that was picked to decode.
func (d *decider) splits(c *cycle, decode int32) bool {
	if d.always {
		return true
	}
	n, m := c.r.tokens(), c.match(decode)
	return d.NonCached > 0 && n >= d.NonCached && n >= d.Prompt && n-m.Blocks*m.Size >= d.NonCached
}

// producer of the prefix index or of in-flight counts.
type (
	indexProducer  struct{ indexParams }
	flightProducer struct{ flightParams }
)

// spec reads the parameters of a plugin.
type spec struct {
	pluginSpec
	dialect Dialect
}

// into decodes the parameters over their defaults. GIE ignores unknown ones.
func (s *spec) into(v any) error {
	if len(s.Parameters) == 0 {
		return nil
	}
	return decode(s.Parameters, v, s.dialect == LLMD)
}

// checked is implemented by parameters with a check of their values.
type checked interface{ check() error }

// read decodes parameters and checks them.
func read[T any](s *spec, v *T) (plugin, error) {
	err := s.into(v)
	if c, ok := any(v).(checked); ok && err == nil {
		err = c.check()
	}
	return v, err
}

// plain is a plugin without parameters.
func plain(p plugin) func(*spec) (plugin, error) {
	return func(s *spec) (plugin, error) {
		var none struct{}
		return p, s.into(&none)
	}
}

// kept is a plugin whose parameters are ignored.
func kept(p plugin) func(*spec) (plugin, error) {
	return func(*spec) (plugin, error) { return p, nil }
}

// build makes an instance of a type that both dialects or one of them has; ok is false for other types.
func build(s *spec) (p plugin, ok bool, err error) {
	for _, table := range []map[string]func(*spec) (plugin, error){common(), dialectTypes(s.dialect)} {
		if f := table[s.Type]; f != nil {
			p, err = f(s)
			return p, true, err
		}
	}
	return nil, false, nil
}

// common are the types of both dialects.
func common() map[string]func(*spec) (plugin, error) {
	return map[string]func(*spec) (plugin, error){
		"queue-scorer":                 plain(leastScorer{waiting}),
		"running-requests-size-scorer": plain(leastScorer{running}),
		"kv-cache-utilization-scorer":  plain(kvScorer{}),
		"lora-affinity-scorer":         plain(loraScorer{}),
		"latency-scorer": func(s *spec) (plugin, error) {
			return read(s, &latencyScorer{TTFT: 0.8, TPOT: 0.2, Strategy: "least", KV: 1, Queue: 1, Prefix: 1})
		},
		"token-load-scorer": func(s *spec) (plugin, error) {
			return read(s, &tokenLoadScorer{Threshold: 4194304, dialect: s.dialect})
		},
		"prefix-cache-affinity-filter": affinityOf,
		"slo-headroom-tier-filter": func(s *spec) (plugin, error) {
			return read(s, &tierFilter{Explore: 0.01})
		},
		"utilization-detector": func(s *spec) (plugin, error) {
			return read(s, &utilization{Queue: 5, KV: 0.8, Staleness: duration(200 * time.Millisecond)})
		},
		"concurrency-detector": func(s *spec) (plugin, error) {
			d := &concurrency{Mode: "requests", Requests: 100, MaxTokens: 1_000_000}
			if err := s.into(d); err != nil {
				return nil, err
			}
			return d, d.check(s.dialect)
		},
		"max-score-picker":       func(s *spec) (plugin, error) { return read(s, &maxScorePicker{pickParams{1}}) },
		"random-picker":          func(s *spec) (plugin, error) { return read(s, &randomPicker{pickParams{1}}) },
		"weighted-random-picker": func(s *spec) (plugin, error) { return read(s, &weightedPicker{pickParams{1}}) },

		"single-profile-handler": plain(single{}),
		"inflight-load-producer": func(s *spec) (plugin, error) {
			return read(s, &flightProducer{flightParams{OutputRatio: 1.5, dialect: s.dialect}})
		},
		"header-based-testing-filter":          kept(testingFilter{}),
		"destination-endpoint-served-verifier": kept(ignored{}),
		"openai-parser":                        kept(ignored{}),
		"passthrough-parser":                   kept(ignored{}),
		"metrics-data-source":                  kept(ignored{}),
		"core-metrics-extractor":               kept(ignored{}),
		"global-strict-fairness-policy":        kept(ignored{}),
		"round-robin-fairness-policy":          kept(ignored{}),
		"fcfs-ordering-policy":                 kept(ignored{}),
		"edf-ordering-policy":                  kept(ignored{}),
		"slo-deadline-ordering-policy":         kept(ignored{}),
		"static-usage-limit-policy":            kept(ignored{}),
	}
}

// affinityOf reads prefix-cache-affinity-filter, whose defaults differ.
func affinityOf(s *spec) (plugin, error) {
	f := &affinityFilter{Threshold: 0.8, Explore: 0.01, MaxTTFT: 5000, dialect: s.dialect}
	if s.dialect == LLMD {
		f.Explore, f.MaxTTFT, f.Source, f.PeakPrefill = 0, 18000, "prefillThroughput", 15928
	}
	return read(s, f)
}

// dialectTypes are the types of one dialect, or those with other parameters there.
func dialectTypes(d Dialect) map[string]func(*spec) (plugin, error) {
	if d == GIE {
		return map[string]func(*spec) (plugin, error){
			"prefix-cache-scorer":          giePrefix,
			"approx-prefix-cache-producer": gieIndex,
		}
	}
	return map[string]func(*spec) (plugin, error){
		"prefix-cache-scorer": func(s *spec) (plugin, error) {
			return read(s, &prefixScorer{Scale: 8192})
		},
		"approx-prefix-cache-producer": func(s *spec) (plugin, error) {
			return read(s, &indexProducer{defaultIndex(LLMD)})
		},
		"token-producer": tokenProducer,
		"active-request-scorer": func(s *spec) (plugin, error) {
			return read(s, &activeScorer{Busy: 1})
		},
		"load-aware-scorer": func(s *spec) (plugin, error) { return read(s, &loadAwareScorer{128}) },
		"no-hit-lru-scorer": func(s *spec) (plugin, error) {
			p := &noHitScorer{Size: 1024}
			err := s.into(p)
			p.used = newLRU(p.Size)
			return p, err
		},
		"utilization-filter":     func(s *spec) (plugin, error) { return read(s, &utilizationFilter{}) },
		"label-selector-filter":  func(s *spec) (plugin, error) { return read(s, &labelFilter{}) },
		"by-label-selector":      func(s *spec) (plugin, error) { return read(s, &labelFilter{}) },
		"decode-filter":          kept(decodeRole),
		"prefill-filter":         kept(prefillRole),
		"encode-filter":          kept(encodeRole),
		"disagg-profile-handler": func(s *spec) (plugin, error) { return read(s, &disagg{}) },
		"always-disagg-pd-decider": func(s *spec) (plugin, error) {
			return read(s, &decider{always: true})
		},
		"prefix-based-pd-decider": func(s *spec) (plugin, error) { return read(s, &decider{}) },
		"disagg-headers-handler":  kept(ignored{}),
		"probabilistic-admitter":  kept(probabilisticAdmitter{}),
		"anthropic-parser":        kept(ignored{}),
		"vllmhttp-parser":         kept(ignored{}),
		"sglanghttp-parser":       kept(ignored{}),
	}
}

// Roles of llm-d.ai/role.
var (
	decodeRole  = roleFilter{[]string{"decode", "prefill-decode", "both", "encode-prefill-decode"}, true}
	prefillRole = roleFilter{[]string{"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"},
		false}
	encodeRole = roleFilter{[]string{"encode", "encode-prefill", "encode-prefill-decode"}, false}
)

// gieParams are the parameters of the prefix index in GIE, with a name of older versions.
type gieParams struct {
	indexParams
	OldBlock int `json:"blockSize"`
}

// readGIEIndex reads and checks them.
func readGIEIndex(s *spec) (indexParams, error) {
	p := gieParams{indexParams: defaultIndex(GIE)}
	if err := s.into(&p); err != nil {
		return p.indexParams, err
	}
	switch {
	case p.OldBlock > 0 && p.Block <= 0:
		return p.indexParams, fmt.Errorf("blockSize (%d) is deprecated; use blockSizeTokens", p.OldBlock)
	case !p.AutoTune && p.Block <= 0:
		return p.indexParams, fmt.Errorf("blockSizeTokens must be above 0 without autoTune, got %d", p.Block)
	}
	return p.indexParams, nil
}

// gieScorer is prefix-cache-scorer of GIE: its parameters are those of the producer that it brings along.
type gieScorer struct {
	prefixScorer
	index indexParams
}

func giePrefix(s *spec) (plugin, error) {
	p, err := readGIEIndex(s)
	return &gieScorer{index: p}, err
}

func gieIndex(s *spec) (plugin, error) {
	p, err := readGIEIndex(s)
	return &indexProducer{p}, err
}

// tokenProducer takes the estimate alone; tokens of a real tokenizer need an engine.
func tokenProducer(s *spec) (plugin, error) {
	var p struct {
		Estimate  json.RawMessage `json:"estimate"`
		ModelName string          `json:"modelName"`
		VLLM      json.RawMessage `json:"vllm"`
	}
	if err := s.into(&p); err != nil {
		return nil, err
	}
	if len(p.VLLM) > 0 {
		return unsupported{"parameter vllm: tokens of an engine's tokenizer"}, nil
	}
	return ignored{}, nil
}

// unsupported is a plugin that the real picker has and this package does not run.
type unsupported struct{ what string }

// unsupportedTypes are the types of a dialect that this package does not run.
func unsupportedTypes(d Dialect) []string {
	list := []string{"predicted-latency-producer", "predicted-latency-scorer", "latency-slo-admitter",
		"vllmgrpc-parser",
		"k8s-notification-source", "endpoint-notification-source", "request-attribute-reporter",
		"eviction-sheddable-filter", "eviction-priority-time-ordering"}
	if d == LLMD {
		list = append(list, "context-length-aware", "endpoint-attribute-scorer", "header-label-affinity-scorer",
			"session-affinity-scorer", "topology-affinity-scorer", "mm-embeddings-cache-scorer",
			"precise-prefix-cache-producer", "precise-prefix-cache-scorer", "burst-prefix-cache-producer",
			"p2p-source-producer", "by-label", "endpoint-attribute-filter", "session-affinity-filter",
			"topology-affinity-filter", "pd-profile-handler", "prefill-header-handler", "header-profile-handler",
			"data-parallel-profile-handler", "priority-holdback-policy", "soft-reflective-ceiling-policy",
			"sglanggrpc-parser", "vertexai-parser", "lora-load-state-scorer", "no-hit-lru-filter", "file-discovery")
	}
	return list
}

// known says whether a type exists in a dialect.
func known(d Dialect, typ string) bool {
	return common()[typ] != nil || dialectTypes(d)[typ] != nil || slices.Contains(unsupportedTypes(d), typ)
}

// weightOf is the weight of a scorer in a profile.
func weightOf(u use) (float64, error) {
	if u.Weight == nil {
		return 1, nil
	}
	if w := *u.Weight; math.IsNaN(w) || math.IsInf(w, 0) {
		return 0, fmt.Errorf("weight %g: expected a finite number", w)
	}
	return *u.Weight, nil
}
