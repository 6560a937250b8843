// Package sweep runs a scenario many times, over a grid of settings, policies and seeds. It summarizes the results
// with confidence intervals.
//
//	spec, err := sweep.LoadSpec(ctx, "migration-interval.yaml")
//	m, err := spec.Plan(ctx)
//	dir, err := sweep.Create("out", m)             // out/manifest.json
//	sum, err := dir.Run(ctx, sweep.RunOptions{})   // out/cells/*.parquet
//	tables, err := dir.Merge(sweep.MergeOptions{}) // out/{cells,table}.{csv,jsonl,parquet}
//
// A [Cell] is one run of the grid. Cells with the same seed have the same requests at the same times, whatever the
// policy (common random numbers). Policies are compared seed by seed, which needs far fewer seeds than a comparison of
// means.
//
// A sweep is stored in a folder ([Dir]). Its [Manifest] lists every cell, and grows when policies, seeds or values are
// added. Each cell has one file, named by the hash of its inputs and written atomically. So an interrupted sweep can
// continue, and many machines that share the folder can run parts of it (see [Shard] and [Job]). The content of the
// files depends only on the manifest, not on the machine or the order of the runs.
package sweep

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/internal/yamlerr"
	"lorasim/internal/yamlfile"
	"lorasim/router"
	"lorasim/trace/settings"
)

// A Spec describes a sweep: a scenario, and what to vary in it. Without policies, the sweep runs the scenario's
// policy. Without a baseline, the first policy is the baseline.
type Spec struct {
	Name  string
	About string // one sentence for people
	// Scenario is the base. Its values of varied settings have no effect.
	Scenario scenario.Scenario
	Grid
	// SeedCount is the number of seeds if Seeds is empty, counted up from the scenario's seed. 0: 5, or 1 if all seeds
	// have the same workload.
	SeedCount int
}

// Grid states what a sweep varies, and how its results are compared.
type Grid struct {
	Axes     []Axis   `json:"axes"` // settings other than policy and seed
	Policies []string `json:"policies"`
	Seeds    []uint64 `json:"seeds"`
	Baseline string   `json:"baseline"`          // policy that the others are compared with
	Goodput  string   `json:"goodput,omitempty"` // SLO, see result.ParseSLO; "": none
	Oracle   bool     `json:"oracle,omitempty"`  // compute the bound that assumes perfect knowledge
}

const maxCells = 1_000_000

// cells is the number of cells, with an error where there are too many.
func (g *Grid) cells() (n int, err error) {
	n = len(g.Policies) * len(g.Seeds)
	for _, a := range g.Axes {
		if n *= len(a.Values); n > maxCells {
			return n, fmt.Errorf("the sweep has more than %d cells", maxCells)
		}
	}
	return n, nil
}

// mapPaths replaces the names of files in the grid by f of them.
func (g *Grid) mapPaths(f func(string) string) {
	axes, policies := make([]Axis, len(g.Axes)), make([]string, len(g.Policies))
	for i, a := range g.Axes {
		axes[i].Key = a.Key
		for _, v := range a.Values {
			axes[i].Values = append(axes[i].Values, setting(a.Key).MapPaths(v, f))
		}
	}
	for i, p := range g.Policies {
		policies[i] = mapPolicy(p, f)
	}
	g.Axes, g.Policies, g.Baseline = axes, policies, mapPolicy(g.Baseline, f)
}

func mapPolicy(policy string, f func(string) string) string {
	return setting(policyKey).MapPaths(policy, f)
}

// setting is the setting of the scenario with a key that is known.
func setting(key string) scenario.Field {
	f, _ := scenario.Find(key)
	return f
}

