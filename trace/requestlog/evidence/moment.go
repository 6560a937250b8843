package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// role is what the name of a column says about its times.
type role int

const (
	ofStart  role = iota // the arrival
	ofMoment             // the arrival or the end
	unnamed              // nothing
	ofEnd
	ofLength // a duration
	ofOther  // the time of something else
)

// kind is what the values of a column are.
type kind int

const (
	dates   kind = iota
	epoch        // numbers since 1970
	counted      // numbers since an origin of the log, or lengths of time
)

// candidate is a column whose values may be times.
type candidate struct {
	column string
	role   role
	rank   int // of its name among the usual names; smaller is more specific
	kind   kind
	clock  *clock
	detail string
	at     []float64 // times by row: ns, or numbers of an unknown unit if counted; NaN: none
	known  []float64 // those that are no NaN, in the order of the rows
	least  float64
	most   float64
	whole  bool    // all numbers are whole
	growth float64 // -1 to 1: 1 if each time is after the one before, 0 without any order
}

// wide is the length of the times: from the first to the last.
func (c *candidate) wide() float64 { return c.most - c.least }

// grows reports whether the rows are in the order of the column, or in its reverse.
func (c *candidate) grows() bool { return math.Abs(c.growth) >= 0.5 }

// isDaily reports whether the column holds days, without the time of the day.
func (c *candidate) isDaily() bool {
	return c.kind == dates && !slices.ContainsFunc(c.known, func(ns float64) bool { return math.Mod(ns, 86400e9) != 0 })
}

// roleOf returns what a name says about times. ambiguous: it may as well be the name of a duration.
func roleOf(column string) (r role, rank int, ambiguous bool) {
	of := keys(column)
	if rankOf(others, of) >= 0 {
		return ofOther, 0, false
	}
	length := rankOf(usual[Duration], of)
	for _, k := range []struct {
		names string
		role  role
	}{{usual[Time], ofStart}, {moments, ofMoment}, {usual[End], ofEnd}} {
		if i := rankOf(k.names, of); i >= 0 {
			return k.role, i, length >= 0
		}
	}
	if length >= 0 {
		return ofLength, length, false
	}
	return unnamed, 0, false
}

// Numbers in these ranges are seconds, ms, us or ns since 1970: the years 2001 to 2100.
const (
	firstEpoch = 978_307_200
	lastEpoch  = 4_102_444_800
)

// epochUnit returns the unit in which a number is a date of the years 2001 to 2100.
func epochUnit(x float64) (Unit, bool) {
	for _, u := range machine {
		if s := x * (u.ns() / 1e9); s >= firstEpoch && s <= lastEpoch {
			return u, true
		}
	}
	return "", false
}

// newCandidate examines a column. nil: its values are no times.
func newCandidate(column string, values []string) *candidate {
	c := &candidate{column: column, whole: true}
	c.role, c.rank, _ = roleOf(column)
	numbers, texts := 0, 0
	c.at = make([]float64, len(values))
	for i, v := range values {
		c.at[i] = math.NaN()
		if v == "" {
			continue
		}
		texts++
		if x, ok := number(v); ok {
			c.at[i] = x
			c.whole = c.whole && !strings.ContainsAny(v, ".,eE")
			numbers++
		}
	}
	switch {
	case texts == 0:
		return nil
	case 2*numbers >= texts:
		c.kind = counted
	default:
		if !c.readDates(values) {
			return nil
		}
	}
	c.measure()
	if c.kind == counted {
		c.maybeEpoch()
	}
	return c
}

// readDates reads the values as dates.
func (c *candidate) readDates(values []string) bool {
	stated := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	clock, detail, err := newCalendar(stated)
	if err != nil {
		return false
	}
	c.kind, c.clock, c.detail = dates, clock, detail
	for i, v := range values {
		c.at[i] = math.NaN()
		if ns, err := clock.read(v); err == nil && v != "" {
			c.at[i] = float64(ns)
		}
	}
	return true
}

// maybeEpoch finds out whether counted numbers are dates.
func (c *candidate) maybeEpoch() {
	slices.Sort(c.known)
	typical := c.known[len(c.known)/2]
	u, ok := epochUnit(typical)
	inside := 0
	for _, x := range c.known {
		if v, ok := epochUnit(x); ok && u == v {
			inside++
		}
	}
	if !ok || 2*inside <= len(c.known) {
		return
	}
	c.kind, c.clock, c.detail = epoch, &clock{unit: u}, fmt.Sprintf("%s since 1970", u)
	for i := range c.at {
		if v, ok := epochUnit(c.at[i]); !ok || v != u {
			c.at[i] = math.NaN()
		}
		c.at[i] *= u.ns()
	}
	c.measure()
}

