package result

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/sim/record"
)

// run is a run of n requests of which those in bad were rejected.
func run(n int, bad ...int) *Result {
	c := NewCollector(Options{})
	for i := range n {
		r := record.Request{ID: int64(i), Finish: 1, FirstToken: 0.5, Output: 2}
		for _, b := range bad {
			if i == b {
				r.Status, r.Error, r.FirstToken = record.Rejected, "prompt over the context length 4096", math.NaN()
			}
		}
		c.Done(&r)
	}
	return c.Result(Meta{Source: Sim}, nil)
}

func TestShortfall(t *testing.T) {
	var b bytes.Buffer
	if err := run(5, 1, 3).WriteBlock(&b, LoRA); err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(b.String(), BlockEnd()+"\n")
	want := "2 of 5 rejected: prompt over the context length 4096\n" +
		"note: latencies and throughputs cover only the other 3 requests\n" +
		"transient: too short: 5 requests, at least 200 are needed\n" +
		"note: a longer run, or another seed, may give other latencies\n"
	if below != want {
		t.Errorf("below the block:\n%s", below)
	}
	if whole := run(5); whole.Shortfall() != nil || whole.NoSuccess() != nil {
		t.Error("a run whose requests all succeeded")
	}
	if err := run(2, 0).NoSuccess(); err != nil {
		t.Errorf("one of two succeeded: %v", err)
	}
	if err := run(2, 0, 1).NoSuccess(); err == nil ||
		err.Error() != "no request succeeded: 2 of 2 rejected: prompt over the context length 4096" {
		t.Errorf("none of two succeeded: %v", err)
	}
	if err := run(0).NoSuccess(); err != nil {
		t.Errorf("no request at all: %v", err)
	}

	if err := (&Result{Ended: &Endings{Requests: 2}}).NoSuccess(); err == nil || err.Error() != "no request succeeded" {
		t.Errorf("none of two succeeded, nothing else is known: %v", err)
	}
	if n := (&Endings{Failed: 1, Rejected: 2, Aborted: 4, Unfinished: 8}).Unsuccessful(); n != 15 {
		t.Errorf("%d of 1+2+4+8 did not succeed", n)
	}

	stopped := run(5)
	stopped.Extra.Unsent = 15
	if d := cmp.Diff([]string{"15 of 20 not sent: the run was stopped"}, stopped.Shortfall()); d != "" {
		t.Error(d)
	}

	r := &Result{Ended: &Endings{Requests: 100, Failed: 3, Rejected: 20}}
	short := []string{"3 of 100 failed: no reason known", "20 of 100 rejected: no reason known"}
	if d := cmp.Diff(short, r.Shortfall()); d != "" {
		t.Error(d)
	}
	for i := range 7 {
		r.Ended.Reasons = append(r.Ended.Reasons, Reason{"failed", string(rune('a' + i)), 3})
	}
	lines := r.Shortfall()
	if len(lines) != shownReasons+1 || lines[shownReasons] != "8 of 100 not completed: other reasons" { // 23 - 5*3
		t.Errorf("%q", lines)
	}
}

// The fingerprint is that of a set: the order does not matter, each member does.
func TestCompletedSet(t *testing.T) {
	set := func(r *Result) int64 { return r.Endings().CompletedSet }
	if set(run(50, 7)) == set(run(50, 8)) || set(run(50)) == set(run(49)) || set(run(3, 0, 1, 2)) != 0 {
		t.Error("different sets, or the empty one")
	}
	c := NewCollector(Options{})
	for _, id := range []int64{4, 2, 0, 3} {
		c.Done(&record.Request{ID: id, Finish: 1})
	}
	if got := set(c.Result(Meta{}, nil)); got != set(run(5, 1)) || got <= 0 || got >= 1<<setBits {
		t.Errorf("%x, want %x", got, set(run(5, 1)))
	}
}

// A line of --output-file tells what a run was and how its requests ended, and
// gives both back.
func TestJSONLOwnFields(t *testing.T) {
	r := run(5, 1, 3)
	seed := int64(3)
	r.Seed, r.Policy, r.Scenario.Summary, r.Streamed = &seed, "plan-and-route", "num_workers=8", record.NotStreamed
	var b bytes.Buffer
	if err := r.WriteJSONL(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"source": "sim", "seed": 3, "policy": "plan-and-route", "scenario": "num_workers=8", "streamed": "no", "requests": 5, "failed": 0, "rejected": 2`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
	var got *Result
	if err := parseJSONL(&b, "r", func(_ int, r *Result) error { got = r; return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r.Endings(), got.Endings()); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
	if got.Source != Sim || got.Policy != r.Policy || got.Scenario.Summary != r.Scenario.Summary ||
		got.Streamed != r.Streamed || got.Config["reasons"] != nil {
		t.Errorf("%+v", got.Meta)
	}
}

// Lines of other benchmarks tell by their gaps between
// tokens, or by an argument, whether the client streamed.
func TestForeignLines(t *testing.T) {
	for _, c := range []struct {
		text     string
		streamed record.Streaming
	}{
		{`{"completed": 40, "failed": 2, "mean_itl_ms": 3.5}`, record.Streamed},
		{`{"completed": 40, "total_output_tokens": 400, "mean_itl_ms": 0, "p99_itl_ms": 0}`, record.NotStreamed},
		{`{"completed": 40, "total_output_tokens": 40, "mean_itl_ms": 0, "p99_itl_ms": 0}`, record.StreamingUnknown},
		{`{"completed": 40, "total_output_tokens": 400, "mean_e2e_latency_ms": 100, "mean_ttft_ms": 99}`, record.StreamingUnknown},
		{`{"completed": 40, "disable_stream": true}`, record.NotStreamed},
		{`{"completed": 40, "disable_stream": false}`, record.Streamed},
	} {
		var got *Result
		keep := func(_ int, r *Result) error { got = r; return nil }
		if err := parseJSONL(strings.NewReader(c.text), "r", keep); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got.Streamed != c.streamed {
			t.Errorf("%s: streamed %q, want %q", c.text, got.Streamed, c.streamed)
		}
	}
}
