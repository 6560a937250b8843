package sim

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// referenceRow is a request of Mooncake's traces.
type referenceRow struct {
	Input  int32   `json:"input_length"`
	Output int32   `json:"output_length"`
	IDs    []int64 `json:"hash_ids"`
}

// conversation tells rows apart by their second id.
func (r *referenceRow) conversation() int64 { return r.IDs[min(1, len(r.IDs)-1)] }

// serial is a trace whose requests arrive 1000 s apart.
func serial(t *testing.T, path string, served bool, adapter func(i int, r *referenceRow) int32) *trace.Workload {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, texts := &trace.Workload{Adapters: trace.Names(8, []int{8})}, trace.Blocks{Tokens: 512}
	for d := json.NewDecoder(f); d.More(); {
		var r referenceRow
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		i := len(w.Requests)
		q := trace.Request{ID: int64(i), Arrival: 1000 * float64(i), Adapter: adapter(i, &r), Prompt: r.Input,
			Output: 1}
		if served {
			q.Output = r.Output
		}
		if q.Text, err = texts.Text(r.IDs, r.Input); err != nil {
			t.Fatal(err)
		}
		w.Requests = append(w.Requests, q)
	}
	return w
}

// longestMatch sends a request to the worker with the longest match by the view,
// of equals to that which has computed least, if the match is more than a share
// of the prompt.
type longestMatch struct {
	router.Base
	share    float64
	computed []int64
}

func (p *longestMatch) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *longestMatch) pick(r router.Request, v *router.View) int {
	match := func(w int) int32 { return v.Prefixes.Match(w, r.Text, r.Adapter, min(r.Known, r.Prompt-1)) }
	best := 0
	for w := range v.Workers {
		if m, old := match(w), match(best); m > old || m == old && p.computed[w] < p.computed[best] {
			best = w
		}
	}
	if float64(match(best)) <= p.share*float64(r.Prompt) {
		for w := range v.Workers {
			if p.computed[w] < p.computed[best] || p.computed[w] == p.computed[best] && w < best {
				best = w
			}
		}
	}
	p.computed[best] += int64(r.Prompt - match(best))
	return best
}

// byConversation sends requests by the second id of their prompts.
type byConversation struct{ router.Base }

func (p byConversation) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p byConversation) pick(r router.Request, v *router.View) int {
	row := referenceRow{IDs: r.Text.IDs()}
	return int(row.conversation() % int64(len(v.Workers)))
}

// TestPrefixReference holds four workers under several ways of routing against the
// figures of an independent program, which takes the requests one by one: the
// tokens found in each worker's cache.
func TestPrefixReference(t *testing.T) {
	data, err := os.ReadFile(shareddata.Path(t, "prefix/reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct {
		Cases []struct {
			Trace, Convention, Routing, Adapters string
			Capacity                             int `json:"capacity_blocks"`
			Workers                              int
			PerWorker                            []struct {
				Requests int64
				Hits     int64 `json:"hit_tokens"`
			} `json:"per_worker"`
		}
	}
	if err := json.Unmarshal(data, &ref); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"tiny": "prefix/tiny_hash_trace.jsonl",
		"mooncake-conversation": "mooncake/conversation_trace.jsonl",
		"mooncake-synthetic":    "mooncake/synthetic_trace.jsonl"}
	adapters := map[string]func(int, *referenceRow) int32{
		"none":           func(int, *referenceRow) int32 { return trace.BaseModel },
		"row-8":          func(i int, _ *referenceRow) int32 { return int32(i % 8) },
		"conversation-8": func(_ int, r *referenceRow) int32 { return int32(r.conversation() % 8) },
	}
	policies := map[string]string{"round-robin": "round-robin", "adapter-static": "static",
		"sglang-tree": "cache-aware:cold=smallest-tree,capacity=0,lora=true"}
	workloads, held := map[string]*trace.Workload{}, 0
	for _, c := range ref.Cases {
		if c.Workers < 2 || testing.Short() && c.Trace != "tiny" {
			continue
		}
		key := c.Trace + c.Convention + c.Adapters
		if workloads[key] == nil {
			workloads[key] = serial(t, shareddata.Path(t, paths[c.Trace]), c.Convention == "served",
				adapters[c.Adapters])
		}
		w := workloads[key]
		tooLong := func(r trace.Request) bool { return int(r.Prompt) > 512*c.Capacity-inputMargin }
		if c.Capacity > 0 && slices.ContainsFunc(w.Requests, tooLong) {
			continue // an engine cuts that prompt
		}
		p := plainProfile()
		p.Memory.KVTokens = 512 * 300_000
		if c.Capacity > 0 {
			p.Memory.KVTokens = 512 * int64(c.Capacity)
		}
		p.Engine.PageSize, p.Engine.PrefixCache, p.Engine.ContextLength, p.Engine.MaxLorasPerBatch = 512, true,
			1_000_000, 16
		costs := p.Compile()
		rt := &router.Router{}
		switch c.Routing {
		case "prefix-hash":
			rt.Policy = byConversation{}
		case "longest":
			rt.Policy = &longestMatch{share: -1, computed: make([]int64, c.Workers)}
		case "longest>0.5":
			rt.Policy = &longestMatch{share: 0.5, computed: make([]int64, c.Workers)}
		default:
			if rt, err = router.New(policies[c.Routing],
				router.Env{Workers: router.Alike(c.Workers, router.Spec{MaxRunning: 256, Slots: 16}),
					Adapters: w.Adapters}); err != nil {
				t.Fatal(err)
			}
		}
		workers := make([]*profile.Costs, c.Workers)
		for i := range workers {
			workers[i] = costs
		}
		st, err := Run(context.Background(), Config{Source: w.Source(), Workers: workers, Router: rt,
			Observer: &blind{}, Home: router.Disk})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range st.Workers {
			want := c.PerWorker[i]
			if c.Trace == "tiny" && c.Capacity == 32 && c.Routing == "round-robin" && i == 0 {
				// Of a prompt that is kept whole the last page is computed again, beside the
				// one that is kept: for want of room that costs another page.
				want.Hits -= 512
			}
			if got.Requests != want.Requests || got.CachedTokens != want.Hits {
				t.Errorf("%s %s %s, adapters %s, %d blocks, worker %d: %d requests, %d tokens found, expected %d and %d",
					c.Trace, c.Convention,
					c.Routing, c.Adapters, c.Capacity, i, got.Requests, got.CachedTokens, want.Requests, want.Hits)
			}
		}
		held++
	}
	if held < 20 {
		t.Errorf("%d cases held against the reference", held)
	}
}
