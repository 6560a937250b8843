package capacity

import "math"

// mixes lists the kinds of clusters of two profiles.
func (o *Options) mixes() (mixes []Kind) {
	kinds := o.all()
	for i, a := range kinds {
		for _, b := range kinds[i+1:] {
			if m := a; a.Profile != b.Profile {
				if m.Profile = b.Profile; m == b { // alike but for the profile
					mixes = append(mixes, Kind{Candidate: Candidate{Profile: a.Profile, With: b.Profile, Slots: a.Slots, HostPlaces: a.HostPlaces, Policy: a.Policy}})
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
		if k.With == "" && k.Workers > 0 && k.Workers <= s.opt.MaxWorkers {
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
