package live

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Prompts are equal as far as their texts are, whatever their ids, and differ from
// where they part; what repeats a reply has the tokens that the worker replied.
func TestPromptOfText(t *testing.T) {
	c := &client{cfg: Config{Seed: 1, Vocabulary: 1000}, replies: map[*trace.Text][]reply{}}
	texts := trace.Texts{}
	system := texts.Of(nil, 0, 7)
	one, two := texts.Of(system, 20, 8), texts.Of(system, 20, 9)
	ask := func(id int64, text *trace.Text, n int32) []int32 {
		return c.prompt(&trace.Request{ID: id, Prompt: n, Text: text})
	}
	a, b, other := ask(1, one, 50), ask(2, one, 60), ask(3, two, 50)
	if !slices.Equal(a, b[:50]) {
		t.Errorf("the same text:\n%v\n%v", a, b)
	}
	if !slices.Equal(a[:20], other[:20]) || a[20] == other[20] || slices.Equal(a[21:30], other[21:30]) {
		t.Errorf("the same beginning alone:\n%v\n%v", a, other)
	}
	if plain := ask(1, nil, 50); slices.Equal(plain[:20], a[:20]) {
		t.Error("a prompt without a text has that of another")
	}

	// a block tells its own tokens alone: what follows is the request's
	block := &trace.Text{Block: 16, ID: 3}
	if x, y := ask(4, block, 30), ask(5, block, 30); !slices.Equal(x[:16], y[:16]) || slices.Equal(x[16:], y[16:]) {
		t.Errorf("a block of 16:\n%v\n%v", x, y)
	}

	// the reply to a prompt of 30 tokens
	c.replies[one] = []reply{{30, []int32{901, 902, 903}}}
	next := ask(6, one, 60)
	if !slices.Equal(next[:30], a[:30]) || !slices.Equal(next[30:33], []int32{901, 902, 903}) ||
		!slices.Equal(next[33:50], a[33:]) {
		t.Errorf("after a reply:\n%v\n%v", next, a)
	}
	if short := ask(7, one, 31); short[30] != 901 {
		t.Errorf("a prompt that ends within the reply: %v", short[28:])
	}
	if got := ask(8, two, 50); !slices.Equal(got, other) {
		t.Errorf("a reply to another text:\n%v\n%v", got, other)
	}
}

// Both protocols tell how much of a prompt was cached; what they tell of a prompt
// that was sent again with tokens of an earlier attempt does not count.
func TestCachedTokens(t *testing.T) {
	for _, c := range []struct {
		backend Backend
		data    string
		want    int
	}{
		{SGLang, `{"text":"a","output_ids":[5],"meta_info":{"completion_tokens":1,"cached_tokens":12}}`, 12},
		{SGLang, `{"text":"a","output_ids":[5],"meta_info":{"completion_tokens":1,"cached_tokens":null}}`, 0},
		{VLLM, `{"choices":[{"text":"a","token_ids":[5]}],"usage":{"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":12}}}`, 12},
		{VLLMChat, `{"choices":[],"usage":{"completion_tokens":1,"prompt_tokens_details":null}}`, 0},
		// of 20
		{SGLangOAI, `{"choices":[],"usage":{"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":99}}}`, 20},
	} {
		p, err := new(parser).parse(c.backend, []byte(c.data))
		if err != nil {
			t.Fatal(err)
		}
		rt := newRouter(t, "round-robin", 1, nil)
		f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{"u"}}, Router: rt})
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range []int{0, 3} {
			cl := &client{cfg: Config{Backend: c.backend, Fleet: f, Clock: newClock(1)}}
			j := cl.newJob(trace.Request{Adapter: trace.BaseModel, Prompt: 20, Output: 9})
			j.n = before
			f.Requests.Book(&j.fr, 0)
			(&attempt{c: cl, j: j, before: before}).take(p, cl.cfg.Clock.start)
			if want := map[int]int{0: c.want}[before]; int(j.rec.Cached) != want {
				t.Errorf("%s %s after %d tokens: %d cached, expected %d", c.backend, c.data, before, j.rec.Cached, want)
			}
		}
		f.Close()
	}
}

// Requests of one text, one after the other on a worker with a prefix cache, find
// what the one before has left there: its prompt, and its reply where the next
// prompt repeats it.
func TestCachedByTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := trace.Texts{}
		talk := texts.Of(nil, 0, 1)
		wl := &trace.Workload{}
		for i, n := range []int32{64, 160, 256} { // each repeats the prompt before, 32 tokens of reply, and adds 64
			wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i), Adapter: trace.BaseModel,
				Prompt: n, Output: 32, Text: talk, Reply: talk})
		}
		wl.Requests = append(wl.Requests, trace.Request{ID: 3, Arrival: 3, Adapter: trace.BaseModel, Prompt: 256,
			Output: 1, Text: texts.Of(nil, 0, 2)})
		for _, b := range []Backend{SGLang, SGLangOAI} {
			prompts, tokens := map[int64][]int32{}, map[int64][]int32{}
			out := liveRun{cluster: startWorkers(t, faults{Prefixes: true}), wl: wl, backend: b, move: router.MoveNone,
				set: func(c *Config) {
					c.Output = func(r *record.Request, prompt, ids []int32) {
						prompts[r.ID], tokens[r.ID] = prompt, ids
					}
				}}.run(context.Background(), t)
			for i := range int64(2) { // what is told of a prompt is what was sent: the conversation so far
				if said := slices.Concat(prompts[i], tokens[i]); !slices.Equal(prompts[i+1][:len(said)], said) {
					t.Errorf("%s: prompt %d does not go on where %d ended", b, i+1, i)
				}
			}
			var cached []int32
			for i := range wl.Requests {
				r := out.recs[int64(i)]
				if r.Status != record.OK {
					t.Fatalf("%s: request %d: %s", b, i, r.Error)
				}
				cached = append(cached, r.Cached)
			}
			want := []int32{0, 64 + 31, 160 + 31, 0} // the last token of a reply was never computed on
			if b != SGLang {
				want = []int32{0, 64, 160, 0} // it tells no ids of replies, so that no prompt can repeat them
			}
			if !slices.Equal(cached, want) {
				t.Errorf("%s: %v tokens were cached, expected %v", b, cached, want)
			}
		}
	})
}
