package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"lorasim/ilp"
	"lorasim/ilp/highs"
	"lorasim/router"
	"lorasim/router/admission"
	_ "lorasim/router/builtin" // the policies
	"lorasim/router/planroute"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// defaultWorkers is the number of workers if neither num_workers nor profile states it.
const defaultWorkers = 4

// profileEntry is one entry of a list of profiles: NAME or NAME*COUNT.
type profileEntry struct {
	name  string
	count int // 0: not given
}

func (e profileEntry) String() string {
	if e.count > 0 {
		return fmt.Sprintf("%s*%d", e.name, e.count)
	}
	return e.name
}

// parseProfiles reads a list of profiles. The commas of an analytic one belong to
// it: its GPU is the piece that follows, its options are those with a "=".
func parseProfiles(list string) ([]profileEntry, error) {
	pieces := strings.Split(list, ",")
	for i := range pieces {
		pieces[i] = strings.TrimSpace(pieces[i])
	}
	var entries []profileEntry
	for len(pieces) > 0 {
		n := 1
		if strings.HasPrefix(pieces[0], profile.AnalyticPrefix) && len(pieces) > 1 {
			for n = 2; n < len(pieces) && strings.Contains(pieces[n], "="); n++ {
			}
		}
		e := profileEntry{name: strings.Join(pieces[:n], ",")}
		pieces = pieces[n:]
		if at := strings.LastIndexByte(e.name, '*'); at >= 0 {
			count, err := strconv.Atoi(strings.TrimSpace(e.name[at+1:]))
			if err != nil || count < 1 {
				return nil, fmt.Errorf("profile %q, expected NAME or NAME*COUNT with a count >= 1", e.name)
			}
			e = profileEntry{strings.TrimSpace(e.name[:at]), count}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// OldestProfiles returns a list of profiles in which each embedded profile has its oldest name (profile.Oldest). It
// returns the list unchanged if no name changes, or if the list is invalid.
func OldestProfiles(list string) string {
	entries, err := parseProfiles(list)
	if err != nil {
		return list
	}
	texts, renamed := make([]string, len(entries)), false
	for i, e := range entries {
		name := profile.Oldest(e.name)
		renamed = renamed || name != e.name
		texts[i] = profileEntry{name, e.count}.String()
	}
	if !renamed {
		return list
	}
	return strings.Join(texts, ",")
}

// workers returns the profiles, and for each worker the index of its profile. Without counts, workers use the profiles
// in turn. With counts, the workers of one profile come before those of the next, a profile without a count has one
// worker, and num_workers is the sum. In an elastic cluster, these are all workers that can exist.
func (c *Cluster) workers() (entries []profileEntry, kinds []int, err error) {
	if entries = c.Profile.Value(); len(entries) == 0 {
		return nil, nil, errors.New("profile is missing")
	}
	n := c.NumWorkers.Value
	elastic, err := c.elastic()
	if err != nil {
		return nil, nil, err
	}
	if elastic != nil {
		n = elastic.Max
	}
	counted := false
	for i, e := range entries {
		counted = counted || e.count > 0
		kinds = append(kinds, slices.Repeat([]int{i}, max(e.count, 1))...)
	}
	if !counted {
		kinds = make([]int, cmp.Or(max(n, 0), defaultWorkers))
		for j := range kinds {
			kinds[j] = j % len(entries)
		}
	} else if elastic != nil && n != len(kinds) {
		return nil, nil, fmt.Errorf("elastic has max=%d, but profile %s lists %d workers", n, c.Profile, len(kinds))
	} else if n != 0 && n != len(kinds) {
		return nil, nil, fmt.Errorf("num_workers is %d, but profile %s lists %d workers", n, c.Profile, len(kinds))
	}
	return entries, kinds, nil
}

// Workers returns the number of workers; in an elastic cluster, the maximum.
func (s *Scenario) Workers() (int, error) {
	_, kinds, err := s.Cluster.workers()
	return len(kinds), err
}

// Profiles returns the profile of each worker, with the scenario's overrides. Workers with the same profile share it.
func (s *Scenario) Profiles(ctx context.Context) ([]*profile.Profile, error) {
	if err := s.checkValues(); err != nil {
		return nil, err
	}
	entries, kinds, err := s.Cluster.workers()
	if err != nil {
		return nil, err
	}
	known := map[string]*profile.Profile{}
	var engines []string
	for _, e := range entries {
		if known[e.name] != nil {
			continue
		}
		p, err := profile.Load(ctx, e.name)
		if err != nil {
			return nil, err
		}
		if err := s.Cluster.Engine.override(p); err != nil {
			return nil, err
		}
		known[e.name] = p
		if !slices.Contains(engines, p.Engine.Scheduler) {
			engines = append(engines, p.Engine.Scheduler)
		}
	}
	if err := s.Cluster.Engine.checkKeys(engines...); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := known[e.name].Check(); err != nil {
			return nil, fmt.Errorf("profile %s with this scenario's changes: %w", known[e.name].Name, err)
		}
	}
	ps := make([]*profile.Profile, len(kinds))
	for j, i := range kinds {
		ps[j] = known[entries[i].name]
	}
	return ps, nil
}

// Override applies the scenario's worker settings to a profile, and checks the profile.
func (s *Scenario) Override(p *profile.Profile) error {
	if err := s.checkValues(); err != nil {
		return err
	}
	if err := s.Cluster.Engine.override(p); err != nil {
		return err
	}
	if err := s.Cluster.Engine.checkKeys(p.Engine.Scheduler); err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("profile %s with these settings: %w", p.Name, err)
	}
	return nil
}

// override applies the settings that are not left to the profile: the defaults of
// the key version, then those that the profile's engine knows by the same key, and two more.
func (c *Engine) override(p *profile.Profile) error {
	e := &p.Engine
	if err := c.serve(p); err != nil {
		return err
	}
	if e.Scheduler != c.Scheduler {
		switch c.Scheduler {
		case profile.SchedulerVLLM:
			e.UseVLLM()
			// A computed profile is of vLLM as it is today; measured ones keep the rules of their engine.
			e.AsyncScheduling = p.Uncalibrated
		case profile.SchedulerSGLang:
			e.AsyncScheduling, e.VLLMVersion = false, ""
		case profile.SchedulerSLoRA:
			e.UseSLoRA()
		}
	}
	p.FollowScheduler()
	if c.SchedulePolicy == profile.OrderVTC { // neither vLLM nor sglang has such an order
		e.AsyncScheduling, e.OverlapSchedule = false, false
	}
	switch {
	case c.AsyncScheduling && c.NoAsyncScheduling:
		return errors.New("async_scheduling and no_async_scheduling exclude each other")
	case c.NoAsyncScheduling:
		e.AsyncScheduling = false
	}
	if c.SpecializeActive {
		if err := p.SpecializeActiveLoRA(); err != nil {
			return err
		}
	}
	if c.GPUMemory > 0 {
		if c.KVTokens > 0 {
			return errors.New("gpu_memory_utilization and kv_tokens both set the KV cache: give only one of them")
		}
		if err := p.UseMemoryShare(c.GPUMemory); err != nil {
			return err
		}
	}
	switch {
	case c.OverlapSchedule && c.NoOverlapSchedule:
		return errors.New("overlap_schedule and disable_overlap_schedule exclude each other")
	case c.NoOverlapSchedule, c.LoraBackend == profile.BackendMerged, c.LoraBackend == profile.BackendDLoRA:
		e.OverlapSchedule = false
	}
	to := map[string]reflect.Value{
		"kv_tokens":    reflect.ValueOf(&p.Memory.KVTokens).Elem(),
		"lora_backend": reflect.ValueOf(&p.Latency.LoRA.Backend).Elem(),
	}
	for field, v := range reflect.ValueOf(e).Elem().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		to[key] = v
	}
	for field, v := range reflect.ValueOf(c).Elem().Fields() {
		if to, ok := to[field.Tag.Get("yaml")]; ok && !v.IsZero() {
			to.Set(v)
		}
	}
	p.FollowBackend()
	if c.ChunkedPrefillSize < 0 {
		e.ChunkedPrefillSize = 0 // no limit, as in sglang
	}
	e.PreemptionThreshold = max(e.PreemptionThreshold, 0)
	return nil
}

