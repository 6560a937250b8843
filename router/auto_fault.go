package router

import "errors"

// Fault implements Faulty: auto fails where its incumbent does, or a candidate in a race.
func (p *auto) Fault() error {
	if p.fault == nil {
		p.fault = p.current.Fault()
	}
	return p.fault
}

// broke notes a candidate that failed in a race. It takes part in no other.
func (p *auto) broke(err error) {
	var e *PolicyError
	if !errors.As(err, &e) {
		return
	}
	for k := range p.candidates {
		if Canonical(p.candidates[k].spec) == e.Policy {
			p.candidates[k].broken = true
		}
	}
	if p.fault == nil {
		p.fault = err
	}
}
