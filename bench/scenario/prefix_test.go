package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/store"
)

// talks are conversations of one form: session s of the adapter s mod Adapters has
// turns of System + k User + (k-1) Output tokens, k from 1 on, each with Output
// tokens of reply; one request at a time, Order "turn" (turn 1 of all) or "session".
type talks struct {
	Sessions, Turns, Adapters int
	System, User, Output      int32 `json:"-"`
	Page, Capacity            int   `json:"-"`
	Order                     string
}

func (c talks) workload() *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(c.Adapters, []int{8})}
	var system, texts []*trace.Text
	for a := range c.Adapters {
		system = append(system, &trace.Text{ID: int64(a)})
	}
	for s := range c.Sessions {
		texts = append(texts, &trace.Text{Parent: system[s%c.Adapters], Start: c.System, ID: int64(c.Adapters + s)})
	}
	for i := range c.Sessions * c.Turns {
		s, k := i%c.Sessions, int32(i/c.Sessions)+1
		if c.Order == "session" {
			s, k = i/c.Turns, int32(i%c.Turns)+1
		}
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: 1000 * float64(i),
			Adapter: int32(s % c.Adapters),
			Prompt:  c.System + k*c.User + (k-1)*c.Output, Output: c.Output, Text: texts[s], Reply: texts[s]})
	}
	return w
}

// hits runs a saved workload through the simulator and counts the prompt tokens
// that it finds cached.
func (c talks) hits(t *testing.T) int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.jsonl")
	if _, err := store.Write(path, c.workload().Source(), store.WriteOptions{Files: columnar.Files()}); err != nil {
		t.Fatal(err)
	}
	if c.Capacity == 0 {
		c.Capacity = 1e9 / c.Page
	}
	sc := Default()
	for key, value := range map[string]any{
		"workload": path, "prefix_cache": true, "page_size": c.Page, "kv_tokens": c.Page * c.Capacity,
		"context_length": 1_000_000,
		"num_workers":    1, "policy": "static", "no_warmup": true,
	} {
		if err := sc.Set(key, fmt.Sprint(value)); err != nil {
			t.Fatal(err)
		}
	}
	res, err := sc.Simulate(t.Context(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Extra.Cached
}

// TestConversationHits: an infinite cache finds what a formula says, in whole pages:
// of first turns the system prompt, of later ones all of the turn before but the
// last token of its reply.
func TestConversationHits(t *testing.T) {
	for _, c := range []talks{
		{Sessions: 8, Turns: 4, Adapters: 4, System: 512, User: 128, Output: 128, Page: 16},
		{Sessions: 6, Turns: 3, Adapters: 2, System: 100, User: 33, Output: 50, Page: 1, Order: "session"},
		{Sessions: 5, Turns: 5, Adapters: 5, System: 1000, User: 1, Output: 7, Page: 64},
	} {
		whole := func(n int32) int64 { return int64(n) / int64(c.Page) * int64(c.Page) }
		want := int64(c.Sessions-c.Adapters) * whole(min(c.System, c.System+c.User-1))
		for k := int32(2); k <= int32(c.Turns); k++ {
			before := c.System + (k-1)*(c.User+c.Output)
			want += int64(c.Sessions) * whole(min(before-1, before+c.User-1))
		}
		if got := c.hits(t); got != want {
			t.Errorf("%+v: %d tokens found, expected %d", c, got, want)
		}
	}
}

// TestConversationTable compares with a table of an independent program, with
// finite caches and both orders.
func TestConversationTable(t *testing.T) {
	if testing.Short() {
		t.Skip("48 runs")
	}
	data, err := os.ReadFile(shareddata.Path(t, "prefix/reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Sessions []struct {
			talks
			System   int32 `json:"system_prompt"`
			User     int32 `json:"user_tokens"`
			Output   int32 `json:"output_tokens"`
			Page     int
			Capacity int   `json:"capacity_pages"`
			Hits     int64 `json:"hit_tokens"`
		}
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Sessions) == 0 {
		t.Fatal("no cases")
	}
	for _, row := range table.Sessions {
		c := row.talks
		c.System, c.User, c.Output, c.Page, c.Capacity = row.System, row.User, row.Output, row.Page, row.Capacity
		if got := c.hits(t); got != row.Hits {
			t.Errorf("%+v: %d tokens found, expected %d", c, got, row.Hits)
		}
	}
}
