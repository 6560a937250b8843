package requestlog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lorasim/internal/suggest"
)

// A Field is a property of a request that a column of a log may hold.
type Field string

// The fields. A log must hold Time, and two of Prompt, Output and Total.
const (
	Time    Field = "time"    // arrival time
	Adapter Field = "adapter" // name of the adapter; empty, "-" or "none": the base model
	Base    Field = "base"    // name of the base model; an adapter of that name means the base model
	Prompt  Field = "prompt"  // prompt tokens
	Output  Field = "output"  // output tokens
	Total   Field = "total"   // prompt and output tokens together
	MaxNew  Field = "max_new" // max_tokens of the request
	Rank    Field = "rank"    // LoRA rank of the adapter
	Status  Field = "status"  // HTTP status or a word; failed requests are dropped
	Error   Field = "error"   // error message; a request with one is dropped
)

// usual holds the usual names of the columns, the more specific ones first, as normalize returns them.
var usual = []struct {
	field Field
	names string
}{
	{Time, "arrival arrivaltime arrivaltimestamp arrivedat receivedat requesttime requesttimestamp requeststart " +
		"requeststarttime starttime startedat startts start timestamp time ts datetime date createdat created " +
		"submittime submittedat sendtime sent sentat eventtime logtime unixtime epoch"},
	{Adapter, "adaptername adapter adapterid lora loraname loraadapter loraadaptername loraid lorarequest lorapath " +
		"requestmodel model modelname modelid modelslug deployment deploymentname tenant tenantid clientid"},
	{Base, "basemodel basemodelname parentmodel foundationmodel"},
	{Prompt, "prompttokens serverinputtokens prompttokencount numprompttokens promptlen promptlength inputtokens " +
		"numinputtokens inputtokencount inputlen inputlength inputsequencelength isl contexttokens requesttokens " +
		"prefilltokens numprefilltokens tokensin intokens tokensprompt prompt input"},
	{Output, "outputtokens completiontokens generatedtokens numoutputtokens numgeneratedtokens numcompletiontokens " +
		"outputtokencount completiontokencount outputlen outputlength outputsequencelength osl generationtokens " +
		"responsetokens decodetokens numdecodetokens tokensout outtokens tokenscompletion output completion response"},
	{Total, "totaltokens tokenstotal numtokens"},
	{MaxNew, "maxnewtokens maxtokens maxcompletiontokens maxoutputtokens requestmaxtokens " +
		"requestedoutputtokens"},
	{Rank, "rank lorarank adapterrank"},
	{Status, "status statuscode httpstatus httpstatuscode responsecode success ok"},
	{Error, "error errortype errorcode errormessage errormsg"},
}

// normalize returns the letters and digits of a name, in lower case.
func normalize(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, name)
}

// keys returns the names under which a column is looked up: its name, the name without a unit, and, for a nested
// JSON object, its last part.
func keys(column string) []string {
	out := []string{normalize(column)}
	_, bare := stated(column)
	out = append(out, normalize(bare))
	if i := strings.LastIndexByte(column, '.'); i >= 0 {
		out = append(out, keys(column[i+1:])...)
	}
	return out
}

// ParseColumns parses "time=NAME,adapter=NAME,...".
func ParseColumns(text string) (map[Field]string, error) {
	out := map[Field]string{}
	for part := range strings.SplitSeq(text, ",") {
		field, name, ok := strings.Cut(part, "=")
		f := Field(strings.TrimSpace(field))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: expected FIELD=COLUMN, such as time=created_at", part)
		}
		known := slices.ContainsFunc(usual, func(u struct {
			field Field
			names string
		}) bool {
			return u.field == f
		})
		if !known {
			return nil, suggest.Unknown("field", string(f), fieldNames())
		}
		out[f] = strings.TrimSpace(name)
	}
	return out, nil
}

func fieldNames() (names []string) {
	for _, u := range usual {
		names = append(names, string(u.field))
	}
	return names
}

// layout is how the rows of a table are read.
type layout struct {
	column map[Field]string // only those that were found
	hour   string           // column with the time of the day, where Time holds the day alone
	clock  *clock
}

