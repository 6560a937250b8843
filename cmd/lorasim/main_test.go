package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"lorasim/internal/shareddata"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lorasim": main, // with its handling of signals
	})
}

// TestScripts runs the command lines of testdata/script. Scripts that need
// shared data find it in $DATA and skip where [data] does not hold.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", shareddata.Dir())
			return setPorts(e)
		},
		Condition: func(cond string) (bool, error) {
			_, err := os.Stat(shareddata.Dir())
			return err == nil, nil
		},
	})
}