// Add adds an axis. An axis on the policy or the seed sets Policies or Seeds. If a key is added twice, the later axis
// wins, so flags override files.
func (s *Spec) Add(a Axis) error {
	switch a.Key {
	case policyKey:
		s.Policies = a.Values
		return nil
	case seedKey:
		s.Seeds = nil
		for _, v := range a.Values {
			n, err := strconv.ParseUint(v, 10, 64)
			if err != nil {
				return fmt.Errorf("seed: %q is not a whole number >= 0", v)
			}
			s.Seeds = append(s.Seeds, n)
		}
		return nil
	}
	if i := slices.IndexFunc(s.Axes, func(b Axis) bool { return a.Key == b.Key }); i >= 0 {
		s.Axes[i] = a
	} else {
		s.Axes = append(s.Axes, a)
	}
	return nil
}

// LoadSpec reads a sweep file. Relative paths in the file are resolved against its folder.
func LoadSpec(ctx context.Context, file string) (*Spec, error) {
	data, err := textfile.ReadFile(ctx, file, textfile.MaxSettings)
	if err != nil {
		return nil, err
	}
	s, err := ParseSpec(data, file)
	if err != nil {
		return nil, err
	}
	in := scenario.In(filepath.Dir(file))
	if err := s.Scenario.MapPaths(in); err != nil {
		return nil, err
	}
	s.mapPaths(in)
	return s, nil
}