// newLayout finds the columns of a table by its first rows.
func newLayout(o *Options, first []row, report *Report) (*layout, error) {
	columns := columnsOf(first)
	l := &layout{column: map[Field]string{}}
	used := map[string]bool{}
	for _, f := range slices.Sorted(maps.Keys(o.Columns)) {
		name := o.Columns[f]
		if !slices.Contains(columns, name) {
			return nil, fmt.Errorf("--columns %s=%s: %w", f, name, suggest.Unknown("column", name, columns))
		}
		l.column[f], used[name] = name, true
	}
	for _, u := range usual {
		if _, stated := l.column[u.field]; stated {
			continue
		}
		if name := findColumn(u.field, strings.Fields(u.names), columns, used, first); name != "" {
			l.column[u.field], used[name] = name, true
		}
	}
	if l.column[Time] == "" {
		l.findDay(columns, used, first)
	}
	if err := l.complete(columns); err != nil {
		return nil, cmp.Or(unreadTime(l, columns, first), err)
	}
	detail := map[Field]string{}
	var err error
	var times []string
	for _, r := range first {
		if v := l.time(r); v != "" {
			times = append(times, v)
		}
	}
	name := l.column[Time]
	if l.clock, detail[Time], err = newClock(name, times, o.TimeUnit); err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	if l.hour != "" {
		detail[Time] = fmt.Sprintf("with column %q, %s", l.hour, detail[Time])
	}
	for _, u := range usual {
		if name := l.column[u.field]; name != "" {
			report.Mapped = append(report.Mapped, Mapping{u.field, name, detail[u.field]})
		}
	}
	report.Unused = slices.DeleteFunc(columns, func(c string) bool { return used[c] || c == "" })
	if l.column[Adapter] == "" {
		report.note("no column names an adapter: all requests use the base model (--columns adapter=NAME)")
	}
	return l, nil
}

// findColumn finds the first column, in the order of the usual names, whose values suit the field. Columns of zeros
// come last: a program that cannot count may write 0.
func findColumn(f Field, names, columns []string, used map[string]bool, first []row) (zeros string) {
	for _, want := range names {
		for _, c := range columns {
			if used[c] || !slices.Contains(keys(c), want) {
				continue
			}
			values := valuesOf(c, first)
			if !suits(f, values) {
				continue
			}
			zero := slices.Contains([]Field{Prompt, Output, Total}, f) &&
				!slices.ContainsFunc(values, func(v string) bool { n, err := count(v); return err == nil && n > 0 })
			if !zero {
				return c
			}
			zeros = cmp.Or(zeros, c)
		}
	}
	return zeros
}

// suits reports whether most values of a column can be values of a field. Not all need to, as a log may have a bad
// row. Names such as "prompt" or "model" are common, and are used for texts as well.
func suits(f Field, values []string) bool {
	if len(values) == 0 { // in the first rows
		return f != Time && f != Prompt && f != Output && f != Total
	}
	switch f {
	case Prompt, Output, Total, MaxNew, Rank:
		good := 0
		for _, v := range values {
			if _, err := count(v); err == nil {
				good++
			}
		}
		return 2*good >= len(values)
	case Time:
		_, _, err := newClock("", values, "")
		return err == nil
	}
	return true
}

// findDay finds the time in two columns, one with the day and one with the time of the day.
func (l *layout) findDay(columns []string, used map[string]bool, first []row) {
	for _, day := range columns {
		for _, hour := range columns {
			if used[day] || used[hour] || normalize(day) != "date" && normalize(day) != "day" ||
				normalize(hour) != "time" && normalize(hour) != "timeofday" {
				continue
			}
			both := &layout{column: map[Field]string{Time: day}, hour: hour}
			var times []string
			for _, r := range first {
				times = append(times, both.time(r))
			}
			if _, _, err := newCalendar(times); err == nil {
				l.column[Time], l.hour = day, hour
				used[day], used[hour] = true, true
				return
			}
		}
	}
}

// time is the text of a row's time.
func (l *layout) time(r row) string {
	day := r.get(l.column[Time])
	if l.hour == "" {
		return day
	}
	return strings.TrimSpace(day + " " + r.get(l.hour))
}

// unreadTime returns an error that explains why a column with the name of a time is not used.
func unreadTime(l *layout, columns []string, first []row) error {
	for _, c := range columns {
		values := valuesOf(c, first)
		if l.column[Time] != "" || len(values) == 0 || !isUsualTime(c) {
			continue
		}
		if _, _, err := newClock(c, values, ""); err != nil {
			return fmt.Errorf("column %q: %w", c, err)
		}
	}
	return nil
}

