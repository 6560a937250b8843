// Package builtin registers the policies of this module, so that [router.New] knows them. A program imports it for that
// effect:
//
//	import _ "lorasim/router/builtin"
package builtin

import (
	"slices"

	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/planroute"
	"lorasim/router/policies"
	"lorasim/router/script"
)

func init() {
	if err := router.Register(list()...); err != nil {
		panic(err) // a fault of a description
	}
}

// list lists the policies in the order in which to show them.
func list() []router.Descriptor {
	return slices.Concat(policies.Routing(), planroute.Policies(), policies.Planning(),
		[]router.Descriptor{script.Policy(), epp.Policy()})
}
