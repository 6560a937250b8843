package cli

import (
	"os"
	"os/signal"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"lorasim/internal/shareddata"
)

func TestMain(m *testing.M) {
	// A job in the background of a shell script ignores interrupts, and so would its children, which tests interrupt.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(m, map[string]func(){
		"lorasim": Main, // with its handling of signals
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

// Two measured runs, for validate and calibrate.
const (
	runsCSV = `group,use,policy_file,policy_actual,trace,total_rate,cv,map_stride,num_prompts,num_instances,num_loras,lora_ranks,max_running_requests,duration_s,mean_e2e_ms,median_e2e_ms
mine,validation,static,static modulo,azure_v2,3.0,1.0,64,600,2,4,8|8|8|8,16,200,1500,900
mine,calibration,least-loaded,,azure_v2,3.0,1.0,64,600,2,4,8|8|8|8,16,200,1200,800
`
	histJSON = `{"histograms_by_stride": {"64": [100, 200, 300, 400]}}`
)