// complete returns an error that names the missing columns.
func (l *layout) complete(columns []string) error {
	has := func(f Field) bool { return l.column[f] != "" }
	tokens := 0
	for _, f := range []Field{Prompt, Output, Total} {
		if has(f) {
			tokens++
		}
	}
	missing := func(f Field, what, example string) error {
		return fmt.Errorf("no column holds %s: expected one such as %s, found %s; name it with lorasim trace import --columns %s=NAME",
			what, example, strings.Join(columns, ", "), f)
	}
	switch {
	case len(columns) == 0:
		return errors.New("the log has no columns")
	case !has(Time):
		return missing(Time, "the times of arrival", "timestamp")
	case tokens < 2 && !has(Prompt):
		return missing(Prompt, "the numbers of prompt tokens", "prompt_tokens")
	case tokens < 2:
		return missing(Output, "the numbers of output tokens", "output_tokens")
	}
	return nil
}

// columnsOf lists the columns of rows in the order of their first appearance.
func columnsOf(rows []row) (names []string) {
	seen := map[string]bool{}
	for _, r := range rows {
		for _, c := range r.names {
			if !seen[c] {
				seen[c] = true
				names = append(names, c)
			}
		}
	}
	return names
}

// valuesOf lists the values of a column, empty ones left out.
func valuesOf(column string, rows []row) (values []string) {
	for _, r := range rows {
		if v := r.get(column); v != "" {
			values = append(values, v)
		}
	}
	return values
}

// add enters a row as a request, or drops it.
func (b *builder) addRow(l *layout, r row) {
	b.report.Rows++
	q, err := b.request(l, r)
	if err != nil {
		b.report.Drop(err.Error(), r.line)
		return
	}
	b.add(q)
}

func (b *builder) request(l *layout, r row) (q request, err error) {
	get := func(f Field) string {
		if c := l.column[f]; c != "" {
			return r.get(c)
		}
		return ""
	}
	if failed(get(Status)) || isError(get(Error)) {
		return q, errors.New("the request failed")
	}
	at := l.time(r)
	if at == "" {
		return q, errors.New("no time")
	}
	if q.at, err = l.clock.read(at); err != nil {
		return q, errors.New("the time cannot be read")
	}
	if q.Prompt, q.Output, err = tokens(get); err != nil {
		return q, err
	}
	if n, err := count(get(MaxNew)); err == nil && n >= q.Output && n > 0 {
		q.MaxNew = n
	}
	name := get(Adapter)
	if base := get(Base); base != "" && base == name {
		name = ""
	}
	q.Adapter = b.adapter(name)
	if rank, err := count(get(Rank)); err == nil && q.Adapter >= 0 && b.adapters[q.Adapter].Rank == 0 {
		b.adapters[q.Adapter].Rank = int(rank)
	}
	return q, nil
}

// tokens reads the prompt and output tokens. One of them may be the difference to the total.
func tokens(get func(Field) string) (prompt, output int32, err error) {
	var n [3]int32
	var known [3]bool
	for i, f := range []Field{Prompt, Output, Total} {
		text := get(f)
		if text == "" {
			continue
		}
		if n[i], err = count(text); err != nil {
			return 0, 0, fmt.Errorf("%s tokens are no whole number", f)
		}
		known[i] = true
	}
	switch {
	case !known[0] && known[2]:
		n[0] = n[2] - n[1]
	case !known[1] && known[2]:
		n[1] = n[2] - n[0]
	}
	switch {
	case n[0] < 1:
		return 0, 0, errors.New("no prompt tokens")
	case n[1] < 1:
		return 0, 0, errors.New("no output tokens: the request failed or was cancelled")
	}
	return n[0], n[1], nil
}

// failed reports whether a status means a failed request: a number from 400 on, alone or before its text, or a word.
func failed(status string) bool {
	digits, _, _ := strings.Cut(status, " ")
	if n, err := count(digits); err == nil && digits != "" {
		return n >= 400
	}
	switch strings.ToLower(status) {
	case "false", "error", "failed", "failure", "timeout", "timed_out", "rejected", "aborted", "abort", "cancelled",
		"canceled":
		return true
	}
	return false
}

// isError reports whether a value of the column Error is an error.
func isError(text string) bool {
	switch strings.ToLower(text) {
	case "", "-", "0", "ok", "no", "none", "null", "nil", "false", "nan":
		return false
	}
	return true
}
