package epp

import (
	"os"
	"testing"

	"lorasim/router"
)

func TestMain(m *testing.M) {
	if err := router.Register(Policy()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
