package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Kind is the origin of a profile's coefficients.
type Kind string

const (
	// Measured: the coefficients were fitted to runs of this hardware and engine. At least minHeldOut
	// held-out runs validated them, and the profile has intervals from these runs. Its settings are the
	// validated ones.
	Measured Kind = "measured"
	// Calibrated: the coefficients were fitted to runs, or changed after their validation. Fewer than
	// minHeldOut held-out runs validated them in this form.
	Calibrated Kind = "calibrated"
	// Computed: the coefficients come from data sheets or publications. No run of
	// this hardware and engine was compared with them.
	Computed Kind = "computed"
)

// minHeldOut is the least number of held-out runs of a measured profile. Three runs are enough for the range
// of half of the runs (see [Band]).
const minHeldOut = 3

// Provenance describes the evidence behind a profile.
type Provenance struct {
	Kind     Kind   `json:"kind"`
	Hardware string `json:"hardware"` // "H100 64 GB, about 2 TB/s"
	Engine   string `json:"engine"`   // with its version: "vLLM 0.8.5"
	// ValidatedOn is a phrase on the held-out runs; "": no held-out run.
	ValidatedOn string `json:"validated_on"`
	// Changed lists the settings that differ from the validated profile.
	Changed []string `json:"changed,omitempty"`
}

// Provenance derives the kind of the profile from its contents. A scenario may change sizes and limits
// (slots, KV tokens, batch) without a change of kind, because the scheduler is simulated by its own rules.
// Another scheduler or other coefficients of step times change the kind.
func (p *Profile) Provenance() Provenance {
	v := Provenance{Kind: Calibrated, Hardware: cmp.Or(p.Hardware, p.GPU, "unknown"), ValidatedOn: p.ValidatedOn,
		Engine: cmp.Or(p.EngineVersion, p.Engine.Scheduler+", version unknown")}
	if v.ValidatedOn == "" && len(p.Validation) > 0 {
		v.ValidatedOn = p.Validation[0].Runs
	}
	switch in, origin := p.Intervals, p.origin; {
	case p.Uncalibrated:
		v.Kind, v.ValidatedOn = Computed, ""
		v.Engine = cmp.Or(p.EngineVersion, "rules of "+p.Engine.Scheduler)
		return v
	case in != nil && in.Of == fingerprint(p): // as it was validated
	case in != nil && (origin == nil || in.Of != fingerprint(origin)):
		v.Changed = []string{"the profile file"}
	case origin != nil && (in != nil || v.ValidatedOn != ""):
		v.Changed = retimed(origin, p) // by a scenario
	}
	switch {
	case len(v.Changed) > 0:
		v.ValidatedOn = ""
	case p.Intervals != nil && p.Intervals.heldOut() >= minHeldOut:
		v.Kind = Measured
	}
	return v
}

// retimed lists the changed settings that affect step times.
func retimed(base, p *Profile) []string {
	changed := changes(base, p)
	maps.DeleteFunc(changed, func(key, _ string) bool { return !retimes(key) })
	return slices.Sorted(maps.Keys(changed))
}

// heldOut returns the number of runs that the intervals come from. Each run is in one class of load of each
// of its metrics.
func (in *Intervals) heldOut() float64 {
	most, of := 0.0, map[string]float64{}
	for _, b := range in.Bands {
		of[b.Metric] += b.Runs
		most = max(most, of[b.Metric])
	}
	return most
}

// String returns the kind, followed by the changed settings, if any.
func (v Provenance) String() string {
	if len(v.Changed) > 0 {
		return fmt.Sprintf("%s (changed after its validation: %s)", v.Kind, strings.Join(v.Changed, ", "))
	}
	return string(v.Kind)
}

// Note returns a warning for users of the named profile; "": no warning. Computed and changed profiles have
// one.
func (v Provenance) Note(name string) string {
	switch {
	case v.Kind == Computed:
		return fmt.Sprintf("profile %s is computed from data sheets and was never compared with a measured run; "+
			"lorasim profile fit fits it to runs of your server", name)
	case len(v.Changed) > 0:
		return fmt.Sprintf("profile %s differs from the validated one (changed: %s)", name,
			strings.Join(v.Changed, ", "))
	}
	return ""
}
