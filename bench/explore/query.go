package explore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/sim/profile"
)

// Keys of what a query has beside settings; that of a policy is followed by its index.
const (
	keyPolicy = "policy."
	keySLO    = "slo"
	keyPrice  = "price"
	keySeeds  = "seeds"
)

// A Fault is an error in a field of the page.
type Fault struct {
	Key     string `json:"key"` // key of a setting, or policy.INDEX, slo, price or seeds; "": no single field
	Message string `json:"message"`
}

// Checked is the result of checking a query before it runs.
type Checked struct {
	Faults []Fault `json:"faults"` // if there are any, nothing runs
	// Effective holds the values that the profile and the workload supply for unset settings, by key.
	Effective map[string]string `json:"effective,omitempty"`
	Notes     []string          `json:"notes,omitempty"`  // on settings without effect
	Target    float64           `json:"target,omitempty"` // share of requests that must be within the SLO; 0: no SLO
	SLO       string            `json:"slo,omitempty"`    // limits of the SLO, in words
	*Reproduce
}

// target is the share of requests that must be within the SLO; 0: there is no SLO.
func (p *plan) target() float64 {
	if p.slo.Empty() {
		return 0
	}
	return cmp.Or(p.slo.Attain, result.DefaultAttain)
}

// limits returns the limits of the SLO in words: "TTFT ≤ 1000 ms, TPOT ≤ 50 ms".
func (p *plan) limits() string {
	var parts []string
	for _, l := range []struct {
		name string
		ms   float64
	}{{"TTFT", p.slo.TTFT}, {"TPOT", p.slo.TPOT}, {"E2E latency", p.slo.E2E}} {
		if l.ms > 0 {
			parts = append(parts, fmt.Sprintf("%s ≤ %g ms", l.name, l.ms))
		}
	}
	return strings.Join(parts, ", ")
}

// plan is a query that can run.
type plan struct {
	base     scenario.Scenario // its policy does not count
	policies []string
	routing  []scenario.Routing // with each of the policies
	slo      result.SLO
	prices   prices
	seeds    int
}

// of is the scenario of a policy with a seed, counted from 0.
func (p *plan) of(policy, seed int) *scenario.Scenario {
	sc := p.base
	sc.Routing = p.routing[policy]
	sc.Seed += uint64(seed)
	return &sc
}

