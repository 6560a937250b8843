//go:build linux

package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/faultworker"
)

// The client tells whole replies from those that are cut, foreign or hanging, and refusals from errors.
func TestClient(t *testing.T) {
	for _, c := range []struct {
		rule  faultworker.Rule
		whole bool
		want  outcome // ok, refused, hung, wrong, tokens
	}{
		{rule: faultworker.Rule{}, want: outcome{ok: true, tokens: 3}},
		{rule: faultworker.Rule{}, whole: true, want: outcome{ok: true, tokens: 3}},
		{rule: faultworker.Rule{Do: faultworker.Cut, Tokens: 2}, want: outcome{tokens: 2}},
		{rule: faultworker.Rule{Do: faultworker.Cut}, whole: true},
		{rule: faultworker.Rule{Do: faultworker.Drop}},
		{rule: faultworker.Rule{Do: faultworker.Garbage}},
		{rule: faultworker.Rule{Do: faultworker.Stall, Tokens: 1}, want: outcome{hung: true, tokens: 1}},
		{rule: faultworker.Rule{Do: faultworker.Hang}, want: outcome{hung: true}},
		{rule: faultworker.Rule{Do: faultworker.Answer, Status: 500}},
		{rule: faultworker.Rule{Do: faultworker.Answer, Status: 503, Header: "Retry-After: 1\r\n"},
			want: outcome{refused: true}},
		{rule: faultworker.Rule{Do: faultworker.Answer,
			Text: `{"output_ids": [1, 2, 3], "meta_info": {"id": "other"}}`}, whole: true, want: outcome{wrong: true}},
		{rule: faultworker.Rule{Do: faultworker.Answer, Text: `{"output_ids": [1, 3, 3], "meta_info": {"id": "x1"}}`},
			whole: true, want: outcome{wrong: true, tokens: 2}},
	} {
		w, err := faultworker.New(faultworker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Break(c.rule); err != nil {
			t.Fatal(err)
		}
		if err := w.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		cl := newClient(w.URL(), "/generate", 300*time.Millisecond, "x")
		got := cl.ask(context.Background(), order{tokens: 3, whole: c.whole})
		if got.ok != c.want.ok || got.refused != c.want.refused || got.hung != c.want.hung ||
			got.wrong != c.want.wrong || got.tokens != c.want.tokens {
			t.Errorf("%+v, whole %v: %+v, expected %+v", c.rule, c.whole, got, c.want)
		}
		cl.close()
		w.Close()
	}
}

// A tally counts each outcome once.
func TestDrive(t *testing.T) {
	w, err := faultworker.New(faultworker.Config{Name: "w0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Break(faultworker.Rule{On: faultworker.Generate, Share: 0.25, Do: faultworker.Reset,
		Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	cl := newClient(w.URL(), "/v1/completions", time.Second, "x")
	defer cl.close()
	sum := newTally()
	cl.drive(context.Background(), 5, sum, func(i int) (order, bool) {
		return order{base: "base", tokens: 2},
			i < 40
	})
	if sum.requests != 40 || sum.lost != 10 || sum.of("w0") != 30 {
		t.Errorf("%d requests, %d lost, %d of w0: %v", sum.requests, sum.lost, sum.of("w0"), sum.reasons)
	}
	if n := w.Book().Totals(); n.Executed != 40 || n.Twice != 0 {
		t.Errorf("%+v", n)
	}
}

func result(row, policy string, special bool, lost float64, more ...Figure) Result {
	return Result{Row: row, What: "what", Policy: policy, Special: special,
		Figures: append([]Figure{{Name: "requests", Value: 600}, {Name: "lost", Value: lost}}, more...)}
}

// The tables have old and new figures side by side, and the worst of the policies.
func TestMarkdown(t *testing.T) {
	now := []Result{result("cut", "static", false, 3, Figure{Name: "hung", Value: 1},
		Figure{Name: "gateway", Text: "alive"}),
		result("cut", "affinity", false, 4, Figure{Name: "hung", Value: 2},
			Figure{Name: "gateway", Text: "ended"}), result("poison", "static", true, 1)}
	old := []Result{result("cut", "static", false, 300), result("poison", "static", true, 1)}
	var b bytes.Buffer
	printMarkdown(&b, now, old)
	for _, line := range []string{"| cut: what | 600 | 300 → 3 | 4 | - | - | - → 2 | - | - | - → ended |",
		"| poison: what | `static` | requests: 600; lost: 1 |"} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("%s\ndoes not have the line\n%s", &b, line)
		}
	}
	if all := merge(old, now[:1]); len(all) != 2 || all[0].Row != "cut" || all[0].Figures[1].Value != 3 {
		t.Errorf("joined: %+v", all)
	}
}

// Bounds name rows and find what is beyond them.
func TestCheck(t *testing.T) {
	jobs, err := (&options{}).jobs([]string{"static"})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bounds() {
		if !slices.ContainsFunc(jobs, func(j job) bool { return j.row == b.row }) {
			t.Errorf("a bound is for %s, which is no row", b.row)
		}
	}
	var said bytes.Buffer
	n := check(&said, []Result{result("cut", "static", false, 41), result("cut", "affinity", false, 40,
		Figure{Name: "gateway", Text: "ended"}), {Row: "none", Error: "no"}}, false)
	if n != 3 || !strings.Contains(said.String(), "cut, static: lost is 41, expected 0 to 40") {
		t.Errorf("%d missed:\n%s", n, &said)
	}
}

// Every row has a name of its own, and quick runs name rows that are there.
func TestRows(t *testing.T) {
	o := options{}
	jobs, err := o.jobs([]string{"static"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, j := range jobs {
		if names[j.row] {
			t.Errorf("row %s is there twice", j.row)
		}
		names[j.row] = true
	}
	for _, name := range quickRows {
		if !names[name] {
			t.Errorf("--quick names %s, which is no row", name)
		}
	}
	if _, err := (&options{only: "nonsense"}).jobs([]string{"static"}); err == nil {
		t.Error("an unknown row was accepted")
	}
	old, now := &bench{help: "--listen"}, &bench{help: "--admin-listen address", extra: []string{"--grace", "1s"}}
	if a := old.gatewayArgs("static", nil, nil); slices.Contains(a, "--admin-listen") {
		t.Errorf("flags for a gateway without an admin listener: %v", a)
	}
	if a := now.gatewayArgs("static", nil, nil); !slices.Contains(a, "--admin-listen") ||
		!slices.Contains(a, "--grace") {
		t.Errorf("flags for a gateway with an admin listener: %v", a)
	}
}
