package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
)

// A Limit is by how much a metric may become worse, as a share of its value in BASE. Worse is more or less, by the
// metric's direction in the table of metrics.
type Limit struct {
	Metric string
	Share  float64
}

// String returns the limit as ParseLimits reads it.
func (l Limit) String() string {
	return l.Metric + ">" + strconv.FormatFloat(100*l.Share, 'g', 12, 64) + "%"
}

// better is the direction of the limit's metric.
func (l Limit) better() stats.Direction { return result.MetricOf(l.Metric).Better }

// ratio is NEW divided by BASE at the limit.
func (l Limit) ratio() float64 {
	if l.better() == stats.Higher {
		return 1 - l.Share
	}
	return 1 + l.Share
}

// text is the limit in tables, as a change of the metric.
func (l Limit) text() string {
	share := format.Digits(100*l.Share) + " %"
	if l.better() == stats.Higher {
		return "-" + share
	}
	return "+" + share
}

// mostLimits is the largest number of limits of one gate.
const mostLimits = 50

// mostShare is the largest limit, as a share of BASE.
const mostShare = 100

// ParseLimits reads limits separated by commas, METRIC>N%: fail if METRIC becomes worse by more than N % of BASE.
func ParseLimits(text string) (limits []Limit, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("no limit, expected METRIC>N%, such as mean_ttft_ms>5%")
	}
	for part := range strings.SplitSeq(text, ",") {
		l, err := parseLimit(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(limits, func(o Limit) bool { return o.Metric == l.Metric }) {
			return nil, fmt.Errorf("two limits of %s", l.Metric)
		}
		limits = append(limits, l)
	}
	if len(limits) > mostLimits {
		return nil, fmt.Errorf("%d limits, expected at most %d", len(limits), mostLimits)
	}
	return limits, nil
}

func parseLimit(text string) (l Limit, err error) {
	expected := "expected METRIC>N%, such as mean_ttft_ms>5%"
	name, value, ok := strings.Cut(text, ">")
	if i := strings.IndexAny(text, "<="); i >= 0 {
		return l, fmt.Errorf("%q: %s: fail if METRIC becomes worse by more than N %%, "+
			"also where more is better, as in request_throughput>3%%", suggest.Clip(text), expected)
	}
	if !ok {
		return l, fmt.Errorf("%q: %s", suggest.Clip(text), expected)
	}
	l.Metric = strings.TrimSpace(name)
	known := slices.DeleteFunc(result.KnownValues(), func(n string) bool {
		return result.MetricOf(n).Better == stats.Neither
	})
	if !slices.Contains(known, l.Metric) {
		if slices.Contains(result.KnownValues(), l.Metric) {
			return l, fmt.Errorf("%q: neither more nor less of %s is worse", suggest.Clip(text), l.Metric)
		}
		return l, suggest.Unknown("metric", l.Metric, known)
	}
	number, ok := strings.CutSuffix(strings.TrimSpace(value), "%")
	number = strings.TrimSpace(number)
	if !ok {
		return l, fmt.Errorf("%q: %s: the limit is a percentage of the value in BASE", suggest.Clip(text), expected)
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpP_iInN") {
		return l, fmt.Errorf("%q: expected a number instead of %q, %s", suggest.Clip(text), suggest.Clip(number), expected)
	}
	l.Share = percent / 100
	switch {
	case !(percent >= 0) || math.Signbit(percent):
		return l, fmt.Errorf("%q: expected 0%% or more", suggest.Clip(text))
	case l.better() == stats.Higher && l.Share >= 1:
		return l, fmt.Errorf("%q: more of it is better and it cannot fall by 100 %% or more: expected less than 100%%",
			suggest.Clip(text))
	case l.Share > mostShare:
		return l, fmt.Errorf("%q: expected at most %d%%", suggest.Clip(text), 100*mostShare)
	}
	return l, nil
}
