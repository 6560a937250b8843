package script

import (
	"os"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/router/planroute"
	"lorasim/router/policies"
)

func TestMain(m *testing.M) {
	if err := router.Register(slices.Concat(policies.Routing(), planroute.Policies(), policies.Planning(),
		[]router.Descriptor{Policy()})...); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
