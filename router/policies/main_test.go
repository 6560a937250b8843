package policies

import (
	"os"
	"slices"
	"testing"

	"lorasim/router"
)

func TestMain(m *testing.M) {
	if err := router.Register(slices.Concat(Routing(), Planning())...); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
