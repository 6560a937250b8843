package explore

import (
	"bytes"
	"context"
	"encoding/json"

	"lorasim/bench/replay"
	"lorasim/bench/scenario"
)

// Replay runs a scenario again and returns its recording, which the page replays.
func (x *Explorer) Replay(ctx context.Context, sc *scenario.Scenario) (json.RawMessage, error) {
	workers, err := x.workers(ctx, sc)
	if err != nil {
		return nil, err
	}
	rec := replay.NewRecorder(replay.DefaultLimits())
	if _, err := sc.Simulate(ctx, scenario.RunOptions{Workers: workers, Watch: rec.Watching}); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = rec.Replay().JSON(&out)
	return out.Bytes(), err
}
