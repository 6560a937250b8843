package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"lorasim/internal/testutil"
)

// Numbers that make no sense are not known; lists, names and texts are bounded.
func TestBounds(t *testing.T) {
	const models = `{"data":[{"id":"m"}]}`
	for _, n := range []string{"-1", "-9223372036854775808", "9223372036854775807", "2000000000000", "0"} {
		e, _ := answers(t, map[string]string{"/v1/models": models,
			"/server_info": fmt.Sprintf(`{"model_path":"m","max_running_requests":%s,"max_loras_per_batch":%[1]s,"max_loaded_loras":%[1]s,"max_total_num_tokens":%[1]s,"max_lora_rank":%[1]s,"context_length":%[1]s}`, n),
			"/v1/loads":    fmt.Sprintf(`{"loads":[{"num_running_reqs":%s,"num_waiting_reqs":%[1]s,"max_total_num_tokens":%[1]s},{"num_running_reqs":%[1]s,"num_waiting_reqs":%[1]s}]}`, n)})
		in, err := e.discover(t.Context())
		if err != nil || in.Model != "m" || in.Limits != (Limits{}) || in.MaxRank != 0 || in.ContextLength != 0 {
			t.Errorf("%s: %+v, %v", n, in, err)
		}
		if l, err := e.load(t.Context()); err != nil || l.Running < 0 || l.Running > maxRequests || l.Queued < 0 ||
			l.Queued > maxRequests || l.Limits != (Limits{}) {
			t.Errorf("%s: %+v, %v", n, l, err)
		}
	}
	// not even a number: the worker is not used
	for _, n := range []string{"1e308", "9223372036854775808", "1.5", `"7"`, "[]"} {
		e, _ := answers(t, map[string]string{"/server_info": `{"max_running_requests":` + n + `}`})
		_, err := e.discover(t.Context())
		testutil.ExpectError(t, err, "GET /server_info")
	}
	for _, c := range []struct{ name, path, answer, want string }{
		{"many models", "/v1/models", `{"data":[` + strings.TrimSuffix(strings.Repeat("{},", maxList+1), ",") + `]}`,
			"a list of 131073 entries, expected at most 131072"},
		{"a long answer", "/v1/models", strings.Repeat(" ", maxAnswer+1),
			"the answer is too long: more than 16777216 bytes"},
		{"deep JSON", "/v1/models", `{"data":` + strings.Repeat("[", 100_000), "depth"},
		{"deep entries", "/v1/models", `{"data":[` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `]}`,
			"data: unexpected array"},
	} {
		e, _ := answers(t, map[string]string{c.path: c.answer})
		_, err := e.models(t.Context())
		testutil.ExpectError(t, err, c.want)
	}
	e, _ := answers(t, map[string]string{"/v1/models": fmt.Sprintf(`{"data":[{"id":"m"},{"id":"a\u001b[31m","parent":"m"},{"id":"a\nb","parent":"m"},{"id":%q,"parent":"m"},{"id":"ok","parent":"m"},{"id":"","parent":"m"},{"id":"root","parent":"m","root":"a\u0007"}]}`,
		strings.Repeat("x", 1<<20))})
	list, err := e.models(t.Context())
	if err != nil || len(list) != 2 || list[1].ID != "ok" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, text := range []string{`{"error":{"message":"a\u001b[2J` + strings.Repeat("x", 1<<16) + `"}}`,
		"\x1b[2J\u009b31m", `{"detail":"\u0085` + strings.Repeat("ä", 9000) + `"}`} {
		if got := ErrorText([]byte(text)); len([]rune(got)) > maxMessage ||
			strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%d characters: %.80q", len(got), got)
		}
	}
}

// The tokens of a reply are counted up to a bound.
func TestGenerated(t *testing.T) {
	inMemory(t, func(t *memory) {
		f, _, _ := startFleet(t, 1, nil, newFakeWorker(t))
		r := Request{}
		f.Requests.Book(&r, 0)
		for range 10 {
			f.Requests.Tokens(&r, 1<<30, true)
		}
		if n := r.Generated(); n != maxGenerated {
			t.Errorf("%d tokens", n)
		}
	})
}

// elements counts as a decoder does.
func TestElements(t *testing.T) {
	value := rapid.OneOf(rapid.SampledFrom([]string{"1", "null", `"a,b"`, `"\","`, `"\\"`, "{}", `{"a":[1,2],"b":","}`,
		"[]", "[1,[2,3]]", " 5 "}))
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(value).Draw(t, "values")
		if n := elements([]byte(" [" + strings.Join(all, ",") + "] ")); n != len(all) {
			t.Fatalf("%d of %q", n, all)
		}
	})
}

// FuzzWorker has a worker answer with the same bytes to whatever it is asked.
func FuzzWorker(f *testing.F) {
	for _, s := range []string{"{}", `{"data":[{"id":"a","parent":"b","max_model_len":-1}]}`,
		`{"loads":[{"num_running_reqs":-5}],"version":"\u001b"}`, `[{"num_reqs":1e9}]`,
		"vllm:num_requests_running 1e300\nvllm:cache_config_info{num_gpu_blocks=\"2147483647\",block_size=\"2147483647\"} 1\n",
		"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"-9\",running_lora_adapters=\"a,b\"} +Inf\n", `{"output_ids":[1],"choices":[{"token_ids":[2]}]}`} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, kinds uint8) {
		client := &http.Client{Transport: testutil.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if kinds&1 != 0 && strings.HasSuffix(r.URL.Path, "server_info") || kinds&2 != 0 &&
				strings.HasPrefix(r.URL.Path, "/v1/load") {
				return answer(404, string(data)), nil
			}
			return answer(200, string(data)), nil
		})}
		e := newEngine(&Connection{Client: client}, "http://worker")
		ctx := context.Background()
		if in, err := e.discover(ctx); err == nil && (in.Limits != in.Limits.bounded() || in.MaxRank < 0 ||
			in.ContextLength < 0 || len(in.Version) > 4*maxVersion || in.Model != "" && !isName(in.Model, maxName)) {
			t.Fatalf("%+v", in)
		}
		list, err := e.models(ctx)
		for _, m := range list {
			if err == nil && !isName(m.ID, maxName) {
				t.Fatalf("%+v", m)
			}
		}
		if l, err := e.load(ctx); err == nil && (l.Running < 0 || l.Running > maxRequests || l.Queued < 0 ||
			l.Queued > maxRequests || l.Limits != l.Limits.bounded()) {
			t.Fatalf("%+v", l)
		}
		e.tellsIDs(ctx, "m")
		if err := e.abort(ctx, "x"); err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Fatalf("%q", err)
		}
	})
}

// Errors about a worker's answers name fields, and no types of this program.
func TestPlainJSON(t *testing.T) {
	var v struct {
		Data list[struct {
			ID string `json:"id"`
		}] `json:"data"`
	}
	for text, expected := range map[string]string{`[]`: "the answer: unexpected array",
		`{"data": 5}`: "data: unexpected number",
		`{`:           "unexpected end of JSON input: the answer is not JSON, expected a server of sglang or vLLM"} {
		if err := plainJSON(json.Unmarshal([]byte(text), &v)); err == nil || err.Error() != expected {
			t.Errorf("%s: %v, expected %s", text, err, expected)
		}
	}
}
