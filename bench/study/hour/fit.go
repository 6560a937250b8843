package hour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/fidelity/fit"
	"lorasim/bench/fidelity/measured"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// start is a profile to start the fit from.
type start struct {
	profile *profile.Profile
	off     float64 // deviation of its prediction of the first half
}

// fit fits the profile of the fleet's workers to the first half of the hour. Of the profiles to start from, the one
// whose fit deviates least wins.
func (s *hourStudy) fit(ctx context.Context, a *Answer) error {
	starts := []start{{profile: s.opt.Profile}}
	if s.opt.Profile == nil {
		var err error
		if starts, a.Tried, err = s.nearest(ctx); err != nil {
			return err
		}
	} else if err := s.adopt(s.opt.Profile); err != nil {
		return err
	}
	best, slow := math.Inf(1), 0
	var failed error
	for _, from := range starts {
		found, err := s.fitFrom(ctx, from.profile)
		if ctx.Err() != nil {
			return err
		}
		off := math.Inf(1)
		if err == nil {
			off, err = s.deviation(ctx, found.Profile)
		}
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("fit of profile %s: %w", from.profile.Name, err))
			continue
		}
		if off < best {
			best, a.Start, a.Fit, s.base.profile = off, from.profile.Name, found, found.Profile
		}
		if simulates(from.profile) {
			slow++
		}
		if best < nearEnough || slow == mostSlowFits {
			break
		}
	}
	if a.Fit == nil {
		return failed
	}
	a.missed = best
	a.Slots = s.base.profile.Engine.Slots(len(s.Adapters))
	var err error
	a.KV, err = s.base.profile.KVTokens()
	return err
}

// adopt gives a profile the settings of the engine and the size of the KV cache. If the profile says how much memory
// adapter slots take, more slots will make the KV cache smaller.
func (s *hourStudy) adopt(p *profile.Profile) error {
	if err := s.base.sc.Override(p); err != nil {
		return err
	}
	if f := s.opt.Facts; f != nil {
		p.Engine.MaxRunningRequests = max(p.Engine.MaxRunningRequests, f.Running)
	}
	if s.opt.KVTokens == 0 {
		return p.Check()
	}
	m := &p.Memory
	if m.KVTokens == 0 && len(m.KVTable) == 0 && m.PoolGiB > 0 && m.KVBytesPerToken > 0 {
		roomy := *p // the pool may be too small for the slots
		roomy.Memory.PoolGiB += 1 << 20
		if n, err := roomy.KVTokens(); err == nil {
			m.PoolGiB = roomy.Memory.PoolGiB + float64(s.opt.KVTokens-n)*float64(m.KVBytesPerToken)/(1<<30)
			return p.Check()
		}
	}
	m.KVTokens = s.opt.KVTokens
	return p.Check()
}

const (
	// nearEnough is the mean deviation of the figures of the first half with which no further profile is fitted.
	nearEnough = 0.03
	// mostFits limits the simulations of one attempt to fit a profile whose law has no equations for records.
	mostFits = 150
	// mostSlowFits limits the number of such profiles.
	mostSlowFits = 2
)

// fitFrom fits a profile to the first half.
func (s *hourStudy) fitFrom(ctx context.Context, from *profile.Profile) (*fit.Result, error) {
	report := s.phase("fitting")
	if s.Drawn {
		return s.fitMeans(ctx, from, report)
	}
	o := fit.RecordsOptions{MemoryStated: true, Options: fit.Options{Start: from,
		Progress: func(done, total int, _ float64) { report(int64(min(done, total)), int64(total)) }}}
	if simulates(from) {
		o.Evaluations = mostFits
	}
	return fit.Records(ctx, [][]record.Request{s.Requests[:s.half()]}, o)
}

// simulates reports whether a fit of a profile simulates the records.
func simulates(p *profile.Profile) bool {
	return p.Latency.Law == profile.LawAdapters || p.Latency.Law == profile.LawRoofline
}

// first simulates the first half, with requests on the workers that served them.
func (s *hourStudy) first(ctx context.Context, p *profile.Profile) ([]record.Request, error) {
	f := s.base
	f.profile = p
	w := s.workload
	w.Requests = w.Requests[:s.half()]
	got, err := f.run(ctx, &w, s.recorded)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(got, func(r record.Request) bool { return r.Status != record.OK }); i >= 0 {
		return nil, fmt.Errorf("a request with %d prompt and %d output tokens fails: %s", got[i].Prompt,
			s.Requests[i].Output, got[i].Error)
	}
	return got, nil
}

// deviation is the mean deviation of the figures of the first half, in logarithms.
func (s *hourStudy) deviation(ctx context.Context, p *profile.Profile) (float64, error) {
	got, err := s.first(ctx, p)
	if err != nil {
		return 0, err
	}
	n := s.half()
	seen, predicted := measured.Figures(s.Requests[:n], s.Requests[:n]), measured.Figures(got, s.Requests[:n])
	off, figures := 0.0, 0
	metrics := measured.RecordingMetrics
	if s.Drawn {
		metrics = []measured.Metric{measured.TTFTMean, measured.E2EMean}
	}
	for _, m := range metrics {
		if x, ok := seen[m]; ok && m != measured.Duration {
			off += math.Abs(math.Log(predicted[m] / x))
			figures++
		}
	}
	return off / float64(max(figures, 1)), nil
}

// nearest returns the embedded profiles that could serve the requests, and their number. Those whose fit needs no
// simulations come first, then those whose predictions of the first half deviate least. The costs that their GPU allows
// at least are not those of the fleet's GPU.
func (s *hourStudy) nearest(ctx context.Context) (list []start, tried int, err error) {
	names := profile.Names()
	list = make([]start, len(names))
	scheduler := s.base.sc.Cluster.Engine.Scheduler
	if v := s.base.sc.Cluster.Engine.Version; v.Given() {
		scheduler = v.Value().Engine
	}
	err = parallel.Do(ctx, len(names), func(i int) error {
		p, err := profile.Embedded(names[i])
		if err != nil {
			return err
		}
		if scheduler != "" && p.Engine.Scheduler != scheduler || !s.serves(p) || s.adopt(p) != nil {
			return nil // another engine, or one that lacks a setting
		}
		p.GPU = ""
		if off, err := s.deviation(ctx, p); err == nil {
			list[i] = start{p, off}
		}
		return ctx.Err()
	}, s.phase("profiles"))
	if err != nil {
		return nil, 0, err
	}
	list = slices.DeleteFunc(list, func(x start) bool { return x.profile == nil })
	if len(list) == 0 {
		return nil, 0, errors.New("no embedded profile can serve the requests with these settings of the engine: " +
			"give one with --profile (lorasim profile compute computes one from model and GPU)")
	}
	slices.SortStableFunc(list, func(x, y start) int {
		if a, b := simulates(x.profile), simulates(y.profile); a != b {
			if b {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.off, y.off)
	})
	return list, len(list), nil
}

// serves reports whether workers of a profile run several adapters side by side, as the engines of a fleet do.
func (s *hourStudy) serves(p *profile.Profile) bool {
	backend := p.Latency.LoRA.Backend
	return len(s.Adapters) == 0 || backend != profile.BackendNone && backend != profile.BackendMerged &&
		backend != profile.BackendDLoRA
}
