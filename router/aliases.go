package router

import (
	"slices"
	"strings"
)

// Canonical returns the spec with the policy's own name in place of an alias.
func Canonical(spec string) string {
	return renamed(spec, func(name string) string {
		for _, d := range policies.catalog().list {
			if slices.Contains(d.Aliases, name) {
				return d.Name
			}
		}
		return name
	})
}

// Oldest returns the spec with the oldest alias of the policy, so that hashes of specs do not change when a policy
// is renamed. The spec must have the policy's own name.
func Oldest(spec string) string {
	return renamed(spec, func(name string) string {
		if d := policies.catalog().named(name); d != nil && len(d.Aliases) > 0 {
			return d.Aliases[0]
		}
		return name
	})
}

// renamed is the spec with another name; it stays as it is where that is the same.
func renamed(spec string, rename func(name string) string) string {
	was, options, some := strings.Cut(spec, ":")
	name := strings.TrimSpace(was)
	switch is := rename(name); {
	case is == name:
		return spec
	case some:
		return is + ":" + options
	default:
		return is
	}
}
