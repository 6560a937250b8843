package profile

import (
	"slices"
	"strings"
	"testing"
)

// An alias loads the profile that it names, is no other profile's name or alias, and is embedded; other texts are not.
func TestAliases(t *testing.T) {
	seen := Names()
	for _, name := range Names() {
		for _, alias := range Aliases(name) {
			p, err := Load(t.Context(), alias)
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
	if p, err := Load(t.Context(), "qwen3-14b-h100"); err != nil || p.Name != "qwen3-14b-h100-vllm-0.23" {
		t.Errorf("%v, %v", p, err)
	}
}

// A slip in a name or an alias of a profile gets the profile's name.
func TestLoadSuggests(t *testing.T) {
	for slip, want := range map[string]string{
		"llama2-7b-24g":       `did you mean "llama-2-7b-rtx-4090-sglang-0.5" (alias "llama2-7b-24gb")?`,
		"lama2-7b-24gb":       `did you mean "llama-2-7b-rtx-4090-sglang-0.5" (alias "llama2-7b-24gb")?`,
		"qwen3-14b-h10":       `did you mean "qwen3-14b-h100-vllm-0.23"?`,
		"qwen-25-7b-h100":     `did you mean "qwen2.5-7b-h100-64gb-vllm-0.8.5" (alias "qwen-2.5-7b-h100")?`,
		"llama-7b-a10g-slora": `did you mean "llama-7b-a10g-s-lora"?`,
	} {
		if _, err := Load(t.Context(), slip); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, expected %s at its end", slip, err, want)
		}
	}
}
