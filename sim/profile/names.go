package profile

import (
	"slices"
	"strings"
)

// aliased is an embedded profile with aliases.
type aliased struct {
	name    string
	was     string // its name in the first releases; "": it always had this one
	aliases []string
}

// aliases are the aliases of embedded profiles. A profile is named by its model, GPU and engine version.
var aliases = []aliased{
	{"deepseek-v3-8xh200-sglang-flashinfer", "deepseek-v3-tp8-flashinfer", nil},
	{"deepseek-v3-8xh200-sglang-triton", "deepseek-v3-tp8-triton", nil},
	{"llama-2-7b-a100-80gb-dlora", "llama2-7b-dlora", nil},
	{"llama-2-7b-rtx-4090-sglang-0.5", "llama2-7b-24gb", nil},
	{"llama-3.1-8b-h100-64gb-vllm-0.8.5", "llama-3.1-8b-h100", nil},
	{"qwen2.5-7b-h100-64gb-vllm-0.8.5", "qwen-2.5-7b-h100", nil},
	{"qwen3-14b-h100-vllm-0.23", "", []string{"qwen3-14b-h100"}},
}

// all lists the aliases.
func (a aliased) all() []string {
	if a.was == "" {
		return slices.Clone(a.aliases)
	}
	return append([]string{a.was}, a.aliases...)
}

// Names lists the names of the embedded profiles, sorted.
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

// withAliases lists the names of the embedded profiles, then their aliases.
func withAliases() []string {
	list := Names()
	for _, a := range aliases {
		list = append(list, a.all()...)
	}
	return list
}

// Aliases lists the aliases of an embedded profile.
func Aliases(name string) []string {
	for _, a := range aliases {
		if a.name == name {
			return a.all()
		}
	}
	return nil
}

// Canonical returns the name of the embedded profile with the given alias. It returns any other text
// unchanged.
func Canonical(name string) string {
	i := slices.IndexFunc(aliases, func(a aliased) bool { return slices.Contains(a.all(), name) })
	if i < 0 {
		return name
	}
	return aliases[i].name
}

// Oldest returns the first name of the embedded profile with the given name or alias. It returns any other
// text unchanged. Hashes of sweeps contain it, so that results from before a profile was renamed stay valid.
func Oldest(name string) string {
	name = Canonical(name)
	for _, a := range aliases {
		if a.name == name && a.was != "" {
			return a.was
		}
	}
	return name
}

// IsEmbedded reports whether name is the name or an alias of an embedded profile.
func IsEmbedded(name string) bool { return slices.Contains(Names(), Canonical(name)) }
