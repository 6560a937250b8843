package gateway_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/metrics/metricstest"
)

// auto races beside a gateway: every reply is whole, races are in the log and in the metrics with the measured step
// times.
func TestAuto(t *testing.T) {
	inMemory(t, func(t *memory) {
		var log bytes.Buffer
		srv, _ := startGateway(t, "auto:candidates=least-loaded+round-robin+static,every=64",
			func(c *fleet.Config) { c.Plans = slog.New(slog.NewTextHandler(&log, nil)) },
			func(c *gateway.Config) { c.LogDropped = func() int64 { return 0 } },
			newTestWorker(t, emulate.SGLang), newTestWorker(t, emulate.SGLang))
		const n = 3000
		if lost, ends := askTokens(t, srv.URL, 8, n, 16); lost > 0 || ends["whole"] != n {
			t.Errorf("lost %d of %d: %v", lost, n, ends)
		}
		if s, text := post(t, srv.URL+"/v1/completions", `{"model":"nobody","prompt":"x"}`); s != 404 {
			t.Errorf("an unknown adapter: %d %s", s, text)
		}
		if s, _ := post(t, srv.URL+"/admin/load", `{"worker":0,"adapter":"huge","path":"huge-r9999"}`); s == 200 {
			t.Error("an adapter of rank 9999 was loaded")
		}
		for _, c := range [][2]string{{"/admin/load", `{"worker":0,"adapter":"fresh","path":"fresh"}`},
			{"/admin/drain", `{"worker":0,"drain":true}`},
			{"/v1/completions", `{"model":"fresh","prompt":"x"}`}} { // on worker 1, which does not hold it
			if s, text := post(t, srv.URL+c[0], c[1]); s != 200 {
				t.Errorf("%s %s: %d %s", c[0], c[1], s, text)
			}
		}
		_, text := get(t, srv.URL+"/metrics")
		metricstest.Check(t, "../../../docs/metrics.md", "gateway", text)
		for _, want := range []string{"lorasim_gateway_race_failures_total 0\n",
			"lorasim_gateway_race_policy_info{policy=",
			`lorasim_gateway_race_step_time_ratio{worker="http://host2"}`,
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
