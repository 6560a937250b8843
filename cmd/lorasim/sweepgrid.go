package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

// gridFlags say what a sweep is to be, beside or instead of a sweep file.
type gridFlags struct {
	scenario *scenarioFlags
	set      []string
	policies string
	seeds    int
	goodput  string
	name     string
}

func (g *gridFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&g.set, "set", nil, "vary a setting: `KEY=VALUES`, as in request_rate=4,8,16, num_workers=2:8:2,\nmax_loras_per_batch=4:32:x2, lora_ranks=8|8,64; may be repeated")
	fs.StringVar(&g.policies, "policies", "", "policies to compare: `A,B,...`; with commas in options A|B (default: the scenario's)")
	fs.IntVar(&g.seeds, "seeds", 0, "number of seeds, from --seed on (default: 5)")
	within(cmd, ">=1 <=1e5", "seeds")
	fs.StringVar(&g.goodput, "goodput", "", "count requests within an SLO in ms, such as \"ttft:500 tpot:50 e2e:5000\"")
	fs.StringVar(&g.name, "name", "", "name of the sweep (default: that of the file, or of DIR)")
	group(cmd, gridHeading, "set", "policies", "seeds", "goodput", "name")
	g.scenario = addScenarioFlags(cmd, "workload", "cluster", "routing", "client")
}

// given says whether a flag says what to sweep.
func (g *gridFlags) given(cmd *cobra.Command) bool {
	return len(g.set) > 0 || g.policies != "" || cmd.Flags().Changed("seeds") || g.scenario.file != ""
}

// spec is what file and flags amount to.
func (g *gridFlags) spec(cmd *cobra.Command, args []string) (*sweep.Spec, error) {
	spec := &sweep.Spec{}
	var err error
	switch {
	case len(args) > 0 && g.scenario.file != "":
		return nil, errors.New("a sweep file has its own scenario: --scenario cannot be given beside it")
	case len(args) > 0:
		if spec, err = sweep.LoadSpec(args[0]); err != nil {
			return nil, unknownSubcommand(cmd, args[0], err)
		}
		if err := g.scenario.apply(cmd, &spec.Scenario); err != nil {
			return nil, err
		}
	default:
		if spec.Scenario, err = g.scenario.scenario(cmd); err != nil {
			return nil, err
		}
	}
	for _, text := range g.set {
		a, err := sweep.ParseSet(text)
		if err == nil {
			err = spec.Add(a)
		}
		if err != nil {
			return nil, fmt.Errorf("--set: %w", err)
		}
	}
	if g.policies != "" {
		a, err := sweep.ParseSet("policy=" + g.policies)
		if err == nil {
			err = spec.Add(a)
		}
		if err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
	}
	if cmd.Flags().Changed("seeds") {
		spec.Seeds, spec.SeedCount = nil, g.seeds
	}
	if cmd.Flags().Changed("goodput") {
		spec.Goodput = g.goodput
	}
	if g.name != "" {
		spec.Name = g.name
	}
	return spec, nil
}

// create plans the sweep in a folder, if check, where set, has nothing against it.
func (g *gridFlags) create(cmd *cobra.Command, args []string, dir string, check func(*sweep.Manifest) error) (*sweep.Dir, error) {
	spec, err := g.spec(cmd, args)
	if err != nil {
		return nil, usage(err)
	}
	if dir == "" {
		return nil, usage(errors.New("-o DIR is missing: the folder for the sweep"))
	}
	if spec.Name == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		spec.Name = filepath.Base(abs)
		if len(args) > 0 {
			spec.Name = strings.TrimSuffix(filepath.Base(args[0]), filepath.Ext(args[0]))
		}
	}
	m, err := spec.Plan(cmd.Context())
	if err != nil {
		return nil, usage(err)
	}
	if check != nil {
		if err := check(m); err != nil {
			return nil, err
		}
	}
	asked := len(m.Cells)
	d, err := sweep.Create(dir, m)
	if err == nil && len(d.Cells) > asked {
		fmt.Fprintf(cmd.ErrOrStderr(), "lorasim: note: %s also has %d cells of an earlier call\n", dir, len(d.Cells)-asked)
	}
	return d, err
}

// unknownSubcommand says so where what stands for a file is no file but looks
// like a subcommand.
func unknownSubcommand(cmd *cobra.Command, name string, err error) error {
	if _, e := os.Stat(name); e != nil && !strings.ContainsAny(name, "./") && cmd.HasSubCommands() {
		return unknownCommand(cmd, name)
	}
	return err
}

// apply changes a scenario by the flags that were given.
func (sf *scenarioFlags) apply(cmd *cobra.Command, sc *scenario.Scenario) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*settingValue); ok && err == nil {
			if e := sc.Set(v.field.Key, v.text); e != nil {
				err = usage(fmt.Errorf("--%s: %w", f.Name, e))
			}
		}
	})
	return err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(v)
}
