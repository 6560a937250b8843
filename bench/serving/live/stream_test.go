package live

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"lorasim/bench/result/series"
	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// observed is what a watcher gets of a run.
type observed struct {
	t      *testing.T
	places map[int64]string // of requests, in order, with their workers
	kinds  record.EventKind // that came
	until  tick.Ticks       // end of the latest state
	loads  int
	rec    *series.Recorder
}

func (o *observed) watcher() record.Watcher {
	next := o.rec.Watching(workload(listened, 4, 0.05).Adapters)
	return record.Watcher{Kinds: record.AllEvents, Note: func(e *record.Event) {
		o.kinds |= e.Kind
		switch e.Kind {
		case record.EventState:
			if e.From != o.until || e.Until <= e.From {
				o.t.Errorf("a state from %v to %v s after one until %v s", e.From, e.Until, o.until)
			}
			o.until = e.Until
		case record.EventQueued, record.EventRunning, record.EventEnded:
			name := map[record.EventKind]string{record.EventQueued: "queued", record.EventRunning: "running",
				record.EventEnded: "ended"}[e.Kind]
			o.places[e.ID] += fmt.Sprintf("%s on %d; ", name, e.Worker)
		case record.EventLoad:
			o.loads++
		}
		if e.At < 0 || e.Kind != record.EventState && e.At < o.until {
			o.t.Errorf("an event of kind %d at %v after a state until %v", e.Kind, e.At, o.until)
		}
		if e.Kind&next.Kinds != 0 {
			next.Note(e)
		}
	}}
}

// A watcher gets the same events of each request from the simulator and from a fleet on a fake clock, states without
// gaps, and the queues over time that are in the records.
func TestStreamOfSimulatorAndFleet(t *testing.T) {
	begin := func() *observed {
		return &observed{t: t, places: map[int64]string{}, rec: series.NewRecorder(2)}
	}
	simulated := begin()
	wl := workload(listened, 4, 0.05)
	costs := testProfile().Compile()
	if _, err := sim.Run(t.Context(), sim.Config{Source: wl.Source(), Workers: []*profile.Costs{costs, costs},
		Router: newRouter(t, "round-robin", 2, wl.Adapters), Watchers: []record.Watcher{simulated.watcher()},
		Observer: record.Ends(func(*record.Request) {}), Home: router.Disk}); err != nil {
		t.Fatal(err)
	}
	live := begin()
	var queued, running float64
	synctest.Test(t, func(t *testing.T) {
		out := liveRun{cluster: startWorkers(t, sound(2, faults{})...), wl: workload(listened, 4, 0.05),
			setFleet: func(c *fleet.Config) { c.Router.Placement = [][]int32{{}, {}} },
			set:      func(c *Config) { c.Watchers = []record.Watcher{live.watcher()} }}.run(t.Context(), t)
		for _, r := range out.recs {
			queued += r.FirstToken - r.Sent
			running += r.Finish - r.FirstToken
		}
	})
	for id := range int64(listened) {
		if s, l := simulated.places[id], live.places[id]; s != l || s == "" {
			t.Errorf("request %d: the simulator says %q, the fleet %q", id, s, l)
		}
	}
	if want := record.EventLoad | record.EventTier; live.loads < 8 || live.kinds&want != want {
		t.Errorf("%d loads, kinds of events %b", live.loads, live.kinds)
	}
	var gotQueued, gotRunning float64
	s := live.rec.Series()
	for _, w := range s.Workers {
		for i := range w.Queued {
			length := min(s.Bucket, s.End-s.Bucket*float64(i))
			gotQueued += w.Queued[i] * length
			gotRunning += w.Running[i] * length
		}
	}
	if math.Abs(gotQueued/queued-1) > 0.01 || math.Abs(gotRunning/running-1) > 0.01 {
		t.Errorf("requests waited %v s and ran %v s, by their records %v and %v", gotQueued, gotRunning, queued,
			running)
	}
	if s.Placement == nil || len(s.Placement.Host[0]) == 0 {
		t.Error("no placement")
	}
}