// resolve reads a query. It returns a fault for each invalid field.
func (x *Explorer) resolve(q Query) (*plan, []Fault) {
	p := &plan{base: scenario.Default(), seeds: 1}
	p.base.Files = x.files
	var faults []Fault
	fault := func(key string, err error) {
		if err != nil {
			faults = append(faults, Fault{key, err.Error()})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(q.Settings)) {
		f, err := scenario.Find(key)
		if err == nil && f.Key != key {
			err = fmt.Errorf("expected the whole key, %s", f.Key)
		}
		if err == nil {
			err = f.Check(q.Settings[key])
		}
		if err == nil {
			err = f.Set(&p.base, q.Settings[key])
		}
		fault(key, err)
	}
	fault("workload.num_prompts", most(p.base.Workload.NumPrompts.Value, x.limits.Requests, "requests"))
	fault("workload.num_adapters", most(int64(p.base.Workload.NumAdapters.Value), int64(x.limits.Adapters), "adapters"))
	if n, err := p.base.Workers(); err == nil {
		fault("cluster.num_workers", most(int64(n), int64(x.limits.Workers), "workers"))
	}
	var err error
	p.slo, err = result.ParseSLO(q.SLO)
	fault(keySLO, err)
	p.prices, err = parsePrices(q.Price)
	fault(keyPrice, err)
	p.seeds, err = parseSeeds(q.Seeds, x.limits.Seeds)
	fault(keySeeds, err)
	p.policies = q.Policies
	faults = append(faults, checkPolicies(q.Policies)...)
	for i, policy := range q.Policies {
		sc := p.base
		if err := sc.Set("policy", policy); err != nil && len(faults) == 0 {
			fault(keyPolicy+strconv.Itoa(i), err)
		}
		p.routing = append(p.routing, sc.Routing)
	}
	return p, faults
}

// most is an error where n is more than the explorer takes.
func most(n, limit int64, what string) error {
	if n <= limit {
		return nil
	}
	return fmt.Errorf("%d %s: the explorer takes at most %d; lorasim sim has no limit", n, what, limit)
}

func checkPolicies(policies []string) (faults []Fault) {
	if n := len(policies); n == 0 || n > MaxPolicies {
		return []Fault{{keyPolicy + "0", fmt.Sprintf("%d policies, expected 1 to %d", n, MaxPolicies)}}
	}
	field, err := scenario.Find("routing.policy")
	for i, policy := range policies {
		if err == nil {
			err = field.Check(policy)
		}
		if err == nil && slices.Contains(policies[:i], policy) {
			err = fmt.Errorf("%s is given twice", policy)
		}
		if err != nil {
			faults = append(faults, Fault{keyPolicy + strconv.Itoa(i), err.Error()})
		}
		err = nil
	}
	return faults
}

func parseSeeds(text string, limit int) (int, error) {
	n, err := strconv.Atoi(cmp.Or(strings.TrimSpace(text), "1"))
	if err != nil || n < 1 || n > limit {
		return 1, fmt.Errorf("%q, expected a number of seeds from 1 to %d", text, limit)
	}
	return n, nil
}

// prices are the prices of a worker per hour, by the name of its profile; the key "" is any profile. nil: unknown.
type prices map[string]float64

func parsePrices(text string) (prices, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	p := prices{}
	add := func(name, number string) error {
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("%q, expected a price per worker and hour such as 0.7, or PROFILE=PRICE,PROFILE=PRICE", text)
		}
		p[profile.Canonical(strings.TrimSpace(name))] = x
		return nil
	}
	if !strings.Contains(text, "=") {
		return p, add("", text)
	}
	for part := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q, expected PROFILE=PRICE", strings.TrimSpace(part))
		}
		if err := add(name, number); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// hour is what workers cost an hour; an error names a profile without a price.
func (p prices) hour(ps []*profile.Profile) (sum float64, err error) {
	for _, w := range ps {
		x, ok := p[w.Name]
		if !ok {
			x, ok = p[""]
		}
		if !ok {
			return 0, fmt.Errorf("profile %s has no price", w.Name)
		}
		sum += x
	}
	return sum, nil
}

// faultOf puts an error beside the field that it is about: the first setting that it names. Errors of a scenario name
// settings; those of files name the file.
func (p *plan) faultOf(err error) Fault {
	text := err.Error()
	var wrong *scenario.Fault
	if errors.As(err, &wrong) {
		text = wrong.Error()
	}
	for _, f := range scenario.Fields() {
		if value := f.Get(&p.base); strings.Contains(value, "/") && strings.Contains(text, value) {
			return Fault{f.Key, text}
		}
	}
	best, at := "", len(text)
	for _, f := range scenario.Fields() {
		for _, name := range []string{f.Key, f.Leaf()} {
			if i := wordIn(text, name); name != "name" && i >= 0 && i < at {
				best, at = f.Key, i
			}
		}
	}
	if best == "routing.policy" {
		best = keyPolicy + strconv.Itoa(p.policyIn(text))
	}
	return Fault{best, text}
}

// policyIn returns the index of the policy that a text names, or 0 if it names none.
func (p *plan) policyIn(text string) int {
	for i, policy := range p.policies {
		if name, _, _ := strings.Cut(policy, ":"); wordIn(text, name) >= 0 {
			return i
		}
	}
	return 0
}

// wordIn is the place of a whole word in a text; -1: it is not there.
func wordIn(text, word string) int {
	isPart := func(c byte) bool {
		return c == '_' || c == '-' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return -1
		}
		i += from
		end := i + len(word)
		if (i == 0 || !isPart(text[i-1])) && (end == len(text) || !isPart(text[end])) {
			return i
		}
		from = i + 1
	}
}
