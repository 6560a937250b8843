package records

import (
	"fmt"
	"math"
	"strings"

	"lorasim/internal/record"
	"lorasim/trace"
)

// row is a record with the columns that a file has beside it.
type row struct {
	record.Request
	adapterName string
	queue       float64
}

// column ties a column of a file to a field of a row; every format walks this
// one table.
type column struct {
	name     string
	required bool // a file without it is refused
	// field points to an *int64, *int32, *float64, *string, *record.Status or
	// *[]float64.
	field func(*row) any
}

const gapsColumn = "token_gaps_s"

var columns = []column{
	{"id", true, func(r *row) any { return &r.ID }},
	{"adapter", true, func(r *row) any { return &r.Adapter }},
	{"adapter_name", false, func(r *row) any { return &r.adapterName }},
	{"rank", false, func(r *row) any { return &r.Rank }},
	{"arrival_s", true, func(r *row) any { return &r.Arrival }},
	{"sent_s", true, func(r *row) any { return &r.Sent }},
	{"first_token_s", true, func(r *row) any { return &r.FirstToken }},
	{"finish_s", true, func(r *row) any { return &r.Finish }},
	{"prompt_tokens", true, func(r *row) any { return &r.Prompt }},
	{"output_tokens", true, func(r *row) any { return &r.Output }},
	{"requested_output_tokens", false, func(r *row) any { return &r.Requested }},
	{"worker_first", false, func(r *row) any { return &r.WorkerFirst }},
	{"worker_last", false, func(r *row) any { return &r.WorkerLast }},
	{"migrations", false, func(r *row) any { return &r.Migrations }},
	{"cold_load_s", false, func(r *row) any { return &r.ColdLoad }},
	{"client_queue_s", false, func(r *row) any { return &r.queue }},
	{"status", true, func(r *row) any { return &r.Status }},
	{"error", false, func(r *row) any { return &r.Error }},
	{"streamed", false, func(r *row) any { return (*string)(&r.Streamed) }},
	{gapsColumn, false, func(r *row) any { return &r.Gaps }},
}

// set fills the row from a record; it shares the record's gaps.
func (r *row) set(q *record.Request, adapters []trace.Adapter) {
	r.Request = *q
	r.Error = clean(q.Error)
	r.queue = q.ClientQueue()
	r.adapterName = ""
	if q.Adapter >= 0 && int(q.Adapter) < len(adapters) {
		r.adapterName = clean(adapters[q.Adapter].Name)
	}
}

// reset prepares the row for reading: columns that a file lacks keep these
// values.
func (r *row) reset() {
	*r = row{Request: record.Request{WorkerFirst: -1, WorkerLast: -1}}
}

// check refuses what a file could not give back.
func (r *row) check() error {
	for i := range columns {
		switch p := columns[i].field(r).(type) {
		case *float64:
			if math.IsInf(*p, 0) {
				return fmt.Errorf("%s is %v, expected a finite number or NaN", columns[i].name, *p)
			}
		case *record.Status:
			if *p >= record.NumStatus {
				return fmt.Errorf("status is %d, expected one below %d", *p, record.NumStatus)
			}
		case *[]float64:
			for _, g := range *p {
				if math.IsInf(g, 0) || math.IsNaN(g) {
					return fmt.Errorf("%s holds %v, expected finite numbers", columns[i].name, g)
				}
			}
		}
	}
	return nil
}

// clean makes text that every format gives back unchanged: valid UTF-8, lines
// that end in \n.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.Contains(s, "\r") {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	}
	return s
}

// setInt stores an integer read from a file.
func setInt(p any, v int64) error {
	switch p := p.(type) {
	case *int64:
		*p = v
	case *int32:
		if v != int64(int32(v)) {
			return fmt.Errorf("%d is out of range: expected a 32-bit integer", v)
		}
		*p = int32(v)
	}
	return nil
}

// setFloat stores a time read from a file.
func setFloat(p *float64, v float64) error {
	if math.IsInf(v, 0) {
		return fmt.Errorf("is %v, expected a finite number", v)
	}
	*p = v
	return nil
}

// missing lists the required columns that present does not have.
func missing(present func(name string) bool) error {
	var names []string
	for _, c := range columns {
		if c.required && !present(c.name) {
			names = append(names, c.name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("no column %s: expected a file of request records", strings.Join(names, ", "))
}
