package result

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/tick"
)

// SLO is a service-level objective: upper limits in milliseconds on the
// latencies of a request. A limit of 0 is not set.
type SLO struct {
	TTFT float64
	TPOT float64
	E2E  float64
}

func (s *SLO) limits() []struct {
	name  string
	limit *float64
} {
	return []struct {
		name  string
		limit *float64
	}{{"ttft", &s.TTFT}, {"tpot", &s.TPOT}, {"e2e", &s.E2E}}
}

// ParseSLO reads an SLO such as "ttft:500 tpot:50 e2e:5000" (ms); spaces or
// commas separate the limits, and "" is the empty SLO.
func ParseSLO(spec string) (SLO, error) {
	var s SLO
	bad := func(part, why string) (SLO, error) {
		return SLO{}, fmt.Errorf("SLO %q: %q: %s", spec, part, why)
	}
	for _, part := range strings.FieldsFunc(spec, func(r rune) bool { return r == ' ' || r == ',' }) {
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return bad(part, "expected NAME:MILLISECONDS, as in ttft:500")
		}
		var limit *float64
		for _, l := range s.limits() {
			if l.name == name {
				limit = l.limit
			}
		}
		switch {
		case limit == nil:
			return bad(part, "unknown latency: expected ttft, tpot or e2e")
		case *limit != 0:
			return bad(part, "given twice")
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return bad(part, "expected a number of milliseconds above 0")
		}
		*limit = v
	}
	return s, nil
}

// String is the inverse of ParseSLO.
func (s SLO) String() string {
	var parts []string
	for _, l := range s.limits() {
		if *l.limit > 0 {
			parts = append(parts, l.name+":"+strconv.FormatFloat(*l.limit, 'f', -1, 64))
		}
	}
	return strings.Join(parts, " ")
}

// Empty says whether no limit is set.
func (s SLO) Empty() bool { return s == SLO{} }

// attained counts the successful requests that met the limits of an SLO.
type attained struct {
	ttft, tpot, e2e, all int64
}

// count adds one successful request. One without text never had a first token
// and so misses a limit on TTFT.
func (a *attained) count(s SLO, ttft, tpot, e2e tick.Ticks, textless bool) {
	within := func(v tick.Ticks, limit float64) bool { return limit == 0 || v.Milliseconds() <= limit }
	t := within(ttft, s.TTFT) && !(textless && s.TTFT > 0)
	p := within(tpot, s.TPOT)
	e := within(e2e, s.E2E)
	if t {
		a.ttft++
	}
	if p {
		a.tpot++
	}
	if e {
		a.e2e++
	}
	if t && p && e {
		a.all++
	}
}
