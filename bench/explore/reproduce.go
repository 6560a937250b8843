package explore

import (
	"fmt"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/internal/format"
	"lorasim/trace/settings"
)

// Reproduce states how to repeat the runs without the page.
type Reproduce struct {
	// Commands has one command line per policy, which repeats the first run of the policy.
	Commands []string `json:"commands"`
	// YAML is a file for lorasim sweep, lorasim sim -f and lorasim explore. lorasim sweep compares the policies over
	// the seeds.
	YAML string `json:"yaml"`
}

func (p *plan) reproduce() *Reproduce {
	r := &Reproduce{YAML: p.yaml()}
	for i := range p.policies {
		r.Commands = append(r.Commands, p.command(i))
	}
	return r
}

// command is the command line of a policy's first run.
func (p *plan) command(policy int) string {
	parts := append([]string{"lorasim sim"}, p.of(policy, 0).Arguments()...)
	if !p.slo.Empty() {
		parts = append(parts, "--goodput "+format.Shell(p.slo.String()))
	}
	return strings.Join(parts, " ")
}

// yaml is the query as a sweep file, with the settings that differ from their defaults.
func (p *plan) yaml() string {
	var b strings.Builder
	b.WriteString("name: explore\nscenario:\n")
	sc, def := p.base, scenario.Default()
	section, some := "", false
	for _, f := range scenario.Fields() {
		v := f.Get(&sc)
		if v == f.Get(&def) || f.Key == "routing.policy" {
			continue
		}
		some = true
		indent := "  "
		for i, part := range strings.Split(f.Section, ".") {
			if part == "" {
				break
			}
			if above := strings.Join(strings.Split(f.Section, ".")[:i+1], "."); above != section &&
				!strings.HasPrefix(section, above+".") {
				fmt.Fprintf(&b, "%s%s:\n", indent, part)
				section = above
			}
			indent += "  "
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, f.Leaf(), settings.Quoted(v))
	}
	text := b.String()
	if !some {
		text = strings.TrimSuffix(text, "\n") + " {}\n"
	}
	var policies []string
	for _, policy := range p.policies {
		policies = append(policies, settings.Quoted(policy))
	}
	text += fmt.Sprintf("policies: [%s]\nseeds: %d\n", strings.Join(policies, ", "), p.seeds)
	if !p.slo.Empty() {
		text += fmt.Sprintf("goodput: %q\n", p.slo.String())
	}
	return text
}
