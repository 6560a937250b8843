package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"lorasim/internal/yamlerr"
)

//go:embed profiles/*.yaml
var embedded embed.FS

// Names lists the embedded profiles, sorted.
func Names() []string {
	entries, err := fs.ReadDir(embedded, "profiles")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Load returns the embedded profile of that name, makes the analytic one that
// "analytic:MODEL,GPU" asks for ([ParseAnalytic]), or reads a profile file.
func Load(nameOrFile string) (*Profile, error) {
	if spec, ok := strings.CutPrefix(nameOrFile, AnalyticPrefix); ok {
		a, err := ParseAnalytic(spec)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", nameOrFile, err)
		}
		return a.Profile()
	}
	if slices.Contains(Names(), nameOrFile) {
		data, err := embedded.ReadFile(path.Join("profiles", nameOrFile+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", nameOrFile, err)
		}
		return Parse(data, nameOrFile)
	}
	data, err := os.ReadFile(nameOrFile)
	if os.IsNotExist(err) && !strings.ContainsAny(nameOrFile, "./\\") {
		return nil, fmt.Errorf("profile %q: neither an embedded profile (%s) nor a file",
			nameOrFile, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return Parse(data, nameOrFile)
}

// Parse reads a profile from YAML on top of the defaults of its scheduler,
// Default or DefaultVLLM; where names it in errors.
func Parse(data []byte, where string) (*Profile, error) {
	var of struct {
		Engine struct {
			Scheduler string `yaml:"scheduler"`
		} `yaml:"engine"`
	}
	p := Default()
	if err := yaml.Unmarshal(data, &of); err == nil && of.Engine.Scheduler == SchedulerVLLM { // else the next reading says why
		p = DefaultVLLM()
	}
	if err := yaml.UnmarshalWithOptions(data, &p, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("profile %w", yamlerr.In(where, err))
	}
	if p.Name == "" {
		return nil, fmt.Errorf("profile %s: name is missing", where)
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("profile %s: %w", where, err)
	}
	return &p, nil
}

// YAML returns the whole profile as a file that Parse reads back.
func (p *Profile) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(p, yaml.Indent(2))
}
