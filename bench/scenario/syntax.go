package scenario

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/router/push"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace/azure"
	"lorasim/trace/lengths"
	"lorasim/trace/resample"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

// The types of settings that users write as a text. Each has a syntax: how it is parsed, and what YAML, JSON Schema,
// reference and completion need to know. Code that reads such a setting uses its parsed value.
type (
	resampleText      = settings.Parsed[resample.Spec, resampleSyntax]
	namesText         = settings.Parsed[[]string, namesSyntax]
	ranksText         = settings.Parsed[synth.Ranks, ranksSyntax]
	prioritiesText    = settings.Parsed[[]int, prioritiesSyntax]
	popularityText    = settings.Parsed[synth.Popularity, popularitySyntax]
	arrivalsText      = settings.Parsed[synth.Arrivals, arrivalsSyntax]
	patternText       = settings.Parsed[synth.Pattern, patternSyntax]
	localityText      = settings.Parsed[synth.Locality, localitySyntax]
	sessionsText      = settings.Parsed[synth.Sessions, sessionsSyntax]
	conversationsText = settings.Parsed[synth.Conversations, conversationsSyntax]
	lengthsText       = settings.Parsed[lengthsChoice, lengthsSyntax]
	budgetText        = settings.Parsed[budgetChoice, budgetSyntax]
	instantText       = settings.Parsed[azure.Instant, instantSyntax]
	histogramText     = settings.Parsed[histogram, histogramSyntax]
	profilesText      = settings.Parsed[[]profileEntry, profilesSyntax]
	outagesText       = settings.Parsed[[]sim.Outage, outagesSyntax]
	pushText          = settings.Parsed[push.Options, pushSyntax]
	elasticText       = settings.Parsed[*elasticSpec, elasticSyntax]
	servingText       = settings.Parsed[profile.Serving, servingSyntax]
	policyText        = settings.Parsed[router.Choice, policySyntax]
	shedText          = settings.Parsed[admission.Shedding, shedSyntax]
	rateLimitText     = settings.Parsed[admission.RateLimit, rateLimitSyntax]
	warmupText        = settings.Parsed[result.Warmup, warmupSyntax]
)

// begins completes values by fixed beginnings. After a : or = at the end, more text must follow.
func begins(list string) func(string) []string {
	return func(string) []string { return strings.Fields(list) }
}

type resampleSyntax struct{}

func (resampleSyntax) Parse(text string) (resample.Spec, error) { return resample.Parse(text) }

func (resampleSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: resample.Forms, Example: "block:60"}
}

type namesSyntax struct{}

func (namesSyntax) Parse(text string) ([]string, error) { return parseNames(text) }

func (namesSyntax) Grammar() settings.Grammar { return settings.Grammar{Joined: ",", Example: "de,fr"} }

type ranksSyntax struct{}

func (ranksSyntax) Parse(text string) (synth.Ranks, error) { return synth.ParseRanks(text) }

func (ranksSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Joined: ",", Example: "8,16,64", Suggest: begins("8,16,32,64 drawn:")}
}

type prioritiesSyntax struct{}

func (prioritiesSyntax) Parse(text string) ([]int, error) { return parsePriorities(text) }

func (prioritiesSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Joined: ",", Example: "1,0,0", Suggest: begins("0 1,0,0,0")}
}

type popularitySyntax struct{}

func (popularitySyntax) Parse(text string) (synth.Popularity, error) {
	return synth.ParsePopularity(text)
}

func (popularitySyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.PopularityForms, Example: "explicit:5,3,1",
		Suggest: begins("zipf zipf: uniform powerlaw: maf2 explicit:")}
}

type arrivalsSyntax struct{}

func (arrivalsSyntax) Parse(text string) (synth.Arrivals, error) { return synth.ParseArrivals(text) }

func (arrivalsSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.ArrivalsForms, Example: "gamma:4",
		Suggest: begins("exponential gamma: weibull: pareto: deterministic total-exponential total-gamma: total-weibull: total-pareto: total-deterministic vllm:")}
}

type patternSyntax struct{}

func (patternSyntax) Parse(text string) (synth.Pattern, error) { return synth.ParsePattern(text) }

func (patternSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.PatternForms, Joined: "+", Example: "flash:200,120,15,1",
		Suggest: begins("constant on-off: diurnal: flash:")}
}

type localitySyntax struct{}

func (localitySyntax) Parse(text string) (synth.Locality, error) { return synth.ParseLocality(text) }

func (localitySyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.LocalityForms, Example: "0.5,8"}
}

type sessionsSyntax struct{}

func (sessionsSyntax) Parse(text string) (synth.Sessions, error) { return synth.ParseSessions(text) }

func (sessionsSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.SessionsForms, Example: "zipf:m=32,s=0.9", Suggest: begins("zipf:m= copy:m=")}
}

type conversationsSyntax struct{}

func (conversationsSyntax) Parse(text string) (synth.Conversations, error) {
	return synth.ParseConversations(text)
}

func (conversationsSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: synth.ConversationForms, Example: "agents:turns=20,system=8000"}
}

// lengthsChoice is a value of lengths: one of the words auto, random and none, or a law.
type lengthsChoice struct {
	word string // "": a law
	law  lengths.Law
}

// The words of lengths and max_new_tokens.
const (
	autoWord   = "auto"
	randomWord = "random"
	// NoLengths is a value of lengths that leaves requests without token counts.
	NoLengths = "none"
)

type lengthsSyntax struct{}

func (lengthsSyntax) Parse(text string) (c lengthsChoice, err error) {
	if slices.Contains([]string{autoWord, randomWord, NoLengths}, text) {
		return lengthsChoice{word: text}, nil
	}
	c.law, err = lengths.ParseLaw(text)
	return c, err
}

