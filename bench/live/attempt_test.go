package live

import (
	"testing"

	"lorasim/internal/record"
)

// A reply whose end alone was lost is a success; one that lacks tokens goes on
// elsewhere, if those it has are known.
func TestEndOfReply(t *testing.T) {
	for _, c := range []struct {
		name     string
		finish   string
		got      int
		known    bool
		kind     outcomeKind
		status   record.Status
		complete bool // judged as a whole reply; else as one cut off
	}{
		{"a finished reply", "length", 5, true, ended, record.OK, true},
		{"all tokens, no finish reason", "", 5, true, ended, record.OK, true},
		{"all tokens, their end lost", "", 5, true, ended, record.OK, false},
		{"tokens missing", "", 4, true, broken, record.OK, true},
		{"tokens missing, ids not known", "", 4, false, ended, record.Failed, true},
		{"aborted", "abort", 4, true, broken, record.OK, true},
		{"an error", "error", 5, true, ended, record.Failed, true},
	} {
		s := &reading{j: &job{n: c.got, known: c.known, rec: record.Request{Requested: 5}}, finish: c.finish}
		cl := &client{}
		got := cl.resume(s, "cut off")
		if c.complete {
			got = cl.complete(s)
		}
		if got.kind != c.kind || got.kind == ended && got.status != c.status || (got.reason == "") != (c.status == record.OK && c.kind == ended) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
