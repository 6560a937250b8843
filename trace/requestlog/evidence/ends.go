package evidence

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// length reads the durations of requests.
type length struct {
	column string
	unit   Unit
}

// newLength finds out whether a column holds durations. nil: it does not. The unit may be unknown.
func newLength(column string, values []string, unit Unit) *length {
	l := &length{column, unit}
	if unit == "" {
		l.unit, _ = unitIn(column)
	}
	if !mostly(values, func(v string) bool { x, ok := l.read(v); return ok && x >= 0 }) {
		return nil
	}
	if l.unit == "" && mostly(values, func(v string) bool { _, isNumber := number(v); return !isNumber }) {
		l.unit = Seconds // the values state their units, as "5.13s" does
	}
	return l
}

// read returns a duration in ns, or in the unknown unit.
func (l *length) read(text string) (float64, bool) {
	if x, ok := number(text); ok {
		if l.unit != "" {
			x *= l.unit.ns()
		}
		return x, !math.IsNaN(x)
	}
	t, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	return float64(t), err == nil
}

// endOf reads the ends of requests.
type endOf struct {
	column string
	clock  *clock
}

// setEnds takes the columns of the time, the end and the duration.
func (d *decision) setEnds(c *chosen, list []*candidate) {
	if c.role == ofEnd {
		d.ends = true
		d.use(End, c.column, c.detail)
	} else {
		d.use(Time, c.column, c.detail)
		d.checkedEnd(c, list)
	}
	l := d.findLength(c)
	switch {
	case l == nil && c.role == ofEnd:
		d.Doubts = append(d.Doubts, fmt.Sprintf("column %q is of the end of a request, and no column holds durations: "+
			"the arrivals are those ends (--columns duration=NAME)", c.column))
	case l == nil || c.role == ofStart || d.end != nil:
	case c.role == ofEnd:
		d.takeOff(c, l, "")
	case d.isAccessLog():
		d.takeOff(c, l, "a line of an access log is of the end of its request")
	default:
		d.why[l.column] = "a duration"
		d.Assumed = append(d.Assumed,
			fmt.Sprintf("column %q is of the arrival; if it is of the end of a request, after column %q: --columns end=%s",
				c.column, l.column, c.column))
	}
}

// checkedEnd finds the column with the end of the requests, which is not before their start.
func (d *decision) checkedEnd(c *chosen, list []*candidate) {
	name, none := d.declared(End)
	for _, e := range list {
		if none || e == c.candidate || name != "" && e.column != name || name == "" && e.role != ofEnd ||
			(e.kind == counted) != (c.kind == counted) {
			continue
		}
		if e.kind == counted {
			u, _ := unitIn(e.column)
			if u == "" {
				u = c.clock.unit
			}
			e = e.in(u)
		}
		after, before := 0, 0
		for i := range e.at {
			switch took := e.at[i] - c.at[i]; {
			case took >= 0:
				after++
			case took < 0:
				before++
			}
		}
		if after > before {
			d.end = &endOf{e.column, e.clock}
			d.use(End, e.column, e.detail)
			return
		}
	}
}

// findLength finds the column with the durations of the requests, and its unit.
func (d *decision) findLength(c *chosen) *length {
	name, none := d.declared(Duration)
	if none {
		return nil
	}
	best, rank := "", 0
	for _, column := range d.Table.Columns {
		i := rankIn(usual[Duration], column)
		if name == column {
			best = column
			break
		}
		if name != "" || d.isUsed(column) || i < 0 || best != "" && i >= rank || newLength(column, d.stated(column),
			"") == nil {
			continue
		}
		best, rank = column, i
	}
	if best == "" {
		return nil
	}
	l := newLength(best, d.stated(best), "")
	if l == nil || l.unit != "" {
		return l
	}
	took := make([]float64, len(d.Table.Rows))
	for i, v := range d.values(best) {
		if x, ok := number(v); ok {
			took[i] = x
		}
	}
	if l.unit = d.unitOf(took); l.unit == "" {
		l.unit = Seconds
		d.Doubts = append(d.Doubts,
			fmt.Sprintf("column %q states no unit, and no unit suits the output tokens: read as s", best))
	}
	return l
}

// takeOff makes the time of a row its end less its duration.
func (d *decision) takeOff(c *chosen, l *length, why string) {
	d.length = l
	d.use(Duration, l.column, fmt.Sprintf("%s, taken off column %q, which is of the end of a request", l.unit,
		c.column))
	if why != "" {
		d.Assumed = append(d.Assumed,
			fmt.Sprintf("%s: column %q is taken off column %q (--columns duration=none: it is of the arrival)",
				why, l.column, c.column))
	}
}

// Names of columns of access logs: one of the first suffices, of the others two.
const (
	ofAccessLogs = "timelocal timeiso8601 timeiso msec requesttime upstreamresponsetime upstreamservicetime " +
		"responseflags remoteaddr requesturi bodybytessent httpuseragent httpreferer upstreamaddr upstreamhost"
	likeAccessLogs = "method path uri url status responsecode statuscode bytessent bytes useragent protocol host"
)

// isAccessLog reports whether the columns are those of the access log of a proxy, such as nginx or Envoy.
func (d *decision) isAccessLog() bool {
	like := 0
	for _, column := range d.Table.Columns {
		name := normalize(column)
		switch {
		case column == d.Layout.column[Time] && rankIn("requesttime", column) >= 0: // the time, not a duration
		case slices.Contains(strings.Fields(ofAccessLogs), name), rankIn("requesttime upstreamresponsetime",
			column) >= 0:
			return true
		case slices.Contains(strings.Fields(likeAccessLogs), name):
			like++
		}
	}
	return like >= 3
}
