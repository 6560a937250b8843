package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/trace/settings"
)

// A Candidate is a cluster. Zero and empty fields have the scenario's value.
type Candidate struct {
	Workers    int    `json:"workers"` // workers of Profile
	Profile    string `json:"profile,omitempty"`
	More       int    `json:"more_workers,omitempty"` // workers of With, in a mixed cluster
	With       string `json:"with,omitempty"`
	Slots      int    `json:"slots,omitempty"`
	HostPlaces int    `json:"host_places,omitempty"`
	Policy     string `json:"policy,omitempty"`
}

// with is the candidate with another number of workers.
func (c Candidate) with(workers int) Candidate {
	c.Workers = workers
	return c
}

// String describes the candidate in words.
func (c Candidate) String() string {
	s := c.workers()
	if kind := c.kind(); kind != "" {
		s += " (" + kind + ")"
	}
	return s
}

// total is the number of workers.
func (c Candidate) total() int { return c.Workers + c.More }

func (c Candidate) workers() string {
	switch {
	case c.With != "":
		return fmt.Sprintf("%d %s and %d %s", c.Workers, c.Profile, c.More, c.With)
	case c.Workers == 1:
		return "1 worker"
	}
	return strconv.Itoa(c.Workers) + " workers"
}

// kind describes the candidate without the number of workers.
func (c Candidate) kind() string {
	var parts []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			parts = append(parts, name+" "+value)
		}
	}
	if c.With == "" {
		add("profile", c.Profile)
	} else if c.Workers == 0 {
		add("profile", c.Profile+" with "+c.With)
	}
	add("slots", strconv.Itoa(c.Slots))
	add("host places", strconv.Itoa(c.HostPlaces))
	add("policy", c.Policy)
	return strings.Join(parts, ", ")
}

// apply is the scenario with the candidate's cluster. Engines need a place in host memory for each slot: if the
// candidate has more slots than the scenario has places, and states no places, it has a place for each slot.
func (c Candidate) apply(base *scenario.Scenario) (sc scenario.Scenario, err error) {
	sc = *base
	if n := c.total(); n > 0 {
		sc.Cluster.NumWorkers = settings.Some(n)
	}
	switch {
	case c.With != "":
		err = sc.Set("profile", fmt.Sprintf("%s*%d,%s*%d", c.Profile, c.Workers, c.With, c.More))
	case c.Profile != "":
		err = sc.Set("profile", c.Profile)
	}
	e := &sc.Cluster.Engine
	e.MaxLorasPerBatch = cmp.Or(c.Slots, e.MaxLorasPerBatch)
	if e.MaxLoadedLoras > 0 {
		e.MaxLoadedLoras = max(e.MaxLoadedLoras, c.Slots)
	}
	e.MaxLoadedLoras = cmp.Or(c.HostPlaces, e.MaxLoadedLoras)
	if c.Policy != "" {
		sc.Routing.InferenceArchitecture, sc.Routing.MigrationType = "", ""
		err = cmp.Or(err, sc.Set("policy", c.Policy))
	}
	return sc, err
}

// near is how many fewer workers are looked at where one worker less fails.
const near = 8

// below are the candidates with one worker less, and with a few less.
func (c Candidate) below() (list []Candidate) {
	if c.With == "" {
		for w := c.Workers - 1; w > 0 && w >= c.Workers-near; w-- {
			list = append(list, c.with(w))
		}
		return list
	}
	less, fewer := c.with(c.Workers-1), c
	fewer.More--
	if less.Workers == 0 {
		less.Workers, less.Profile, less.More, less.With = c.More, c.With, 0, ""
	}
	if fewer.More == 0 {
		fewer.With = ""
	}
	return append(list, less, fewer)
}

// all lists the kinds of candidates, in the order in which they are preferred at
// the same cost.
func (o *Options) all() []Candidate {
	ints := func(list []int) []int { return slices.Concat(list, make([]int, max(0, 1-len(list)))) }
	texts := func(list []string) []string { return slices.Concat(list, make([]string, max(0, 1-len(list)))) }
	var all []Candidate
	for _, profile := range texts(o.Profiles) {
		for _, policy := range texts(o.Policies) {
			for _, slots := range ints(o.Slots) {
				for _, host := range ints(o.HostPlaces) {
					all = append(all, Candidate{Profile: profile, Policy: policy, Slots: slots, HostPlaces: host})
				}
			}
		}
	}
	return all
}

// cost is the cost of a candidate per hour, or its number of workers if no costs are given.
func (o *Options) cost(c Candidate) float64 {
	price := func(profile string) float64 {
		if x, ok := o.Cost[profile]; ok {
			return x
		}
		return 1
	}
	return price(c.Profile)*float64(c.Workers) + price(c.With)*float64(c.More)
}

// asked is the required share: of the requests, or of the adapters.
func (o *Options) asked() float64 { return cmp.Or(o.PerAdapter, o.Attain) }

// target is the mean that runs must reach: of the required share, or of the share of runs that reach it.
func (o *Options) target() float64 { return cmp.Or(o.Hold, o.asked()) }

// demand is the requirement in words, without the share.
func (o *Options) demand() string {
	if o.PerAdapter > 0 {
		return fmt.Sprintf("of the adapters with %s of their requests within %s", percent(o.Attain), o.SLO)
	}
	return "of the requests within " + o.SLO.String()
}

// mixes lists the kinds of clusters of two profiles.
func (o *Options) mixes() (mixes []Kind) {
	kinds := o.all()
	for i, a := range kinds {
		for _, b := range kinds[i+1:] {
			if m := a; a.Profile != b.Profile {
				if m.Profile = b.Profile; m == b { // alike but for the profile
					mixes = append(mixes, Kind{
						Candidate: Candidate{
							Profile: a.Profile, With: b.Profile, Slots: a.Slots, HostPlaces: a.HostPlaces,
							Policy: a.Policy,
						},
					})
				}
			}
		}
	}
	return mixes
}

// mixed enters the cheapest mix of two profiles that holds, as far as is known,
// and costs less than every kind of one profile: 0 workers, if there is none. Of
// each profile at least one worker is in it. Where a mix fails, so do all with as
// many or fewer workers of each kind, and what costs as much as one that holds
// need not be tried: from many workers of the first profile down to one, those of
// the second can but grow in number.
func (s *search) mixed(m *Kind, kinds []Kind) error {
	bound := math.Inf(1)
	c := m.Candidate
	m.Workers, m.More, m.Cost = 0, 0, 0
	for _, k := range kinds {
		of := m.Candidate // the cluster of one profile that is alike
		of.Profile, of.With = k.Profile, ""
		if alike := k.with(0) == of && (k.Profile == m.Profile || k.Profile == m.With); alike && k.Err != "" {
			m.Err = k.Err
			return nil
		}
		if k.With == "" && !k.Bound && k.Workers > 0 && k.Workers <= s.opt.MaxWorkers {
			bound = min(bound, s.opt.cost(k.Candidate))
		}
	}
	for c.Workers, c.More = s.opt.MaxWorkers-1, 1; c.Workers > 0; {
		if cost := s.opt.cost(c); cost >= bound-rounding || c.total() > s.opt.MaxWorkers {
			c.Workers--
			continue
		}
		ok, err := s.known(c)
		if err != nil {
			return err
		}
		if !ok {
			c.More++
			continue
		}
		bound = s.opt.cost(c)
		m.Candidate, m.Cost = c, bound
		c.Workers--
	}
	return nil
}
