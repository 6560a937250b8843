package info_test

import (
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/info"
	"lorasim/trace/llm"
)

// TestReuse counts by hand what prompts repeat: whole prompts but one token, replies
// but their last one, system prompts, branches, and nothing across adapters.
func TestReuse(t *testing.T) {
	system := &trace.Text{ID: 0}
	talk, other := &trace.Text{Parent: system, Start: 100, ID: 1}, &trace.Text{Parent: system, Start: 100, ID: 2}
	edit := &trace.Text{Parent: talk, Start: 120, ID: 3}
	stem := &trace.Text{ID: 4}
	branch := &trace.Text{Parent: stem, Start: 20, ID: 5}
	w := &trace.Workload{Adapters: trace.Names(2, nil)}
	want := []int64{0, 0}
	for _, q := range []struct {
		adapter, prompt int32
		text            *trace.Text
		found           int64
	}{
		{0, 120, talk, 0},
		{0, 200, talk, 129}, // prompt and reply of 10 tokens
		{0, 200, talk, 199}, // once more
		{0, 150, edit, 120}, // up to where it branches off
		{0, 110, other, 100},
		{1, 110, other, 0}, // another adapter
		{1, 50, nil, 0},
		{1, 60, branch, 0}, {1, 60, stem, 20}, // what follows the branch is the branch's own
	} {
		r := trace.Request{ID: int64(len(w.Requests)), Adapter: q.adapter, Prompt: q.prompt, Output: 10, Text: q.text,
			Reply: q.text}
		w.Requests = append(w.Requests, r)
		want[q.adapter] += q.found
	}
	s, err := info.Summarize(w.Source(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if u := s.Reuse; u.Tokens != want[0]+want[1] || u.Conversations != 2+2 || u.Turns != 2 {
		t.Errorf("reuse is %+v, expected %v tokens and 4 conversations of 2 turns", u, want)
	}
	for _, u := range s.Top {
		if u.Reuse.Tokens != want[u.Index] {
			t.Errorf("reuse of %s is %+v, expected %d", u.Name, u.Reuse, want[u.Index])
		}
	}
}

// TestReuseMooncake compares with an independent program's count for a cache without
// bounds, with one adapter and with the rows going to eight in turn.
func TestReuseMooncake(t *testing.T) {
	for _, c := range []struct {
		adapters int32
		want     int64
	}{{1, 54_063_104}, {8, 20_120_064}} {
		row := int32(-1)
		r, err := llm.Open(t.Context(), llm.Mooncake, shareddata.Path(t, "mooncake/conversation_trace.jsonl"),
			llm.Options{
				Adapters: trace.Names(int(c.adapters), nil), Assign: func() int32 { row++; return row % c.adapters },
			})
		if err != nil {
			t.Fatal(err)
		}
		s, err := info.Summarize(r, 0)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if s.Reuse.Tokens != c.want {
			t.Errorf("%d adapters: %d tokens, expected %d", c.adapters, s.Reuse.Tokens, c.want)
		}
	}
}
