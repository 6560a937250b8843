package validate

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/goccy/go-yaml"

	"lorasim/internal/yamlerr"
	"lorasim/trace/lengths"
)

// Group is what the table does not tell of its runs: how long the requests
// were, and, where no histogram is known, how the adapters shared them.
type Group struct {
	// Lengths is a spec of package lengths.
	Lengths string `yaml:"lengths"`
	// MeanKnown: the mean output length was measured and is not to be fitted.
	MeanKnown bool `yaml:"mean_known,omitempty"`
	// FirstWorker is the share of the requests whose adapters are on worker 0
	// of two under static-block, by trace; it stands in where there is no
	// histogram for as many adapters as the run has.
	FirstWorker map[string]float64 `yaml:"first_worker,omitempty"`
	// Source says where the numbers come from.
	Source string `yaml:"source,omitempty"`
}

// Groups are the groups of runs by name; Other stands for those not listed.
type Groups struct {
	Groups map[string]Group `yaml:"groups"`
	Other  Group            `yaml:"other"`
}

//go:embed groups.yaml
var embeddedGroups []byte

// DefaultGroups returns the groups of the runs that the embedded profiles were
// fitted on.
func DefaultGroups() *Groups {
	g, err := parseGroups(embeddedGroups, "groups.yaml")
	if err != nil {
		panic(err) // part of the binary
	}
	return g
}

// LoadGroups reads a YAML file of groups.
func LoadGroups(path string) (*Groups, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	return parseGroups(data, path)
}

func parseGroups(data []byte, where string) (*Groups, error) {
	g := &Groups{}
	if err := yaml.UnmarshalWithOptions(data, g, yaml.Strict()); err != nil {
		return nil, yamlerr.In(where, err)
	}
	check := func(name string, gr Group) error {
		if _, err := lengths.Parse(gr.Lengths); err != nil {
			return fmt.Errorf("%s: %s: %w", where, name, err)
		}
		for trace, share := range gr.FirstWorker {
			if !(share >= 0 && share <= 1) || math.IsNaN(share) {
				return fmt.Errorf("%s: %s: first_worker of %s is %v, expected 0 to 1", where, name, trace, share)
			}
		}
		return nil
	}
	for name, gr := range g.Groups {
		if err := check("groups."+name, gr); err != nil {
			return nil, err
		}
	}
	return g, check("other", g.Other)
}

// YAML returns the groups as a file that LoadGroups reads back.
func (g *Groups) YAML() ([]byte, error) { return yaml.Marshal(g) }

// of returns the group of a run.
func (g *Groups) of(r *Run) Group {
	if gr, ok := g.Groups[r.Group]; ok {
		return gr
	}
	return g.Other
}
