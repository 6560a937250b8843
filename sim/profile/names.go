package profile

import (
	"slices"
	"strings"
)

// aliased is an embedded profile with further names, the oldest one first.
type aliased struct {
	name    string
	aliases []string
}

// aliases are the further names of embedded profiles.
var aliases = []aliased{
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

// Aliases lists the further names of an embedded profile, the oldest one first.
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
