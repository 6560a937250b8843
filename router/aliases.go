package router

import (
	"slices"
	"strings"
)

// aliases are other names of policies, the oldest first. period_mig is also dLoRA's name of a migration type, which is
// the policy dlora_period_mig.
var aliases = map[string][]string{"plan-and-route": {"period_mig"}}

// Canonical is the spec with the policy's own name in place of an alias.
func Canonical(spec string) string {
	return renamed(spec, func(name string) string {
		for own, others := range aliases {
			if slices.Contains(others, name) {
				return own
			}
		}
		return name
	})
}

// Oldest is the spec with the oldest name that the policy has had, so that hashes of specs do not change when a policy
// is renamed. The spec has the policy's own name.
func Oldest(spec string) string {
	return renamed(spec, func(name string) string { return append(aliases[name], name)[0] })
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
