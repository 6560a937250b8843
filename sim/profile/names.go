package profile

import (
	"slices"
	"strings"
)

// aliased is an embedded profile with further names.
type aliased struct {
	name    string
	aliases []string
}

// aliases are the further names of embedded profiles. A name that does not say what the profile is has an alias of
// model, card and engine version.
var aliases = []aliased{
	{"deepseek-v3-tp8-flashinfer", []string{"deepseek-v3-8xh200-sglang-flashinfer"}},
	{"deepseek-v3-tp8-triton", []string{"deepseek-v3-8xh200-sglang-triton"}},
	{"llama-3.1-8b-h100", []string{"llama-3.1-8b-h100-64gb-vllm-0.8.5"}},
	{"llama2-7b-24gb", []string{"llama-2-7b-rtx-4090-sglang-0.5"}},
	{"llama2-7b-dlora", []string{"llama-2-7b-a100-80gb-dlora"}},
	{"qwen-2.5-7b-h100", []string{"qwen2.5-7b-h100-64gb-vllm-0.8.5"}},
	{"qwen3-14b-h100-vllm-0.23", []string{"qwen3-14b-h100"}},
}

// Names lists the embedded profiles, sorted.
func Names() []string {
	entries, err := embedded.ReadDir("profiles")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Aliases lists the further names of an embedded profile.
func Aliases(name string) []string {
	for _, a := range aliases {
		if a.name == name {
			return slices.Clone(a.aliases)
		}
	}
	return nil
}

// Canonical is the name of the embedded profile that has the given alias; any other text stays as it is.
func Canonical(name string) string {
	i := slices.IndexFunc(aliases, func(a aliased) bool { return slices.Contains(a.aliases, name) })
	if i < 0 {
		return name
	}
	return aliases[i].name
}

// IsEmbedded says whether a text is the name or an alias of an embedded profile.
func IsEmbedded(name string) bool { return slices.Contains(Names(), Canonical(name)) }
