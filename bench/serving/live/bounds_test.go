package live

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// newAttempt is an attempt of a request for some tokens, booked on the only worker.
func newAttempt(t testing.TB, b Backend, tokens int32, set func(*Config)) *attempt {
	t.Helper()
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
	t.Cleanup(f.Close)
	c := &client{cfg: Config{Backend: b, Clock: clock, Fleet: f, Output: func(*record.Request, []int32, []int32) {},
		Text: func(int64, string) {}}}
	if set != nil {
		set(&c.cfg)
	}
	c.extra = readExtra(c.cfg.Extra)
	j := c.newJob(trace.Request{Adapter: trace.BaseModel, Prompt: 5, Output: tokens})
	f.Requests.Book(&j.fr, 0)
	return &attempt{c: c, j: j, ctx: context.Background()}
}

// What a worker reports beyond what was asked for fails the request, with the reason,
// and takes no memory.
func TestReplyBounds(t *testing.T) {
	const sgl = `data: {"text":"a","meta_info":{"completion_tokens":%s}}` + "\n\n"
	first := fmt.Sprintf(sgl, "1")
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		backend Backend
		extra   string
		stream  string
		want    string // error; "": none
	}{
		{"4e9 tokens", SGLang, "", first + fmt.Sprintf(sgl, "4000000000"),
			"the worker reports 4000000000 tokens, at most 9 were requested"},
		{"one too many", SGLang, "", first + fmt.Sprintf(sgl, "10"),
			"the worker reports 10 tokens, at most 9 were requested"},
		{"as asked for", SGLang, "", first + fmt.Sprintf(sgl, "9"), ""},
		{"negative", SGLang, "", fmt.Sprintf(sgl, "-1"), "not the JSON"},
		{"2^63", SGLang, "", fmt.Sprintf(sgl, "9223372036854775808"), "not the JSON"},
		{"1e308", SGLang, "", fmt.Sprintf(sgl, "1e308"), "not the JSON"},
		{"usage", VLLM, "", `data: {"choices":[{"text":"a"}]}` + "\n\n" +
			`data: {"choices":[],"usage":{"completion_tokens":4000000000}}` + "\n\n",
			"the worker reports 4000000000 tokens"},
		{"negative usage", VLLM, "", `data: {"choices":[],"usage":{"completion_tokens":-9}}` + "\n\n", "not the JSON"},
		{"many ids", VLLM, "", `data: {"choices":[{"text":"a","token_ids":[` + strings.Repeat("1,", 30_000) + `1]}]}` +
			"\n\n", "the worker reports 30001 tokens, at most 9 were requested"},
		{"a huge id", VLLM, "", `data: {"choices":[{"text":"a","token_ids":[16777216]}]}` + "\n\n",
			"a token id above 16777215"},
		{"several replies", VLLM, `"n": 3`, `data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":27}}` +
			"\n\n", ""},
		{"more than several replies", VLLM, `"n": 3`,
			`data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":28}}` + "\n\n", "at most 27 were requested"},
		{"another length", SGLang, `"sampling_params": {"max_new_tokens": 40}`, fmt.Sprintf(sgl, "40"), ""},
		{"a long line", SGLang, "", `data: {"text":"` + long + `","meta_info":{"completion_tokens":1}}` + "\n\n",
			"an event of the reply is longer than"},
		{"a long line without an end", SGLang, "", "data: " + strings.Repeat("x", 17<<20),
			"an event of the reply is longer than"},
		{"much text", VLLM, "", strings.Repeat(`data: {"choices":[{"text":"`+long[:1<<17]+`"}]}`+"\n\n", 9),
			"the text of the reply is longer than"},
		{"many events", VLLMChat, "", strings.Repeat(`data: {"choices":[{"delta":{"content":""}}]}`+"\n\n", 2000),
			"more than 1168 events"},
		{"many events with text", VLLMChat, "", strings.Repeat(`data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n",
			20), ""},
		{"comments", SGLang, "", strings.Repeat(":\n", maxLines+1), "more than 65536 lines"},
		{"deep JSON", SGLang, "", "data: " + strings.Repeat(`{"text":`, 20_000) + "\n\n", "not the JSON"},
		{"a long error with escapes", SGLang, "", `data: {"error":{"message":"\u001b[2J` + long[:1<<17] + `"}}` +
			"\n\n", "[2Jxxx"},
	} {
		a := newAttempt(t, c.backend, 9, func(cfg *Config) { cfg.Extra = []byte(c.extra) })
		out := a.read(strings.NewReader(c.stream + "data: [DONE]\n\n"))
		fail := ""
		if out.kind != ended || out.status != record.OK {
			fail = out.reason
		}
		if c.want == "" && strings.Contains(fail, "ended early") { // it was, and all else is well
			fail = ""
		}
		if (fail == "") != (c.want == "") || !strings.Contains(fail, c.want) || len(fail) > 2100 ||
			strings.ContainsRune(fail, '\x1b') {
			t.Errorf("%s: %.200q, expected %q", c.name, fail, c.want)
		}
		if n := len(a.j.rec.Gaps); n > 40 || a.j.n > 40 || cap(a.j.text) > 2<<20 {
			t.Errorf("%s: %d gaps, %d tokens, %d bytes of text", c.name, n, a.j.n, cap(a.j.text))
		}
	}
	whole := newAttempt(t, SGLang, 9, func(cfg *Config) { cfg.NoStream = true })
	if out := whole.read(io.MultiReader(strings.NewReader(`{"text":"`),
		strings.NewReader(long))); !strings.Contains(out.reason, "longer than") {
		t.Errorf("a long whole reply: %+v", out)
	}
}

// FuzzRead is a stream of any bytes: what came of it stays within what was asked for.
func FuzzRead(f *testing.F) {
	f.Add([]byte("data: {\"text\":\"a\",\"output_ids\":[5],\"meta_info\":{\"finish_reason\":{\"type\":\"length\"},\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"), uint8(0))
	f.Add([]byte("data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1,2,3]}],\"usage\":{\"completion_tokens\":3}}\r\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n"), uint8(3))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}},{\"delta\":{\"content\":\"b\"}}]}\n"), uint8(4))
	f.Add([]byte("data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":7}}\ndata: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":3}}\n"), uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, kind uint8) {
		a := newAttempt(t, Backend(backends[int(kind)%len(backends)]), 9,
			func(cfg *Config) { cfg.NoStream = kind >= 128 })
		out := a.read(strings.NewReader(string(stream)))
		j := a.j
		if j.n > 9 || len(j.rec.Gaps) > 9 || len(j.tokens) > 9 || j.known && len(j.tokens) != j.n ||
			j.fr.Generated() != j.n || len(out.reason) > 4*2048 {
			t.Fatalf("%d tokens, %d gaps, %d ids, %d in the books: %+v", j.n, len(j.rec.Gaps), len(j.tokens),
				j.fr.Generated(), out)
		}
	})
}
