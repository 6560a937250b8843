package live

import (
	"math"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
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
		a := &attempt{j: &job{n: c.got, known: c.known, rec: record.Request{Requested: 5}}, finish: c.finish}
		got := a.resume("cut off")
		if c.complete {
			got = a.complete()
		}
		if got.kind != c.kind || got.kind == ended && got.status != c.status ||
			(got.reason == "") != (c.status == record.OK && c.kind == ended) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// The first event that tells of a token is the first token, with or without text;
// what has no token yet (the role of a chat) is not.
func TestFirstToken(t *testing.T) {
	const role = `{"choices":[{"delta":{"role":"assistant","content":""}}]}`
	for _, c := range []struct {
		name    string
		backend Backend
		events  []string // one a second
		first   float64  // s; NaN: none
		gaps    int
	}{
		{"text", VLLM, []string{`{"choices":[{"text":"a","token_ids":[1]}]}`,
			`{"choices":[{"text":"b","token_ids":[2]}]}`}, 1, 1},
		{"half a character", VLLM, []string{`{"choices":[{"text":"","token_ids":[1]}]}`,
			`{"choices":[{"text":"é","token_ids":[2]}]}`}, 1, 1},
		{"the same, sglang", SGLang, []string{`{"text":"","output_ids":[1],"meta_info":{"completion_tokens":1}}`,
			`{"text":"é","output_ids":[1,2],"meta_info":{"completion_tokens":2}}`}, 1, 1},
		{"the same, by count alone", VLLMChat,
			[]string{role, `{"choices":[{"delta":{"content":""}}],"usage":{"completion_tokens":1}}`,
				`{"choices":[{"delta":{"content":"é"}}],"usage":{"completion_tokens":2}}`}, 2, 1},
		{"nothing to read", VLLMChat, []string{role, `{"choices":[],"usage":{"completion_tokens":3}}`}, 2, 0},
		{"nothing at all", VLLMChat, []string{role, role}, math.NaN(), 0},
		{"the count at the end", VLLMChat, []string{role, `{"choices":[{"delta":{"content":"ab"}}]}`,
			`{"choices":[],"usage":{"completion_tokens":2}}`}, 2, 0},
	} {
		rt, err := router.New("round-robin",
			router.Env{Workers: router.Alike(1, router.Spec{MaxRunning: 1, Slots: 1,
				Cost: profile.Model{Costs: testProfile().Compile()}})})
		if err != nil {
			t.Fatal(err)
		}
		clock := newClock(1)
		f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{"http://worker"},
			Client: NewHTTPClient(nil)}, Router: rt, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		cl := &client{cfg: Config{Backend: c.backend, Clock: clock, Fleet: f, NoFailover: true}}
		j := cl.newJob(trace.Request{Adapter: trace.BaseModel, Output: 9})
		f.Requests.Book(&j.fr, 0)
		a := &attempt{c: cl, j: j}
		var p parser
		for i, e := range c.events {
			got, err := p.parse(c.backend, []byte(e))
			if err != nil {
				t.Fatal(err)
			}
			a.take(got, clock.start.Add(time.Duration(i+1)*time.Second))
		}
		if first := j.rec.FirstToken; first != c.first && !(math.IsNaN(first) && math.IsNaN(c.first)) ||
			len(j.rec.Gaps) != c.gaps {
			t.Errorf("%s: first token at %v and %d gaps, expected %v and %d", c.name, first, len(j.rec.Gaps), c.first,
				c.gaps)
		}
		f.Close()
	}
}
