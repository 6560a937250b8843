package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"lorasim/sim/profile"
)

// defaultWorkers is their number where neither num_workers nor profile says.
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
	for i := 0; i < len(pieces); i++ {
		name := pieces[i]
		if strings.HasPrefix(name, profile.AnalyticPrefix) && i+1 < len(pieces) {
			i++
			name += "," + pieces[i]
			for i+1 < len(pieces) && strings.Contains(pieces[i+1], "=") {
				i++
				name += "," + pieces[i]
			}
		}
		e := profileEntry{name: name}
		if at := strings.LastIndexByte(name, '*'); at >= 0 {
			n, err := strconv.Atoi(strings.TrimSpace(name[at+1:]))
			if err != nil || n < 1 {
				return nil, fmt.Errorf("profile %q, expected NAME or NAME*COUNT with a count >= 1", name)
			}
			e = profileEntry{strings.TrimSpace(name[:at]), n}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// kindOf says which entry each worker is of. Without counts the entries go to the
// workers in turn; with any, each comes so many times (once where it has none), one
// after the other, and num_workers is their sum.
func (c *Cluster) kindOf(entries []profileEntry) ([]int, error) {
	if c.NumWorkers < 0 {
		return nil, fmt.Errorf("num_workers is %d, expected >= 1, or 0: as profile says", c.NumWorkers)
	}
	var kinds []int
	counted := false
	for i, e := range entries {
		counted = counted || e.count > 0
		for range max(e.count, 1) {
			kinds = append(kinds, i)
		}
	}
	if counted {
		if c.NumWorkers != 0 && c.NumWorkers != len(kinds) {
			return nil, fmt.Errorf("num_workers is %d, but profile %s lists %d workers", c.NumWorkers, c.Profile, len(kinds))
		}
		return kinds, nil
	}
	n := c.NumWorkers
	if n == 0 {
		n = defaultWorkers
	}
	kinds = make([]int, n)
	for j := range kinds {
		kinds[j] = j % len(entries)
	}
	return kinds, nil
}

// Workers is the number of workers.
func (s *Scenario) Workers() (int, error) {
	entries, err := parseProfiles(s.Cluster.Profile)
	if err != nil {
		return 0, err
	}
	kinds, err := s.Cluster.kindOf(entries)
	return len(kinds), err
}

// Profiles returns the profile of each worker, with the scenario's changes.
// Workers with the same profile share it.
func (s *Scenario) Profiles() ([]*profile.Profile, error) {
	c := &s.Cluster
	if !(c.LoadFailureRate >= 0 && c.LoadFailureRate < 1) {
		return nil, fmt.Errorf("load_failure_rate is %v, expected a probability below 1", c.LoadFailureRate)
	}
	entries, err := parseProfiles(c.Profile)
	if err != nil {
		return nil, err
	}
	kinds, err := c.kindOf(entries)
	if err != nil {
		return nil, err
	}
	known := map[string]*profile.Profile{}
	for _, e := range entries {
		if known[e.name] != nil {
			continue
		}
		p, err := profile.Load(e.name)
		if err != nil {
			return nil, err
		}
		c.override(p)
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("profile %s with this scenario's changes: %w", p.Name, err)
		}
		known[e.name] = p
	}
	ps := make([]*profile.Profile, len(kinds))
	for j, i := range kinds {
		ps[j] = known[entries[i].name]
	}
	return ps, nil
}
