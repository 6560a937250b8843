package scenario

// Unused lists the settings without effect on the run, because the policy does not use them. It is conservative: other
// settings may have no effect either.
func (s *Scenario) Unused() (keys []string) {
	policy, err := s.Routing.policy()
	if err != nil {
		return nil
	}
	f := policy.Facts()
	note := func(used bool, key string) {
		if !used {
			keys = append(keys, key)
		}
	}
	// Workers that come and go, and a router that refuses requests, look at signals
	// whatever the policy.
	signals := f.Signals || s.Routing.Shed.Given() || s.Cluster.Outages.Given() || s.Cluster.Elastic.Given()
	note(signals, "routing.view_staleness")
	note(signals, "routing.known_outputs")
	note(f.Plans && f.Interval, "routing.migration_interval")
	note(f.Plans && f.Threshold, "routing.migration_req_threshold")
	note(f.Plans, "routing.request_migration")
	note(f.Plans, "routing.solver")
	return keys
}

// Effective returns the scenario with its unused settings at their defaults. Two scenarios with equal Effective give
// the same run.
func (s *Scenario) Effective() *Scenario {
	e := *s
	for _, key := range s.Unused() {
		f, _ := Find(key)
		f.of(&e).Set(f.of(&defaults))
	}
	return &e
}