func (lengthsSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: lengths.Forms, Example: "copula:lengths.csv,rho=-0.3",
		Suggest: begins("auto sharegpt azure-conv azure-code sharegpt-llama3 sharegpt-qwen2 measured-rate4 measured-stride random constant: lognormal: copula: table: none")}
}

// budgetChoice is a value of max_new_tokens: one of the words auto, trace and exact, or another law.
type budgetChoice struct {
	word string // "": another law
	law  lengths.Budget
}

// Words of max_new_tokens.
const (
	budgetOfTrace = "trace"
	exactBudget   = "exact"
)

type budgetSyntax struct{}

func (budgetSyntax) Parse(text string) (c budgetChoice, err error) {
	switch text {
	case autoWord, budgetOfTrace:
		return budgetChoice{word: text}, nil
	case exactBudget:
		c.word = text
	}
	c.law, err = lengths.ParseBudget(text)
	return c, err
}

func (budgetSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: lengths.BudgetForms, Example: "mix:256=1,1024=3",
		Suggest: begins("auto trace exact uniform: lognormal:mean= mix: 1024 x1.5")}
}

type instantSyntax struct{}

func (instantSyntax) Parse(text string) (azure.Instant, error) { return azure.ParseInstant(text) }

func (instantSyntax) Grammar() settings.Grammar { return settings.Grammar{} }

// histogram is a value of trace_histogram: counts, or the name of a file.
type histogram struct {
	counts [][]int64 // of each adapter, by interval
	file   string    // "": counts
}

type histogramSyntax struct{}

func (histogramSyntax) Parse(text string) (h histogram, err error) {
	if strings.HasSuffix(text, ".json") {
		return histogram{file: text}, nil
	}
	h.counts, err = parseHistogram(text)
	if err == nil && !slices.ContainsFunc(slices.Concat(h.counts...), func(n int64) bool { return n > 0 }) {
		err = fmt.Errorf("%q holds no requests", text)
	}
	return h, err
}

func (histogramSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Paths: func(text string, to func(string) string) string {
		if strings.HasSuffix(text, ".json") {
			return to(text)
		}
		return text
	}}
}

type profilesSyntax struct{}

func (profilesSyntax) Parse(text string) ([]profileEntry, error) { return parseProfiles(text) }

func (profilesSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Joined: ",", Paths: mapProfilePaths,
		Example: "llama-2-7b-rtx-4090-sglang-0.5,llama-2-7b-rtx-4090-sglang-0.5*2",
		Suggest: func(string) []string { return append(profile.Names(), profile.AnalyticPrefix) }}
}

type outagesSyntax struct{}

func (outagesSyntax) Parse(text string) ([]sim.Outage, error) { return parseOutages(text) }

func (outagesSyntax) Grammar() settings.Grammar { return settings.Grammar{} }

type pushSyntax struct{}

func (pushSyntax) Parse(text string) (push.Options, error) { return push.Parse(text) }

func (pushSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: settings.FormOf[push.Options], Example: "workers=2,order=idle"}
}

type elasticSyntax struct{}

func (elasticSyntax) Parse(text string) (*elasticSpec, error) { return parseElastic(text) }

func (elasticSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: settings.FormOf[elasticSpec], Example: "min=1,max=8,rule=reactive,target=6"}
}

type servingSyntax struct{}

func (servingSyntax) Parse(text string) (profile.Serving, error) { return profile.ParseServing(text) }

func (servingSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Suggest: func(string) []string { return profile.Servings() }}
}

type policySyntax struct{}

func (policySyntax) Parse(text string) (router.Choice, error) { return router.Choose(text) }

func (policySyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: router.Forms, Canonical: router.Canonical, Example: "affinity-spill:threshold=4",
		Suggest: suggestPolicy}
}

type shedSyntax struct{}

func (shedSyntax) Parse(text string) (admission.Shedding, error) {
	return admission.ParseShedding(text)
}

func (shedSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: admission.ShedForms, Joined: "+", Example: "ttft:500",
		Suggest: begins("ttft: queue:")}
}

type rateLimitSyntax struct{}

func (rateLimitSyntax) Parse(text string) (admission.RateLimit, error) {
	return admission.ParseRateLimit(text)
}

func (rateLimitSyntax) Grammar() settings.Grammar {
	return settings.Grammar{Forms: admission.RateForms, Example: "2,burst=20", Suggest: begins("1 1,burst=")}
}

type warmupSyntax struct{}

func (warmupSyntax) Parse(text string) (result.Warmup, error) { return parseWarmup(text) }

func (warmupSyntax) Grammar() settings.Grammar { return settings.Grammar{} }

// suggestPolicy completes the spec of a policy.
func suggestPolicy(typed string) (list []string) {
	name, _, options := strings.Cut(typed, ":")
	given := typed[:strings.LastIndexAny(typed, ":,")+1]
	option, _, value := strings.Cut(typed[len(given):], "=")
	var aliases []string
	for _, d := range router.List() {
		switch {
		case !options:
			own := d.Name
			if router.CheckSpec(own) != nil {
				own += ":" // some option must be given
			}
			list = append(list, own+"\t"+d.Summary)
			for _, a := range d.Aliases {
				aliases = append(aliases, a+"\talias of "+d.Name)
			}
		case d.Name == name || slices.Contains(d.Aliases, name):
			for _, o := range d.Options {
				if !value {
					list = append(list, given+o.Name+"=\t"+o.Doc)
				} else if o.Name == option {
					for _, word := range o.Words {
						list = append(list, given+option+"="+word)
					}
				}
			}
		}
	}
	return append(list, aliases...)
}