// serve applies the key version.
func (c *Engine) serve(p *profile.Profile) error {
	if !c.Version.Given() {
		return nil
	}
	s := c.Version.Value()
	if c.Scheduler != "" && c.Scheduler != s.Engine {
		return fmt.Errorf("engine %s has scheduler %s, but scheduler is %s: give only one of them", s, s.Engine,
			c.Scheduler)
	}
	return s.Apply(p)
}

// perProfile returns f of each worker's profile. It calls f once per distinct profile.
func perProfile[T any](ps []*profile.Profile, f func(*profile.Profile) (T, error)) ([]T, error) {
	known := map[*profile.Profile]T{}
	list := make([]T, len(ps))
	for i, p := range ps {
		v, ok := known[p]
		if !ok {
			var err error
			if v, err = f(p); err != nil {
				return nil, err
			}
			known[p] = v
		}
		list[i] = v
	}
	return list, nil
}

// compile turns profiles into step costs. It refuses adapters of ranks that
// workers do not load.
func compile(ps []*profile.Profile, adapters []trace.Adapter) ([]*profile.Costs, error) {
	return perProfile(ps, func(p *profile.Profile) (*profile.Costs, error) {
		if err := CheckRanks(p, adapters); err != nil {
			return nil, err
		}
		return p.Compile(), nil
	})
}

// parseOutages reads failures of workers, such as "2@10-30+0@50".
func parseOutages(text string) ([]sim.Outage, error) {
	var os []sim.Outage
	for part := range strings.SplitSeq(text, "+") {
		worker, span, ok := strings.Cut(strings.TrimSpace(part), "@")
		from, to, until := strings.Cut(span, "-")
		var o sim.Outage
		var err error
		if o.Worker, err = strconv.Atoi(worker); err == nil && ok {
			o.From, err = strconv.ParseFloat(from, 64)
		}
		if err == nil && until {
			o.To, err = strconv.ParseFloat(to, 64)
		}
		if err != nil || !ok || o.Worker < 0 || !(o.From >= 0) || until && !(o.To > o.From) {
			return nil, fmt.Errorf("%q, expected WORKER@FROM or WORKER@FROM-TO, in s, with 0 <= FROM < TO", part)
		}
		os = append(os, o)
	}
	return os, nil
}