// measure finds range and growth of the times.
func (c *candidate) measure() {
	c.known = slices.DeleteFunc(slices.Clone(c.at), math.IsNaN)
	if len(c.known) == 0 {
		return
	}
	c.least, c.most = slices.Min(c.known), slices.Max(c.known)
	c.growth = growth(c.known)
}

// growth is the rank correlation of a list with its order (Spearman's), -1 to 1; 1 for lists of less than two.
func growth(list []float64) float64 {
	n := len(list)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a], list[b]) })
	if n < 2 {
		return 1
	}
	sum := 0.0
	for rank, i := range order {
		sum += float64(rank-i) * float64(rank-i)
	}
	return 1 - 6*sum/(float64(n)*(float64(n)*float64(n)-1))
}

// candidates examines the columns that are not used yet.
func (d *decision) candidates() (list []*candidate) {
	for _, column := range d.Table.Columns {
		if d.isUsed(column) {
			continue
		}
		if c := newCandidate(column, d.values(column)); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// byName finds the candidate of a column.
func byName(list []*candidate, column string) *candidate {
	i := slices.IndexFunc(list, func(c *candidate) bool { return c.column == column })
	if i < 0 {
		return nil
	}
	return list[i]
}

// chosen is a candidate and how it is read.
type chosen struct {
	*candidate
	role role
	why  string
}

// time finds the time of arrival: a column with the start of requests, else one with a moment, else one with their
// end, less their duration.
func (d *decision) time() error {
	list := d.candidates()
	if err := d.declaredTimes(list); err != nil {
		return err
	}
	if d.pairDay() {
		return nil
	}
	c, err := d.choose(list)
	if err != nil {
		return err
	}
	if err := d.setUnit(c.candidate, list); err != nil {
		return err
	}
	if err := d.agree(c, list); err != nil {
		return err
	}
	d.clock = c.clock
	d.setEnds(c, list)
	return nil
}

// declaredTimes returns an error if a column that the user names holds no times.
func (d *decision) declaredTimes(list []*candidate) error {
	for _, f := range []Field{Time, End, Duration} {
		name, _ := d.declared(f)
		if name == "" || byName(list, name) != nil {
			continue
		}
		if f == Duration {
			if newLength(name, d.stated(name), "") != nil {
				continue
			}
			return fmt.Errorf("column %q: %q is not a duration: expected a number", name, first(d.stated(name)))
		}
		return fmt.Errorf("column %q: %w", name, notATime(first(d.stated(name))))
	}
	return nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// choose chooses the column of the time.
func (d *decision) choose(list []*candidate) (*chosen, error) {
	if name, _ := d.declared(Time); name != "" {
		c := byName(list, name)
		return &chosen{c, cmp.Or(min(c.role, ofMoment), ofStart), ""}, nil
	}
	if name, _ := d.declared(End); name != "" {
		return &chosen{byName(list, name), ofEnd, ""}, nil
	}
	var dated, numbers []*candidate
	for _, c := range list {
		_, _, ambiguous := roleOf(c.column)
		switch {
		case c.role == ofOther || c.role == ofLength:
		case c.kind != counted:
			if c.kind == dates || c.role != unnamed {
				dated = append(dated, c)
			}
		case c.role != unnamed && (!ambiguous || len(c.known) < 2 || c.grows()):
			numbers = append(numbers, c)
		}
	}
	for _, pool := range [][]*candidate{varying(dated), numbers, dated} {
		if c := best(pool); c != nil {
			if c.role == unnamed {
				return d.onlyDates(pool)
			}
			return &chosen{c, c.role, ""}, nil
		}
	}
	return nil, d.noTime(list)
}

// varying leaves out columns that hold one date, as the date of an export, and those of days if others are finer.
func varying(list []*candidate) []*candidate {
	out := slices.DeleteFunc(slices.Clone(list), func(c *candidate) bool { return len(c.known) > 1 && c.wide() == 0 })
	if slices.ContainsFunc(out, func(c *candidate) bool { return !c.isDaily() }) {
		out = slices.DeleteFunc(out, (*candidate).isDaily)
	}
	return out
}

// best is the candidate with the best role and name.
func best(list []*candidate) *candidate {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.rank, b.rank))
	})
}

// onlyDates takes the only column of dates, whatever its name.
func (d *decision) onlyDates(list []*candidate) (*chosen, error) {
	c := list[0]
	if len(list) == 1 {
		d.Assumed = append(d.Assumed, fmt.Sprintf("column %q is the only one with dates: it is the time of arrival",
			c.column))
		return &chosen{c, ofMoment, ""}, nil
	}
	var out contradiction
	out.About = "several columns hold dates, and no name says which one is the arrival:"
	for _, c := range list {
		out.Readings = append(out.Readings, c.reading())
	}
	return nil, &out
}

