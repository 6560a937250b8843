package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestSweepWarmup: a sweep with a warm-up in seconds runs, also with parts of the planner; one that leaves no request
// says so.
func TestSweepWarmup(t *testing.T) {
	t.Chdir(t.TempDir())
	short := " --num-prompts 300 --lengths constant:50,10 --num-adapters 4 --request-rate 40 --warmup "
	for _, args := range []string{"sweep -o a --policies static,p2c --seeds 2",
		"advise --parts --seeds 2 --max-seeds 2 --intervals 5 --policies p2c"} {
		if text := lorasim(t, strings.Fields(args+short+"2")...); !strings.Contains(text, "static") &&
			!strings.Contains(text, "outing") {
			t.Errorf("%s: %s", args, text)
		}
	}
	var out, errs bytes.Buffer
	args := strings.Fields("sweep -o b --policies static,p2c --seeds 2" + short + "1000")
	code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	why := strings.Count(errs.String(), "warmup: 1000 s leave no request: the last one arrives after")
	if code != exitFailed || why != 4 {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
