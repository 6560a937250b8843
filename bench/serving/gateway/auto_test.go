package gateway_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
)

// auto races beside a gateway: every reply is whole, races are in the log and in the metrics with the measured step
// times.
func TestAuto(t *testing.T) {
	inMemory(t, func(t *memory) {
		var log bytes.Buffer
		srv, _ := startGateway(t, "auto:candidates=least-loaded+round-robin+static,every=64",
			func(c *fleet.Config) { c.Plans = slog.New(slog.NewTextHandler(&log, nil)) }, nil,
			newTestWorker(t, emulate.SGLang), newTestWorker(t, emulate.SGLang))
		const n = 3000
		if lost, ends := askTokens(t, srv.URL, 8, n, 16); lost > 0 || ends["whole"] != n {
			t.Errorf("lost %d of %d: %v", lost, n, ends)
		}
		_, text := get(t, srv.URL+"/metrics")
		for _, want := range []string{"lorasim_gateway_race_failures_total 0\n", "lorasim_gateway_race_policy{policy=",
			`lorasim_gateway_race_step_time_factor{worker="http://host2"}`,
			`lorasim_gateway_race_e2e_seconds{from="measured"}`,
			`lorasim_gateway_race_ttft_seconds{from="predicted"}`} {
			if !strings.Contains(text, want) {
				t.Errorf("/metrics lacks %s", want)
			}
		}
		if strings.Contains(text, "lorasim_gateway_races_total 0\n") || !strings.Contains(log.String(), "msg=race") {
			t.Errorf("no race: %s", log.String())
		}
	})
}
