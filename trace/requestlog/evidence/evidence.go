// Package evidence decides what the columns of a request log mean: which one holds the time of arrival and in which
// unit, which hold token counts, the adapter, and whether a request failed.
//
//	layout, err := evidence.Decide(&evidence.Table{Columns: names, Rows: sample}, evidence.Options{})
//	request, err := layout.Request(row)
//
// A name alone decides nothing. Decide weighs the name of a column, its values (dates, seconds since 1970, growing
// numbers, words), and how the values fit the other columns. Where two readings are possible and no evidence prefers
// one, the error is a [contradiction], which shows both readings and the flag that decides.
package evidence

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/internal/suggest"
)

// A Table is the first rows of a log.
type Table struct {
	Columns []string // in the order of their first appearance
	Rows    []Row
}

// A Row returns the value of a column as text, "" if the row lacks it.
type Row func(column string) string

// values lists the values of a column, one for each row.
func (d *decision) values(column string) []string {
	out, ok := d.valuesOf[column]
	if !ok {
		out = make([]string, len(d.Rows))
		for i, r := range d.Rows {
			out[i] = r(column)
		}
		d.valuesOf[column] = out
	}
	return out
}

// stated lists the values of a column, empty ones left out.
func (d *decision) stated(column string) []string {
	out, ok := d.statedOf[column]
	if !ok {
		out = slices.DeleteFunc(slices.Clone(d.values(column)), func(v string) bool { return v == "" })
		d.statedOf[column] = out
	}
	return out
}

// Options are what the user states about the columns.
type Options struct {
	Columns map[Field]string // columns of fields; None: the log has no such column
	Unit    Unit             // unit of numeric times; "": found
	Blocks  bool             // the rows list the blocks of their prompts (hash_ids), as Mooncake's traces do
}

// noColumn is the name of a column that a log does not have: "--columns adapter=none".
const noColumn = "none"

// A Choice is a column that was chosen for a field.
type Choice struct {
	Field  Field
	Column string
	Why    string // what its values are
}

// A Layout tells how the rows of a table are read.
type Layout struct {
	Choices    []Choice
	Unused     []string // columns that were not chosen, some with the reason
	Assumed    []string // what no evidence decides
	Doubts     []string // assumptions that are likely wrong, with the flag that decides
	Candidates []string // columns that may name adapters, if no column was chosen
	BaseOnly   bool     // the user states that the log has no adapters

	column  map[Field]string
	hour    string   // column with the time of the day, where the time column holds the day alone
	verdict []judge  // columns that tell whether a request failed
	clock   *clock   // reads the time
	length  *length  // reads the duration of a request; nil: none
	ends    bool     // the time is that of the end of a request
	end     *endOf   // reads the end of a request, which may not be before its start; nil: none
	used    []string // columns that were chosen
}

// Column returns the column of a field, "" if there is none.
func (l *Layout) Column(f Field) string { return l.column[f] }

// Decide finds the columns of a table.
func Decide(t *Table, o Options) (*Layout, error) {
	if len(t.Columns) == 0 {
		return nil, errors.New("the log has no columns")
	}
	d := &decision{Table: t, Options: o, Layout: &Layout{column: map[Field]string{}}, why: map[string]string{},
		valuesOf: map[string][]string{}, statedOf: map[string][]string{}, keysOf: map[string][]string{}}
	for _, c := range t.Columns {
		d.keysOf[c] = plainKeys(c)
	}
	if err := d.given(); err != nil {
		return nil, err
	}
	for _, f := range []Field{Prompt, Output, Total, MaxNew, Rank, Base, Adapter} {
		d.find(f)
	}
	d.outcomes()
	var undecided *contradiction
	switch err, missing := d.time(), d.complete(); {
	case err != nil && (missing == nil || !errors.As(err, &undecided)):
		return nil, err
	case missing != nil:
		return nil, missing
	}
	d.choices()
	return d.Layout, nil
}

// decision is a Layout in the making.
type decision struct {
	*Table
	Options
	*Layout
	why                map[string]string   // of columns, chosen or not
	valuesOf, statedOf map[string][]string // of columns
	keysOf             map[string][]string // of columns
}

// use takes a column for a field.
func (d *decision) use(f Field, column, why string) {
	if _, ok := d.Layout.column[f]; !ok {
		d.Layout.column[f] = column
	}
	d.used = append(d.used, column)
	d.Choices = append(d.Choices, Choice{f, column, why})
}

func (d *decision) isUsed(column string) bool { return column == "" || slices.Contains(d.used, column) }

// declared returns the column that the user gave for a field. none: the user said that there is none.
func (d *decision) declared(f Field) (column string, none bool) {
	name, ok := d.Options.Columns[f]
	if ok && name == noColumn && !slices.Contains(d.Table.Columns, noColumn) {
		return "", true
	}
	return name, false
}

