package web_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"lorasim/bench/explore"
	"lorasim/bench/explore/web"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/internal/testbrowser"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

// shown reads which requests the replay shows on each worker.
const shown = `JSON.stringify([...document.querySelectorAll('#replay .worker')].map(w =>
  [...w.querySelectorAll('.dot')].map(d => +d.dataset.request).sort((a, b) => a - b)))`

// TestReplayOnPage: the page's replay of a run shows its requests where the records of the same scenario say, at 100
// random times.
func TestReplayOnPage(t *testing.T) {
	ctx := testbrowser.Start(t)
	q := explore.DefaultPreset().Query
	q.Policies = []string{"least-loaded"}
	x := explore.New(explore.Limits{}, trace.Files{})
	page := web.New(web.Config{Explorer: x, Presets: []explore.Preset{}, Query: q, Replay: x.Replay})
	srv := httptest.NewServer(page)
	t.Cleanup(srv.Close)
	b := open(t, ctx, srv.URL+page.Path())
	b.settled()
	b.eval(`document.querySelector('#replay .tools button').click()`)
	b.wait(`!!document.querySelector('#replay .worker')`)

	sc := scenario.Default()
	testutil.Set(t, &sc, "policy", "least-loaded")
	for key, value := range q.Settings {
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	file, overhead := filepath.Join(t.TempDir(), "r.csv"), 0.0
	_, err := sc.Simulate(t.Context(), scenario.RunOptions{RecordsFile: file, Profiles: func(ps []*profile.Profile) {
		overhead = ps[0].Compile().Overhead.Seconds()
	}})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := records.ReadAll(t.Context(), columnar.Files(), file)
	if err != nil {
		t.Fatal(err)
	}
	workers, err := sc.Workers()
	if err != nil {
		t.Fatal(err)
	}
	rng, end := rand.New(rand.NewPCG(5, 1)), list[len(list)-1].Finish
	some := 0
	for range 100 {
		at := end * rng.Float64()
		want := make([][]int64, workers)
		for i := range list {
			if r := &list[i]; r.Sent <= at && at < r.Finish-overhead {
				want[r.WorkerLast] = append(want[r.WorkerLast], r.ID)
			}
		}
		b.eval(fmt.Sprintf(`(r => { r.value = %.0f; r.dispatchEvent(new Event('input')); })(
			document.querySelector('#replay input[type=range]'))`, at*1e6))
		var got [][]int64
		if err := json.Unmarshal([]byte(b.eval(shown)), &got); err != nil {
			t.Fatal(err)
		}
		for w := range want {
			slices.Sort(want[w])
			some += len(got[w])
			if !slices.Equal(got[w], want[w]) {
				t.Errorf("at %v s on worker %d: %v, expected %v", at, w, got[w], want[w])
			}
		}
	}
	if some < 100 {
		t.Errorf("%d requests seen in 100 pictures, expected more", some)
	}
	testbrowser.Look(t, ctx, "explore-replay")
}
