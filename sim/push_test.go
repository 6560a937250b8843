package sim

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/push"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// TestPushes: with new versions of adapters, no request is lost, each is served by a version that was the newest when
// it came or within the bound, and old versions leave the workers once their requests have ended.
func TestPushes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		p.Latency.LoRA.Backend = profile.BackendCSGMV
		if p.Engine.Scheduler == profile.SchedulerSLoRA {
			p.Engine.Scheduler = profile.SchedulerSGLang
			p.Engine.AdapterCellsPerRank, p.Engine.EnableAbort, p.Engine.SchedulePolicy = 0, false, profile.OrderFCFS
		}
		if err := p.Check(); err != nil {
			t.Skip(err)
		}
		costs, wl := p.Compile(), genWorkload(t)
		if len(wl.Adapters) == 0 {
			t.Skip("no adapters")
		}
		n := rapid.IntRange(1, 3).Draw(t, "workers")
		o := push.Default()
		o.Loads = rapid.SampledFrom([]string{push.Holders, push.Demand}).Draw(t, "loads")
		o.Overlap = rapid.Bool().Draw(t, "overlap")
		if o.Loads == push.Holders {
			o.Requests = rapid.SampledFrom([]string{push.Keep, push.CutOver}).Draw(t, "requests")
		}
		o.Workers = rapid.IntRange(0, 2).Draw(t, "at a time")
		o.Order = rapid.SampledFrom([]string{"index", "idle"}).Draw(t, "order")
		o.Versions = rapid.IntRange(2, 4).Draw(t, "versions")
		cfg := Config{Source: wl.Source(), Router: &router.Router{Policy: byUsable{}}, TokenTimes: true,
			Home:         router.Disk,
			LoadFailures: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "failures"),
			Push: &Push{Options: o, MaxStaleness: rapid.IntRange(-1, 2).Draw(t, "bound"),
				Interval: rapid.SampledFrom([]float64{0.1, 0.3, 2}).Draw(t, "interval")}}
		for a := range wl.Adapters {
			if a == 0 || rapid.Bool().Draw(t, "pushed") {
				cfg.Push.Adapters = append(cfg.Push.Adapters, int32(a))
			}
		}
		for range n {
			cfg.Workers = append(cfg.Workers, costs)
		}
		failing := n > 1 && rapid.Bool().Draw(t, "failing")
		if failing {
			cfg.Outages = []Outage{{Worker: 0, From: 0.2, To: 1}}
		}
		got := newLedger()
		cfg.Observer = got
		var s *sim
		cfg.Progress = func(done int64, now float64) {
			if now > 500 {
				t.Fatalf("%v s, %d of %d requests done: %v", now, done, len(wl.Requests), held(s))
			}
		}
		s = checked(t, cfg)
		if err := s.run(context.Background()); err != nil {
			t.Fatal(err, held(s))
		}
		checkEmpty(t, s)
		if !failing && cfg.LoadFailures == 0 {
			checkInvariants(t, wl, got, s.stats(), p)
		}
		for _, r := range wl.Requests {
			checkVersion(t, &cfg, got.recs[r.ID], failing)
		}
		for i := range s.workers {
			e := s.workers[i].engine
			for row, a := range s.push.of {
				if int32(row) != e.Books.Current(a) && !e.LoRA.Gone(&e.Rows.Of(int32(row)).Adapter) {
					t.Fatalf("worker %d still holds an old version of adapter %d", i, a)
				}
			}
			if len(s.push.retiring[i]) > 0 {
				t.Fatalf("worker %d: old versions %v are left", i, s.push.retiring[i])
			}
		}
		if st := s.stats().Push; st.Complete > st.Published || st.Time < 0 {
			t.Fatalf("%+v", st)
		}
	})
}

// checkVersion: the version of a request is within the bound, and its staleness is that of the schedule.
func checkVersion(t *rapid.T, cfg *Config, r record.Request, failing bool) {
	turn := -1
	for k, a := range cfg.Push.Adapters {
		if a == r.Adapter {
			turn = k
		}
	}
	if turn < 0 || r.WorkerFirst < 0 {
		if r.Version != 0 {
			t.Fatalf("request %d has version %d of an adapter without new versions", r.ID, r.Version)
		}
		return
	}
	if r.Version == 0 { // it was never admitted
		if r.Status == record.OK {
			t.Fatalf("request %d was served without a version", r.ID)
		}
		return
	}
	newest := int32(1)
	for k := 0; ; k++ {
		at := cfg.Push.Interval * (float64(k) + float64(turn+1)/float64(len(cfg.Push.Adapters)))
		if tick.FromSeconds(at) >= tick.FromSeconds(r.Sent) {
			break
		}
		newest++
	}
	if failing { // it may have come to its worker later
		return
	}
	if want := max(newest-r.Version, 0); r.Behind != want {
		t.Fatalf("request %d, sent at %v: version %d, %d behind, expected %d", r.ID, r.Sent, r.Version, r.Behind, want)
	}
	if b := cfg.Push.MaxStaleness; b >= 0 && int(r.Behind) > b {
		t.Fatalf("request %d is %d versions behind, the bound is %d", r.ID, r.Behind, b)
	}
	if b := cfg.Push.MaxStaleness; b < 0 && cfg.Push.Overlap && r.VersionWait != 0 {
		t.Fatalf("request %d waited %v s for a version without a bound", r.ID, r.VersionWait)
	}
}

// held lists the requests that wait for a version, with what keeps their workers from it.
func held(s *sim) (list []string) {
	for i := range s.workers {
		w := &s.workers[i]
		for _, r := range w.engine.FrontEnd.Held() {
			a := s.push.adapter(r.Adapter)
			list = append(list, fmt.Sprintf("worker %d, request %d, adapter %d, needs %d, has %d, loads %v, retiring %v, room %v",
				i, r.ID, a, s.request(r).needs, s.push.Version(int32(i), a), s.push.Loading(int32(i), a),
				s.push.retiring[i], s.push.Room(int32(i), a)))
		}
	}
	return list
}
