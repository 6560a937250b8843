package live

import (
	"slices"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// What workers tell takes the place of what a profile assumes, unless it is stated.
func TestTold(t *testing.T) {
	shared := profile.Default()
	ps := []*profile.Profile{&shared, &shared, &shared}
	infos := []fleet.Info{{Limits: fleet.Limits{MaxRunning: 5, Slots: 6, KVCapacity: 7, MaxLoaded: 9}},
		{Limits: fleet.Limits{Slots: 2}}, {}, {Limits: fleet.Limits{Slots: 4}}}
	got := told(ps, infos, fleet.Limits{Slots: shared.Engine.MaxLorasPerBatch})
	e := got[0].Engine
	if e.MaxRunningRequests != 5 || e.MaxLorasPerBatch != shared.Engine.MaxLorasPerBatch ||
		got[0].Memory.KVTokens != 7 || e.MaxLoadedLoras != 9 {
		t.Errorf("%+v", e)
	}
	if got[1].Engine != shared.Engine || got[2].Engine != shared.Engine {
		t.Errorf("%+v, %+v", got[1].Engine, got[2].Engine)
	}
	if len(got) != 4 || told(ps[:1], infos, fleet.Limits{})[3].Engine.MaxLorasPerBatch != 4 {
		t.Errorf("%d profiles; a worker that joins has the last one, with its own limits", len(got))
	}
	if got = told(ps, infos, fleet.Limits{MaxRunning: 1, KVCapacity: 1,
		MaxLoaded: 1}); got[0].Engine.MaxRunningRequests != shared.Engine.MaxRunningRequests ||
		got[0].Memory.KVTokens != shared.Memory.KVTokens ||
		got[0].Engine.MaxLoadedLoras != shared.Engine.MaxLoadedLoras || got[1].Engine.MaxLorasPerBatch != 2 {
		t.Errorf("%+v", got[0].Engine)
	}
}

// What ran names the engines as the workers report them, and counts those alike.
func TestEnginesThatRan(t *testing.T) {
	shared := profile.Default()
	other := shared
	other.Engine.MaxLorasPerBatch = 3
	s := &seen{[]*profile.Profile{&shared, &other, &shared},
		[]fleet.Report{{Info: fleet.Info{API: httpapi.VLLM, Version: "0.8.5"}}, {},
			{Info: fleet.Info{API: httpapi.VLLM, Version: "0.8.5"}}}}
	ran := result.Scenario{Profiles: []result.RanProfile{{Name: "simulated"}}}
	s.tell(&ran)
	p := ran.Profiles
	if len(p) != 2 || p[0].Engine != "vllm 0.8.5" || p[0].Workers != 2 || !p[0].Routing || p[1].Engine != "unknown" ||
		p[1].AdapterSlots != 3 || p[1].Workers != 1 {
		t.Errorf("%+v", p)
	}
}

func TestCounters(t *testing.T) {
	plans := record.PlanCounters{Made: 3, Applied: 2, Recomputed: 90, Moves: map[string]int64{"recompute": 4}}
	c := counters(&Stats{Workers: []record.Counters{{RepeatedTokens: 7}, {RepeatedTokens: 9}}},
		&fleet.Stats{Plans: plans, Workers: []record.Counters{{FailedLoads: 5, RepeatedTokens: 1}, {FailedLoads: 2}}})
	if c.SolverRuns != 3 || c.Plans.Applied != 2 || c.Plans.Recomputed != 90 || c.FailedLoads != 0 ||
		len(c.Workers) != 2 ||
		c.Workers[0].Counters != (record.Counters{FailedLoads: 5, RepeatedTokens: 8}) ||
		c.Workers[1].Counters != (record.Counters{FailedLoads: 2, RepeatedTokens: 9}) ||
		!slices.Equal(c.Migrations, []result.MigrationCount{{Kind: "recompute", Count: 4}}) {
		t.Errorf("%+v", c)
	}
}

func TestStated(t *testing.T) {
	var sc scenario.Scenario
	c := &sc.Cluster.Engine
	c.MaxRunningRequests, c.MaxLorasPerBatch, c.KVTokens, c.MaxLoadedLoras = 1, 2, 3, 4
	if got := stated(&sc); got != (fleet.Limits{MaxRunning: 1, Slots: 2, KVCapacity: 3, MaxLoaded: 4}) {
		t.Errorf("%+v", got)
	}
	if def := scenario.Default(); stated(&def) != (fleet.Limits{}) {
		t.Errorf("the defaults state %+v", stated(&def))
	}
}