// Router makes the scenario's policy for workers of the given profiles.
func (s *Scenario) Router(ctx context.Context, ps []*profile.Profile,
	adapters []trace.Adapter) (*router.Router, error) {
	r := &s.Routing
	policy, err := r.policy()
	if err != nil {
		return nil, err
	}
	var solver ilp.Solver // nil: the embedded one
	if r.Solver == "highs" {
		if solver, err = highs.New(highs.Auto); err != nil {
			return nil, err
		}
	}
	workers, err := perProfile(ps, func(p *profile.Profile) (router.Spec, error) { return workerSpec(p, adapters) })
	if err != nil {
		return nil, err
	}
	env := router.Env{
		Workers: workers, Adapters: adapters, Seed: s.Seed, Moving: router.Moving(r.RequestMigration),
		Interval: r.MigrationInterval, Threshold: r.MigrationReqThreshold, Solver: solver, Context: ctx,
	}
	rt, err := policy.New(env)
	if err == nil {
		err = admission.Add(rt, r.Shed.Value(), r.RateLimit.Value(), env,
			func(env router.Env) admission.Predictor { return planroute.NewTTFT(env) })
	}
	return rt, err
}

// home is where adapters lie that a worker does not start with.
func (c *Cluster) home() router.Tier {
	return map[string]router.Tier{"disk": router.Disk, "remote": router.Remote}[c.AdapterHome]
}

// workerSpec returns the router's description of a worker with the given profile.
func workerSpec(p *profile.Profile, adapters []trace.Adapter) (router.Spec, error) {
	costs := p.Compile()
	kv, err := p.KVTokens()
	if err != nil {
		return router.Spec{}, err
	}
	s := router.Spec{
		Cost:         profile.Model{Costs: costs},
		MaxRunning:   p.Engine.MaxRunningRequests,
		Slots:        p.Engine.Slots(len(adapters)),
		HostSlots:    p.Engine.HostLoras(),
		AdapterBytes: make([]float64, len(adapters)),
		KVBytes:      float64(p.Memory.KVBytesPerToken),
		PageSize:     p.Engine.PageSize,
		FrontEnd:     costs.FrontEnd.Seconds(),
		FirstUse:     costs.FirstUse.Seconds(),
		Blocks:       p.Engine.Scheduler == profile.SchedulerSGLang && p.Engine.HeadOfLine == profile.HeadOfLineBlock,
		PrefixCache:  p.Engine.PrefixCache,

		FetchesInSteps: p.Engine.Scheduler == profile.SchedulerVLLM,
		LoadsOverlap:   p.Engine.AdapterLoading == profile.LoadOverlapped,
		Mixes:          p.Engine.Scheduler == profile.SchedulerVLLM || p.Engine.MixedChunk,
		Ahead:          p.Engine.AsyncScheduling || p.Engine.OverlapSchedule,
	}
	switch e := &p.Engine; {
	case e.Scheduler == profile.SchedulerVLLM:
		s.StepTokens = int64(e.MaxNumBatchedTokens)
	case e.ChunkedPrefillSize > 0:
		s.StepTokens = int64(min(e.ChunkedPrefillSize, e.MaxPrefillTokens))
	default:
		s.StepTokens = int64(e.MaxPrefillTokens)
	}
	largest := 0.0
	for k, a := range adapters {
		s.AdapterBytes[k] = costs.Bytes(a.Rank)
		largest = max(largest, s.AdapterBytes[k])
	}
	s.Memory = float64(kv)*s.KVBytes + float64(s.Slots)*largest
	return s, nil
}

// policy returns the routing's policy.
func (r *Routing) policy() (router.Choice, error) {
	switch {
	case r.InferenceArchitecture == "sglang":
		return router.Choose("static")
	case r.InferenceArchitecture == "dlora" && (r.MigrationType == "" || r.MigrationType == "period_mig"):
		return router.Choose("dlora_period_mig")
	case r.InferenceArchitecture == "dlora":
		return router.Choose(r.MigrationType)
	case r.MigrationType != "":
		return router.Choice{}, fmt.Errorf("migration_type %s needs inference_architecture dlora", r.MigrationType)
	}
	return r.Policy.Value(), nil
}

// FixWorkers makes the cluster one of n workers, without autoscaling.
func (c *Cluster) FixWorkers(n int) {
	c.NumWorkers, c.Elastic = settings.Some(n), elasticText{}
}

// ProfileNames lists the names and files of the workers' profiles as they were given.
func (s *Scenario) ProfileNames() (names []string) {
	for _, e := range s.Cluster.Profile.Value() {
		names = append(names, e.name)
	}
	return names
}
