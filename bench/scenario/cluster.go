package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
)

// Profiles returns the profile of each worker, with the scenario's changes.
// Workers with the same profile share it.
func (s *Scenario) Profiles() ([]*profile.Profile, error) {
	c := &s.Cluster
	if c.NumWorkers < 1 {
		return nil, fmt.Errorf("num_workers is %d, expected >= 1", c.NumWorkers)
	}
	if !(c.LoadFailureRate >= 0 && c.LoadFailureRate < 1) {
		return nil, fmt.Errorf("load_failure_rate is %v, expected a probability below 1", c.LoadFailureRate)
	}
	names := strings.Split(c.Profile, ",")
	kinds := make([]*profile.Profile, len(names))
	for i, name := range names {
		p, err := profile.Load(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		c.override(p)
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("profile %s with this scenario's changes: %w", p.Name, err)
		}
		kinds[i] = p
	}
	ps := make([]*profile.Profile, c.NumWorkers)
	for i := range ps {
		ps[i] = kinds[i%len(kinds)]
	}
	return ps, nil
}

// override applies the settings that are not left to the profile.
func (c *Cluster) override(p *profile.Profile) {
	e := &p.Engine
	for _, o := range []struct {
		v  int
		to *int
	}{
		{c.MaxRunningRequests, &e.MaxRunningRequests},
		{c.MaxNumBatchedTokens, &e.MaxNumBatchedTokens},
		{c.MaxLorasPerBatch, &e.MaxLorasPerBatch},
		{c.MaxLoadedLoras, &e.MaxLoadedLoras},
		{c.MaxLoraRank, &e.MaxLoraRank},
		{c.ChunkedPrefillSize, &e.ChunkedPrefillSize},
		{c.MaxPrefillTokens, &e.MaxPrefillTokens},
		{c.ContextLength, &e.ContextLength},
		{c.PageSize, &e.PageSize},
	} {
		if o.v != 0 {
			*o.to = o.v
		}
	}
	for _, o := range []struct {
		v  string
		to *string
	}{
		{c.HeadOfLine, &e.HeadOfLine},
		{c.AdapterLoading, &e.AdapterLoading},
		{c.AdapterEviction, &e.AdapterEviction},
		{c.LoraBackend, &p.Latency.LoRA.Backend},
		{c.Scheduler, &e.Scheduler},
	} {
		if o.v != "" {
			*o.to = o.v
		}
	}
	if c.KVTokens != 0 {
		p.Memory.KVTokens = c.KVTokens
	}
	if c.StarvationS != 0 {
		e.StarvationS = c.StarvationS
	}
}

// home is the tier of adapters that a worker does not start with.
func (c *Cluster) home() (router.Tier, error) {
	switch c.AdapterHome {
	case "disk":
		return router.Disk, nil
	case "remote":
		return router.Remote, nil
	}
	return 0, suggest.Unknown("adapter_home", c.AdapterHome, []string{"disk", "remote"})
}

// outages reads the failures of workers: "2@10-30+0@50".
func (c *Cluster) outages() ([]sim.Outage, error) {
	var os []sim.Outage
	if c.Outages == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(c.Outages, "+") {
		worker, span, ok := strings.Cut(strings.TrimSpace(part), "@")
		from, to, until := strings.Cut(span, "-")
		o, err := sim.Outage{}, error(nil)
		if o.Worker, err = strconv.Atoi(worker); err == nil && ok {
			o.From, err = strconv.ParseFloat(from, 64)
		}
		if err == nil && until {
			o.To, err = strconv.ParseFloat(to, 64)
		}
		if err != nil || !ok {
			return nil, fmt.Errorf("outages: %q, expected WORKER@FROM or WORKER@FROM-TO, in s", part)
		}
		os = append(os, o)
	}
	return os, nil
}
