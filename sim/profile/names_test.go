package profile

import (
	"slices"
	"testing"
)

// An alias loads the profile that it names, is no other profile's name or alias, and is embedded; other texts are not.
func TestAliases(t *testing.T) {
	seen := Names()
	for _, name := range Names() {
		for _, alias := range Aliases(name) {
			p, err := Load(alias)
			if err != nil || p.Name != name || Canonical(alias) != name || !IsEmbedded(alias) {
				t.Errorf("%s: %+v, %v, canonical %s", alias, p, err, Canonical(alias))
			}
			if slices.Contains(seen, alias) {
				t.Errorf("%s names two profiles", alias)
			}
			seen = append(seen, alias)
		}
	}
	if Canonical("mine.yaml") != "mine.yaml" || IsEmbedded("mine.yaml") || IsEmbedded("") {
		t.Error("a file is taken for an embedded profile")
	}
	if p, err := Load("qwen3-14b-h100"); err != nil || p.Name != "qwen3-14b-h100-vllm-0.23" {
		t.Errorf("%v, %v", p, err)
	}
}
