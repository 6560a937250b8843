package evidence

import (
	"fmt"
	"math"
	"slices"
)

// What a log of requests to a language model looks like: it spans at least a second, and has at least one request
// every two minutes. Other logs exist, but there the unit is asked for unless a name states it.
const (
	leastSpan = 1e9   // ns
	longest   = 120e9 // ns from one request to the next
)

// setUnit finds the unit of a candidate's numbers.
func (d *decision) setUnit(c *candidate, list []*candidate) error {
	stated, bare := unitIn(c.column)
	switch {
	case c.kind == dates:
		return nil
	case d.Unit != "":
		return d.counted(c, d.Unit, "as --time-unit says")
	case c.kind == epoch && (stated == "" || stated == c.clock.unit || bare == ""):
		return nil
	case c.kind == epoch:
		return d.epochOrOffset(c, stated)
	case stated != "":
		return d.counted(c, stated, "")
	}
	return d.findUnit(c, list)
}

// counted takes a unit for a candidate.
func (d *decision) counted(c *candidate, u Unit, why string) error {
	if c.kind == epoch { // back to the numbers
		own := c.clock.unit.ns()
		for i := range c.at {
			c.at[i] /= own
		}
	}
	isEpoch := c.kind == epoch && c.clock.unit == u
	*c = *c.in(u)
	if c.kind = counted; isEpoch {
		c.kind, c.detail = epoch, fmt.Sprintf("%s since 1970", u)
	}
	if why != "" {
		c.detail += ", " + why
	}
	return nil
}

// epochOrOffset decides about numbers that are dates in one unit, while the name states another.
func (d *decision) epochOrOffset(c *candidate, stated Unit) error {
	own := c.clock.unit
	numbers := *c
	numbers.at = slices.Clone(c.at)
	for i := range numbers.at {
		numbers.at[i] /= own.ns()
	}
	other := numbers.in(stated)
	if n := len(c.known); n > 1 && !plausible(n, c.wide()) && plausible(n, other.wide()) {
		return d.counted(c, stated, "") // numbers since an origin that look like dates by their size alone
	}
	a := c.reading()
	b := other.reading()
	a.Flag, b.Flag = "--time-unit "+string(own), "--time-unit "+string(stated)
	return &contradiction{fmt.Sprintf("the name of column %q states %s, but its numbers are %s since 1970:", c.column,
		stated, own), []Reading{a, b}}
}

// plausible reports whether times of a log span and follow each other as those of requests to a language model do.
func plausible(n int, wide float64) bool {
	return wide >= leastSpan && wide/float64(max(n-1, 1)) <= longest
}

// findUnit finds the unit of numbers whose name states none: by how long requests take, by the rate, and by what
// programs write.
func (d *decision) findUnit(c *candidate, list []*candidate) error {
	n, wide := len(c.known), c.wide()
	if n < 2 || wide == 0 {
		d.Assumed = append(d.Assumed, fmt.Sprintf("the times of column %q are s: no name states a unit (--time-unit)",
			c.column))
		return d.counted(c, Seconds, "")
	}
	if u, why := d.byTokens(c, list); u != "" {
		return d.counted(c, u, why)
	}
	slow := wide * Seconds.ns() / float64(n-1) // from one request to the next, if s
	seconds, millis := plausible(n, wide*Seconds.ns()), plausible(n, wide*Millis.ns())
	switch {
	case d.isPublic(c):
		return d.counted(c, Seconds, "as in this public trace")
	case seconds && !(c.whole && millis && slow >= 20e9):
		d.Assumed = append(d.Assumed, fmt.Sprintf("the times of column %q are s: span %s, %s (--time-unit)", c.column,
			span(wide*1e9), pace(n, wide*1e9)))
		return d.counted(c, Seconds, "")
	case d.Blocks && c.whole && millis && !seconds:
		d.Doubts = append(d.Doubts,
			fmt.Sprintf("the times of column %q are ms, as in Mooncake's traces: span %s, %s; in s they span %s: --time-unit s",
				c.column, span(wide*1e6), pace(n, wide*1e6), span(wide*1e9)))
		return d.counted(c, Millis, "")
	}
	units := []Unit{Seconds, Millis}
	if wide*1e9 < leastSpan {
		units = []Unit{Seconds, Minutes, Hours}
	}
	out := &contradiction{About: fmt.Sprintf("column %q states no unit of its times:", c.column)}
	for _, u := range units {
		r := c.in(u).reading()
		r.Flag = "--time-unit " + string(u)
		out.Readings = append(out.Readings, r)
	}
	return out
}

// Engines need between a fraction of a millisecond and almost a second for a token, also with a queue. The range is
// less than 1000 times as long as its start, so that at most one unit of a program gives a time in it.
const (
	fastToken = 1e6   // ns
	slowToken = 0.9e9 // ns
)

// byTokens finds the unit of numbers by a column with the ends of the requests: the unit in which requests take
// a time that suits their output tokens.
func (d *decision) byTokens(c *candidate, list []*candidate) (Unit, string) {
	for _, e := range list {
		if e.role != ofEnd || e.kind != counted || e == c {
			continue
		}
		var took []float64
		for i := range e.at {
			took = append(took, e.at[i]-c.at[i])
		}
		if u := d.unitOf(took); u != "" {
			return u, fmt.Sprintf("by the time from there to column %q for each token", e.column)
		}
	}
	return "", ""
}

// unitOf returns the unit in which lengths of time, one for each row, suit the output tokens of the rows; "": none.
func (d *decision) unitOf(took []float64) Unit {
	var each []float64
	for i, r := range d.Table.Rows {
		n, err := count(r(d.Layout.column[Output]))
		if x := took[i]; err == nil && n > 0 && x > 0 && !math.IsNaN(x) {
			each = append(each, x/float64(n))
		}
	}
	if len(each) == 0 {
		return ""
	}
	slices.Sort(each)
	typical := each[len(each)/2]
	for _, u := range machine {
		if ns := typical * u.ns(); ns >= fastToken && ns < slowToken {
			return u
		}
	}
	return ""
}

// isPublic reports whether the table has the columns of BurstGPT, whose times are whole seconds since its origin.
func (d *decision) isPublic(c *candidate) bool {
	return c.column == "Timestamp" && slices.Contains(d.Table.Columns, "Request tokens") &&
		slices.Contains(d.Table.Columns, "Response tokens") && slices.Contains(d.Table.Columns, "Log Type")
}