// given takes the columns that the user names. Times and durations are looked at later: their names decide the column,
// and their values the unit.
func (d *decision) given() error {
	for _, f := range fields() {
		name, none := d.declared(f)
		if name == "" || none {
			continue
		}
		if !slices.Contains(d.Table.Columns, name) {
			return fmt.Errorf("--columns %s=%s: %w", f, name, suggest.Unknown("column", name, d.Table.Columns))
		}
		if !slices.Contains([]Field{Time, End, Duration}, f) {
			d.use(f, name, "as --columns says")
		}
	}
	return nil
}

// find finds the column of a field by its usual names, the more specific ones first, among those whose values suit
// the field. Columns of zeros come last: a program that cannot count may write 0.
func (d *decision) find(f Field) {
	if _, none := d.declared(f); none || d.Layout.column[f] != "" {
		return
	}
	zeros := ""
	for _, want := range strings.Fields(usual[f]) {
		for _, c := range d.Table.Columns {
			if d.isUsed(c) || !slices.Contains(d.keysOf[c], want) {
				continue
			}
			values := d.stated(c)
			if !suits(f, values) {
				continue
			}
			if !isTokens(f) || slices.ContainsFunc(values, func(v string) bool {
				n,
					err := count(v)
				return err == nil && n > 0
			}) {
				d.use(f, c, says(f, values))
				return
			}
			if zeros == "" {
				zeros = c
			}
		}
	}
	if zeros != "" {
		d.use(f, zeros, "all 0")
	}
}

// says describes the values of a column.
func says(f Field, values []string) string {
	if len(values) == 0 {
		return "empty in the first rows"
	}
	switch f {
	case Adapter, Base:
		n := len(slices.Compact(slices.Sorted(slices.Values(values))))
		return fmt.Sprintf("names, %d different", n)
	}
	least, most := int32(math.MaxInt32), int32(0)
	for _, v := range values {
		if n, err := count(v); err == nil {
			least, most = min(least, n), max(most, n)
		}
	}
	return fmt.Sprintf("whole numbers, %d to %d", least, most)
}

func isTokens(f Field) bool { return f == Prompt || f == Output || f == Total }

// suits reports whether most values of a column can be values of a field. Not all need to, as a log may have a bad
// row. Names such as "prompt" or "model" are common, and are used for texts as well.
func suits(f Field, values []string) bool {
	if len(values) == 0 { // in the first rows
		return !isTokens(f)
	}
	switch f {
	case Prompt, Output, Total, MaxNew, Rank:
		return mostly(values, func(v string) bool { _, err := count(v); return err == nil })
	}
	return true
}

// mostly reports whether at least half of the values fulfill a condition.
func mostly(values []string, ok func(string) bool) bool {
	n := 0
	for _, v := range values {
		if ok(v) {
			n++
		}
	}
	return n > 0 && 2*n >= len(values)
}

// complete returns an error that names the missing columns.
func (d *decision) complete() error {
	tokens := 0
	for _, f := range []Field{Prompt, Output, Total} {
		if d.Layout.column[f] != "" {
			tokens++
		}
	}
	switch {
	case tokens < 2 && d.Layout.column[Prompt] == "":
		return d.missing(Prompt, "the numbers of prompt tokens", "prompt_tokens")
	case tokens < 2:
		return d.missing(Output, "the numbers of output tokens", "output_tokens")
	}
	return nil
}

// listed is the number of columns that a message lists.
const listed = 12

// missing is the error for a field without a column.
func (d *decision) missing(f Field, what, example string) error {
	found := d.Table.Columns
	more := ""
	if len(found) > listed {
		found, more = found[:listed], fmt.Sprintf(" and %d more", len(found)-listed)
	}
	return fmt.Errorf(
		"no column holds %s: expected one such as %s, found %s%s; name it with lorasim trace import --columns %s=NAME",
		what, example, strings.Join(found, ", "), more, f)
}

// choices sorts the choices by field and lists the columns that were not chosen.
func (d *decision) choices() {
	order := fields()
	slices.SortStableFunc(d.Choices, func(a, b Choice) int {
		return slices.Index(order, a.Field) - slices.Index(order, b.Field)
	})
	for _, c := range d.Table.Columns {
		if d.isUsed(c) {
			continue
		}
		if why := d.why[c]; why != "" {
			c += " (" + why + ")"
		}
		d.Unused = append(d.Unused, c)
	}
	if _, d.BaseOnly = d.declared(Adapter); !d.BaseOnly && d.Layout.column[Adapter] == "" {
		d.Candidates = d.mayNameAdapters()
	}
}
