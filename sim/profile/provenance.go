package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind says where the coefficients of a profile come from.
type Kind string

const (
	// Measured: the coefficients were fitted to runs of this hardware and engine,
	// and at least minHeldOut runs that nothing was fitted to validated them: the
	// profile has intervals from these runs, and its settings are those that were
	// validated.
	Measured Kind = "measured"
	// Calibrated: the coefficients were fitted to runs, or changed after their
	// validation, and fewer than minHeldOut held-out runs validated them as they are.
	Calibrated Kind = "calibrated"
	// Computed: the coefficients come from data sheets or publications. No run of
	// this hardware and engine was compared with them.
	Computed Kind = "computed"
)

// minHeldOut is the least number of held-out runs of a measured profile: from
// three runs on there are intervals of half of the runs.
const minHeldOut = 3

// Provenance says what a prediction with a profile rests on.
type Provenance struct {
	Kind     Kind   `json:"kind"`
	Hardware string `json:"hardware"` // "H100 64 GB, about 2 TB/s"
	Engine   string `json:"engine"`   // with its version: "vLLM 0.8.5"
	// ValidatedOn is a phrase on the held-out runs; "": no held-out run.
	ValidatedOn string `json:"validated_on"`
	// Changed lists the settings because of which a validated profile is no longer
	// the one that was validated.
	Changed []string `json:"changed,omitempty"`
}

// Provenance derives the kind of the profile from what it contains. A scenario's
// settings of sizes and limits (slots, KV tokens, batch) leave the kind as it is,
// because the scheduler is simulated by its own rules; another scheduler or other
// coefficients of step times do not.
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

// retimed lists the changed settings on which step times depend.
func retimed(base, p *Profile) []string {
	changed := changes(base, p)
	maps.DeleteFunc(changed, func(key, _ string) bool { return !retimes(key) })
	return slices.Sorted(maps.Keys(changed))
}

// heldOut is the number of runs that the intervals come from: each run is in one
// class of load of each of its metrics.
func (in *Intervals) heldOut() float64 {
	most, of := 0.0, map[string]float64{}
	for _, b := range in.Bands {
		of[b.Metric] += b.Runs
		most = max(most, of[b.Metric])
	}
	return most
}

// String is the kind, and what was changed.
func (v Provenance) String() string {
	if len(v.Changed) > 0 {
		return fmt.Sprintf("%s (changed after its validation: %s)", v.Kind, strings.Join(v.Changed, ", "))
	}
	return string(v.Kind)
}

// Note is a sentence on what a user should know before trusting a prediction of
// the named profile; "": nothing beyond its kind.
func (v Provenance) Note(name string) string {
	switch {
	case v.Kind == Computed:
		return fmt.Sprintf("profile %s is computed from data sheets and was never compared with a measured run; "+
			"lorasim calibrate fits it to runs of your server", name)
	case len(v.Changed) > 0:
		return fmt.Sprintf("profile %s differs from the validated one (changed: %s)", name,
			strings.Join(v.Changed, ", "))
	}
	return ""
}
