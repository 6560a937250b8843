package result

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/sim/record"
)

// An SLO is a service-level objective: upper limits on the latencies of a request, in
// milliseconds. A limit of 0 is not set.
type SLO struct {
	TTFT, TPOT, E2E float64
	// Attain is the share of an adapter's requests that must be within the limits. 0 means
	// DefaultAttain.
	Attain float64
}

// DefaultAttain is the default of SLO.Attain.
const DefaultAttain = 0.99

// Enough reports whether an adapter meets the SLO if good of its requests are within the
// limits.
func (s SLO) Enough(good, requests int64) bool {
	return float64(good) >= (cmp.Or(s.Attain, DefaultAttain)-1e-9)*float64(requests)
}

var latencyNames = [...]string{"ttft", "tpot", "e2e"}

func (s *SLO) limits() [3]*float64 { return [...]*float64{&s.TTFT, &s.TPOT, &s.E2E} }

// ParseSLO parses an SLO such as "ttft:500 tpot:50 e2e:5000 attain:99%", with limits in
// ms. Spaces or commas separate the parts. "" is the empty SLO. attain without a limit is
// an error.
func ParseSLO(spec string) (SLO, error) {
	var s SLO
	for _, part := range strings.FieldsFunc(spec, func(r rune) bool { return r == ' ' || r == ',' }) {
		if why := s.parse(part); why != "" {
			return SLO{}, fmt.Errorf("SLO %q: %q: %s", spec, part, why)
		}
	}
	if s.Empty() && s.Attain > 0 {
		return SLO{}, fmt.Errorf("SLO %q: expected a latency beside attain, as in ttft:500", spec)
	}
	return s, nil
}

// parse sets a limit. It returns what is wrong with the text, or "".
func (s *SLO) parse(part string) (why string) {
	name, value, ok := strings.Cut(part, ":")
	if !ok {
		return "expected NAME:MILLISECONDS, as in ttft:500"
	}
	if name == "attain" {
		if s.Attain != 0 {
			return "given twice"
		}
		var err error
		if s.Attain, err = ParseShare(value); err != nil {
			return err.Error()
		}
		return ""
	}
	if name == "e2el" { // vLLM's name
		name = "e2e"
	}
	i := slices.Index(latencyNames[:], name)
	if i < 0 {
		return "unknown latency: expected ttft, tpot or e2e"
	}
	limit := s.limits()[i]
	if *limit != 0 {
		return "given twice"
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return "expected a number of milliseconds above 0"
	}
	*limit = v
	return ""
}

// String returns the SLO in the form that ParseSLO reads.
func (s SLO) String() string {
	var parts []string
	for i, limit := range s.limits() {
		if *limit > 0 {
			parts = append(parts, latencyNames[i]+":"+strconv.FormatFloat(*limit, 'f', -1, 64))
		}
	}
	if s.Attain > 0 {
		parts = append(parts, "attain:"+strconv.FormatFloat(s.Attain, 'f', -1, 64))
	}
	return strings.Join(parts, " ")
}

// Empty reports whether no limit is set.
func (s SLO) Empty() bool { return s.TTFT == 0 && s.TPOT == 0 && s.E2E == 0 }

// ParseShare parses a share such as "99%" or "0.99". The share must be above 0 and at
// most 1.
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) {
		return 0, fmt.Errorf("%q, expected a share above 0 and up to 100%%, as in 99%% or 0.99", text)
	}
	return x, nil
}

// Met reports whether a request succeeded within all limits.
func (s SLO) Met(r *record.Request) bool {
	if r.Status != record.OK {
		return false
	}
	var g Goodput
	e2e, ttft, tpot, textless := latencies(r, r.Streamed == record.NotStreamed)
	return g.count(s, ttft, tpot, e2e, textless)
}