// reading describes a candidate in an error.
func (c *candidate) reading() Reading {
	says := fmt.Sprintf("span %s, %s", span(c.wide()), pace(len(c.known), c.wide()))
	if c.kind != counted {
		says = "from " + day(c.least) + ", " + says
	}
	return Reading{c.column, c.detail, says, "--columns time=" + c.column}
}

// noTime explains why no column is the time.
func (d *decision) noTime(list []*candidate) error {
	for _, c := range list {
		if c.role == ofLength || c.role == ofMoment && c.kind == counted {
			u, _ := unitIn(c.column)
			return fmt.Errorf(
				"no column holds the times of arrival: column %q does not grow, its values are durations (%v to %v%s); "+
					"expected one such as timestamp; name it with lorasim trace import --columns time=NAME", c.column,
				c.least, c.most, strings.TrimRight(" "+string(u), " "))
		}
	}
	for _, column := range d.Table.Columns {
		values := d.stated(column)
		if r, _, _ := roleOf(column); r > ofMoment || len(values) == 0 || d.isUsed(column) {
			continue
		}
		if _, _, err := newCalendar(values); err != nil && byName(list, column) == nil {
			return fmt.Errorf("column %q: %w", column, err)
		}
	}
	return d.missing(Time, "the times of arrival", "timestamp")
}

// pairDay finds the time in two columns, one with the day and one with the time of the day.
func (d *decision) pairDay() bool {
	holds := func(is func(string) bool) (list []string) {
		for _, c := range d.Table.Columns {
			if v := d.stated(c); !d.isUsed(c) && len(v) > 0 && is(v[0]) && mostly(v, is) {
				list = append(list, c)
			}
		}
		return list
	}
	name, _ := d.declared(Time)
	days, hours := holds(isDay), holds(isHour)
	for _, day := range days {
		if len(hours) == 0 || name != "" && name != day {
			continue
		}
		both := &Layout{column: map[Field]string{Time: day}, hour: hours[0]}
		var times []string
		for _, r := range d.Table.Rows {
			if t := both.timeOf(r); t != "" {
				times = append(times, t)
			}
		}
		clock, detail, err := newCalendar(times)
		if err != nil {
			continue
		}
		d.clock, d.hour = clock, hours[0]
		d.use(Time, day, fmt.Sprintf("with column %q, %s", hours[0], detail))
		d.used = append(d.used, hours[0])
		return true
	}
	return false
}

// timeOf is the text of a row's time.
func (l *Layout) timeOf(r Row) string {
	column := l.column[Time]
	if l.ends {
		column = l.column[End]
	}
	if l.hour == "" {
		return r(column)
	}
	return strings.TrimSpace(r(column) + " " + r(l.hour))
}

// agree returns an error if another column with the name of a time says something else.
func (d *decision) agree(c *chosen, list []*candidate) error {
	if name, _ := d.declared(Time); name != "" || d.Options.Columns[End] != "" {
		return nil
	}
	for _, o := range list {
		if o == c.candidate || o.role > ofMoment || len(o.known) < 2 || o.wide() == 0 || o.isDaily() && !c.isDaily() {
			continue
		}
		if o.kind == counted {
			d.why[o.column] = "not a date"
			if c.kind != counted || !o.grows() {
				continue
			}
			if u, _ := unitIn(o.column); u == "" {
				continue // its unit would only be that of the chosen column
			} else {
				o = o.in(u)
			}
		}
		if apart(c.candidate, o) {
			return &contradiction{fmt.Sprintf("columns %q and %q both name the time of arrival, and disagree:",
				c.column, o.column),
				[]Reading{c.reading(), o.reading()}}
		}
	}
	return nil
}

// in returns counted numbers as times of a unit.
func (c *candidate) in(u Unit) *candidate {
	out := *c
	out.at = make([]float64, len(c.at))
	for i, x := range c.at {
		out.at[i] = x * u.ns()
	}
	out.clock, out.detail = &clock{unit: u}, fmt.Sprintf("%s since the log's origin", u)
	out.measure()
	return &out
}

// apart reports whether two columns cannot be times of the same requests: one spans twice the other, and more than
// requests take.
func apart(a, b *candidate) bool {
	const aRequest = 600e9
	low, high := min(a.wide(), b.wide()), max(a.wide(), b.wide())
	return high > 2*low && high-low > aRequest
}
