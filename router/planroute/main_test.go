package planroute

import (
	"os"
	"testing"

	"lorasim/router"
)

func TestMain(m *testing.M) {
	if err := router.Register(Policies()...); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
