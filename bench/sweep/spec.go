package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/suggest"
	"lorasim/internal/yamlerr"
)

// DefaultSeeds is the number of seeds of a sweep that does not say.
const DefaultSeeds = 5

// Spec is what a sweep is to be: a scenario, and what to vary in it.
type Spec struct {
	Name  string
	About string // one sentence for people
	// Scenario is the base; what is varied does not matter in it.
	Scenario scenario.Scenario
	Axes     []Axis   // not the policy, not the seed
	Policies []string // none: the scenario's
	Seeds    []uint64 // none: SeedCount of them, from the scenario's on
	// SeedCount is the number of seeds where Seeds is empty; 0: DefaultSeeds.
	SeedCount int
	Baseline  string // policy that the others are compared with; "": the first
	Goodput   string // SLO, see result.ParseSLO; "": none
}

// Add adds an axis; one on the policy or the seed goes to its own place. A key
// that is there already is replaced, so that flags win over files.
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
	for i := range s.Axes {
		if s.Axes[i].Key == a.Key {
			s.Axes[i] = a
			return nil
		}
	}
	s.Axes = append(s.Axes, a)
	return nil
}

// specKeys are the keys of a sweep file.
var specKeys = []string{"name", "about", "scenario", "set", "policies", "seeds", "baseline", "goodput"}

// LoadSpec reads a sweep file. Relative paths in it are those from the file's
// folder.
func LoadSpec(file string) (*Spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	s, err := ParseSpec(data, file)
	if err != nil {
		return nil, err
	}
	in := scenario.In(filepath.Dir(file))
	s.Scenario.MapPaths(in)
	s.Axes, s.Policies, s.Baseline = mapPaths(s.Axes, in), mapPolicies(s.Policies, in), mapPolicy(s.Baseline, in)
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
//	  request_rate: "4:16:4"
//	policies: [static, affinity-spill]
//	seeds: 10            # or a list
//	baseline: static
//	goodput: "ttft:500 tpot:50"
func ParseSpec(data []byte, where string) (*Spec, error) {
	s := &Spec{Scenario: scenario.Default()}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, yamlerr.In(where, err)
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		return nil, fmt.Errorf("sweep %s: expected one document with keys and values", where)
	}
	pairs, err := mapping(f.Docs[0].Body)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", where, err)
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		key := p.Key.String()
		if seen[key] {
			return nil, fmt.Errorf("sweep %s:%d: key %q is given twice", where, line(p.Key), key)
		}
		seen[key] = true
		if err := s.take(key, p.Value, where); err != nil && key == "scenario" {
			return nil, err // it names file and line
		} else if err != nil {
			return nil, fmt.Errorf("sweep %s:%d: %w", where, line(p.Key), err)
		}
	}
	return s, nil
}

func (s *Spec) take(key string, v ast.Node, where string) (err error) {
	switch key {
	case "name":
		s.Name, err = text(v)
	case "about":
		s.About, err = text(v)
	case "baseline":
		s.Baseline, err = text(v)
	case "goodput":
		s.Goodput, err = text(v)
	case "scenario":
		s.Scenario, err = scenario.ParseNode(v, where)
		return err
	case "set":
		return s.takeAxes(v)
	case "policies":
		return s.takeAxis(policyKey, v)
	case "seeds":
		if n, ok := v.(*ast.IntegerNode); ok {
			count, err := strconv.Atoi(n.String())
			if err != nil || count < 1 || count > maxValues {
				return fmt.Errorf("seeds: %q is not a number of seeds from 1 to %d", n.String(), maxValues)
			}
			s.Seeds, s.SeedCount = nil, count
			return nil
		}
		return s.takeAxis(seedKey, v)
	default:
		return suggest.Unknown("key", key, specKeys)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (s *Spec) takeAxes(v ast.Node) error {
	pairs, err := mapping(v)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	for _, p := range pairs {
		if err := s.takeAxis(p.Key.String(), p.Value); err != nil {
			return err
		}
	}
	return nil
}

// takeAxis reads the values of one setting: one, or a list, in which a list is
// one value.
func (s *Spec) takeAxis(key string, v ast.Node) error {
	nodes := []ast.Node{v}
	if list, ok := v.(*ast.SequenceNode); ok {
		nodes = list.Values
	}
	var values []string
	for _, n := range nodes {
		var one string
		if list, ok := n.(*ast.SequenceNode); ok {
			var parts []string
			for _, e := range list.Values {
				t, err := text(e)
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				parts = append(parts, t)
			}
			one = strings.Join(parts, ",")
		} else {
			var err error
			if one, err = text(n); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		values = append(values, one)
	}
	a, err := NewAxis(key, values)
	if err != nil {
		return err
	}
	return s.Add(a)
}

// mapping returns the pairs of a mapping.
func mapping(n ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	}
	return nil, errors.New("expected keys and values")
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

func line(n ast.Node) int { return n.GetToken().Position.Line }

// complete fills in what the spec leaves open and checks it as a whole.
func (s *Spec) complete() error {
	if len(s.Policies) == 0 {
		s.Policies = []string{s.Scenario.Routing.Policy}
	}
	if len(s.Seeds) == 0 {
		count := s.SeedCount
		if count == 0 {
			count = DefaultSeeds
		}
		s.Seeds = SeedList(s.Scenario.Seed, count)
	}
	if s.Baseline == "" {
		s.Baseline = s.Policies[0]
	}
	if err := suggestIn("baseline", s.Baseline, s.Policies); err != nil {
		return err
	}
	slo, err := result.ParseSLO(s.Goodput)
	if err != nil {
		return fmt.Errorf("goodput: %w", err)
	}
	s.Goodput = slo.String()
	n := len(s.Policies) * len(s.Seeds)
	for _, a := range s.Axes {
		if n *= len(a.Values); n > maxCells {
			return fmt.Errorf("the sweep has more than %d cells", maxCells)
		}
	}
	return nil
}

func suggestIn(kind, name string, known []string) error {
	for _, k := range known {
		if k == name {
			return nil
		}
	}
	return suggest.Unknown(kind, name, known)
}