// ParseSpec reads a sweep from YAML; where names the file in errors:
//
//	name: migration-interval
//	about: How often is replanning worth it?
//	scenario:            # as for sim; what is left out has its default
//	  workload: {num_prompts: 20000}
//	set:
//	  num_workers: [2, 4, 8]
//	  request_rate: "4:16:4"   # or {from: 4, to: 16, step: 4}
//	policies: [static, {name: affinity-spill, threshold: 4}]
//	seeds: 10            # or a list
//	baseline: static
//	goodput: "ttft:500 tpot:50"
func ParseSpec(data []byte, where string) (*Spec, error) {
	s := &Spec{Scenario: scenario.Default()}
	root, err := yamlfile.Parse(data, where)
	if err != nil {
		return nil, fmt.Errorf("sweep %w", err)
	}
	if root == nil {
		return nil, fmt.Errorf("sweep %s: expected one document with keys and values", where)
	}
	pairs, ok := yamlerr.Pairs(root)
	if !ok {
		return nil, fmt.Errorf("sweep %s: expected keys and values", where)
	}
	var anchors settings.Anchors
	var errs []error
	for _, p := range pairs { // the parser refuses keys that are given twice
		if p.Key.String() == "scenario" {
			if s.Scenario, err = scenario.ParseNode(p.Value, where); err != nil {
				errs = append(errs, err)
			}
			continue
		}
		for _, err := range s.take(p.Key.String(), p.Value, &anchors) {
			errs = append(errs, fmt.Errorf("sweep %s:%w", where, settings.At(p.Key.GetToken().Position.Line, "", err)))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// take reads the value of any key but scenario, and returns all errors in it.
func (s *Spec) take(key string, v ast.Node, anchors *settings.Anchors) (errs []error) {
	pairs, ok := yamlerr.Pairs(v)
	if key != "set" || !ok {
		if err := s.takeOne(key, v, anchors); err != nil {
			errs = append(errs, err)
		}
		return errs
	}
	for _, p := range pairs {
		if err := s.takeAxis(p.Key.String(), p.Value, anchors); err != nil {
			errs = append(errs, settings.At(p.Key.GetToken().Position.Line, "", err))
		}
	}
	return errs
}

// takeOne reads the value of any key but scenario and set.
func (s *Spec) takeOne(key string, v ast.Node, anchors *settings.Anchors) (err error) {
	texts := map[string]*string{"name": &s.Name, "about": &s.About, "baseline": &s.Baseline, "goodput": &s.Goodput}
	switch count, isCount := v.(*ast.IntegerNode); {
	case texts[key] != nil:
		if *texts[key], err = text(v); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	case key == "set":
		return errors.New("set: expected keys and values")
	case key == "policies":
		return s.takeAxis(policyKey, v, anchors)
	case key == "seeds" && !isCount:
		return s.takeAxis(seedKey, v, anchors)
	case key == "seeds":
		s.Seeds = nil
		if s.SeedCount, err = strconv.Atoi(count.String()); err != nil || s.SeedCount < 1 || s.SeedCount > maxValues {
			return fmt.Errorf("seeds: %q is not a number of seeds from 1 to %d", count.String(), maxValues)
		}
	case slices.ContainsFunc(scenario.Fields(), func(f scenario.Field) bool { return f.Section == key }):
		return fmt.Errorf("unknown key %q: this is a scenario, which lorasim sweep takes with -f", key)
	default:
		return suggest.Unknown("key", key, []string{
			"name", "about", "scenario", "set", "policies", "seeds", "baseline", "goodput",
		})
	}
	return nil
}

//go:embed schema.json
var specSchema []byte

// Schema returns a JSON Schema of the files that commands read: a scenario, or a sweep of a scenario.
func Schema() map[string]any {
	type object = map[string]any
	var keys []string
	for _, f := range scenario.Fields() {
		if keys = append(keys, f.Key); f.Leaf() != f.Key {
			keys = append(keys, f.Leaf())
		}
	}
	var study object
	if err := json.Unmarshal(specSchema, &study); err != nil {
		panic(err) // a fault of this package
	}
	set := study["properties"].(object)["set"].(object)
	set["propertyNames"] = object{"enum": keys}
	defs := object{"scenario": scenario.Schema(), "sweep": study,
		"range": settings.ObjectSchema(settings.FormOf[numberRange]()[0])}
	set["properties"] = axesSchema(defs)
	var sweeps []any // keys that tell a sweep
	for _, key := range []string{"scenario", "set", "policies", "seeds"} {
		sweeps = append(sweeps, object{"required": []string{key}})
	}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A scenario of lorasim, or a sweep of one",
		"if": object{"anyOf": sweeps}, "then": object{"$ref": "#/$defs/sweep"},
		"else":  object{"$ref": "#/$defs/scenario"},
		"$defs": defs,
	}
}

// axesSchema describes the values of settings that may be more than texts and numbers, by both names of each. What it
// refers to goes into defs.
func axesSchema(defs map[string]any) map[string]any {
	type object = map[string]any
	axis := func(ref string) object {
		one := []any{object{"type": []string{"string", "number", "boolean"}}, object{"$ref": ref}}
		several := object{"type": "array", "minItems": 1, "items": object{"anyOf": append(slices.Clip(one),
			object{"type": "array", "minItems": 1, "items": object{"anyOf": one}})}}
		return object{"anyOf": append(slices.Clip(one), several)}
	}
	defs["numbers"] = axis("#/$defs/range")
	properties := object{}
	for _, f := range scenario.Fields() {
		name := "numbers"
		switch t := f.Type(); {
		case f.Nested():
			name = "values_of_" + f.Leaf()
			defs[name] = axis("#/$defs/scenario/properties/" + strings.ReplaceAll(f.Key, ".", "/properties/"))
		case t != "int" && t != "float":
			continue
		}
		ref := object{"$ref": "#/$defs/" + name}
		properties[f.Key], properties[f.Leaf()] = ref, ref
	}
	return properties
}

// takeAxis reads the values of one setting: one, or a list, in which a list is
// one value.
func (s *Spec) takeAxis(key string, v ast.Node, anchors *settings.Anchors) error {
	f, err := scenario.Find(key)
	if err != nil {
		return err
	}
	v, err = anchors.Resolve(v)
	if err != nil {
		return err
	}
	nodes := []ast.Node{v}
	if l, ok := v.(*ast.SequenceNode); ok {
		nodes = l.Values
	}
	var values []string
	for _, n := range nodes {
		value, err := axisValue(f, n, anchors)
		if err != nil {
			return settings.At(n.GetToken().Position.Line, key, err)
		}
		values = append(values, value)
	}
	a, err := NewAxis(key, values)
	if err != nil {
		return err
	}
	return s.Add(a)
}

// axisValue is the text of one value of a setting, or of a range of numbers.
func axisValue(f scenario.Field, n ast.Node, anchors *settings.Anchors) (string, error) {
	n, err := anchors.Resolve(n)
	if err != nil {
		return "", err
	}
	if _, isMapping := yamlerr.Pairs(n); isMapping && (f.Type() == "int" || f.Type() == "float") {
		return rangeText(n, anchors)
	}
	list, isList := n.(*ast.SequenceNode)
	if _, isMapping := yamlerr.Pairs(n); isMapping || isList && f.Nested() && len(list.Values) > 0 {
		value, ok, err := f.Text(n, anchors)
		if err == nil && !ok {
			err = errors.New("expected a value")
		}
		return value, err
	}
	if !isList {
		return text(n)
	}
	var parts []string
	for _, e := range list.Values {
		t, err := text(e)
		if err != nil {
			return "", err
		}
		parts = append(parts, t)
	}
	return strings.Join(parts, ","), nil
}

// numberRange is a range of numbers as keys and values; [expand] checks it.
type numberRange struct {
	From   float64 `required:"yes" check:"any" help:"first value"`
	To     float64 `required:"yes" check:"any" help:"last value"`
	Step   float64 `check:">0" help:"difference between values; for whole numbers 1 by default"`
	Factor float64 `check:">1" help:"ratio of values, in place of step"`
}

// Check implements settings.Checker.
func (r *numberRange) Check(settings.Given) error {
	if r.Step != 0 && r.Factor != 0 {
		return errors.New("both step and factor are given")
	}
	return nil
}

// rangeText is a range in the form of a flag: {from: 1, to: 64, factor: 2} is "1:64:x2".
func rangeText(n ast.Node, anchors *settings.Anchors) (string, error) {
	given, err := settings.DecodeYAML(n, anchors, new(numberRange))
	if err != nil {
		return "", err
	}
	from, _ := given.Text("from")
	to, _ := given.Text("to")
	if step, ok := given.Text("step"); ok {
		return from + ":" + to + ":" + step, nil
	}
	if factor, ok := given.Text("factor"); ok {
		return from + ":" + to + ":x" + factor, nil
	}
	return from + ":" + to, nil
}

// text returns a single value as it is written.
func text(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode:
		return n.GetToken().Value, nil
	}
	return "", errors.New("expected a single value")
}

// complete sets the defaults of the spec and checks it as a whole.
func (s *Spec) complete() error {
	if s.Axes == nil {
		s.Axes = []Axis{}
	}
	if len(s.Policies) == 0 {
		s.Policies = []string{s.Scenario.Routing.Policy.String()}
	}
	if len(s.Seeds) == 0 {
		s.Seeds = make([]uint64, cmp.Or(s.SeedCount, s.defaultSeeds()))
		for i := range s.Seeds {
			s.Seeds[i] = s.Scenario.Seed + uint64(i)
		}
	}
	s.Baseline = router.Canonical(cmp.Or(s.Baseline, s.Policies[0]))
	if err := suggest.Among("baseline", s.Baseline, s.Policies); err != nil {
		return err
	}
	slo, err := result.ParseSLO(s.Goodput)
	if err != nil {
		return fmt.Errorf("goodput: %w", err)
	}
	s.Goodput = slo.String()
	_, err = s.cells()
	return err
}

// defaultSeeds is the default number of seeds. With a single workload, more seeds only break ties differently.
func (s *Spec) defaultSeeds() int {
	sc := s.Scenario
	for _, a := range s.Axes {
		if err := sc.Set(a.Key, a.Values[0]); err != nil {
			return 5 // the plan says what is wrong
		}
	}
	if sc.Sampling() == stats.OneWorkload {
		return 1
	}
	return 5
}

// Keys that have a place of their own in a sweep.
const (
	policyKey  = "routing.policy"
	profileKey = "cluster.profile"
	seedKey    = "seed"
)
