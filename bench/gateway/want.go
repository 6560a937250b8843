package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"lorasim/bench/live/fleet"
	"lorasim/trace"
)

// want is what the gateway understands of a request.
type want struct {
	body    []byte
	fields  map[string]json.RawMessage
	openAI  bool
	adapter int32 // trace.BaseModel: none
	prompt  int32 // tokens, or an estimate
	maxNew  int32
}

// Defaults of the engines where a request does not say.
const (
	defaultMaxNew = 128
	bytesPerToken = 4 // of text, to estimate its tokens
)

// understand reads a request's body. Errors come with the status to answer.
func (g *Gateway) understand(path string, body []byte) (*want, int, error) {
	q := &want{body: body, openAI: path != "/generate", adapter: trace.BaseModel, maxNew: defaultMaxNew}
	if err := json.Unmarshal(body, &q.fields); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	if q.fields == nil {
		return nil, http.StatusBadRequest, errors.New("the body is not a JSON object: it is null")
	}
	name, err := q.adapterName()
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	if name != "" {
		a := g.cfg.Fleet.Lookup(name)
		ok := a >= 0
		if !ok && !(q.openAI && g.isBase(name)) {
			return nil, http.StatusNotFound, fmt.Errorf("unknown adapter or model %q; known: %s", name, strings.Join(g.names(), ", "))
		}
		if ok {
			q.adapter = a
		}
	}
	q.prompt, q.maxNew = q.promptTokens(), q.budget()
	return q, 0, nil
}

// adapterName is the adapter that a request names, or, by OpenAI interfaces, the
// model; "" if none.
func (q *want) adapterName() (string, error) {
	text := func(key string) (string, error) {
		raw, ok := q.fields[key]
		if !ok || string(raw) == "null" {
			return "", nil
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("%s: expected a string", key)
		}
		return s, nil
	}
	if q.openAI {
		model, err := text("model")
		if err != nil {
			return "", err
		}
		if _, adapter, ok := strings.Cut(model, ":"); ok {
			return adapter, nil
		}
		if lora, err := text("lora_path"); err != nil || lora != "" {
			return lora, err
		}
		return model, nil
	}
	return text("lora_path")
}

// isBase says whether a name is that of the base model.
func (g *Gateway) isBase(name string) bool {
	known := false
	for w := range g.cfg.URLs {
		m := g.cfg.Fleet.Model(w)
		if m == name {
			return true
		}
		known = known || m != ""
	}
	return !known || name == "default"
}

// names lists the adapters and the base models.
func (g *Gateway) names() []string {
	var list []string
	seen := map[string]bool{"": true}
	for w := range g.cfg.URLs {
		if m := g.cfg.Fleet.Model(w); !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	for _, a := range g.cfg.Fleet.Adapters() {
		list = append(list, a.Name)
	}
	return list
}

// promptTokens counts the tokens of the prompt, or estimates them from its text.
func (q *want) promptTokens() int32 {
	n := 1
	for _, key := range []string{"input_ids", "prompt", "text", "messages"} {
		raw := q.fields[key]
		if len(raw) == 0 {
			continue
		}
		if raw[0] == '[' && key != "messages" {
			n = strings.Count(string(raw), ",") + 1
		} else {
			n = len(raw) / bytesPerToken
		}
	}
	return int32(min(max(n, 1), math.MaxInt32/4))
}

// budget is the number of tokens asked for.
func (q *want) budget() int32 {
	n := 0
	for _, key := range []string{"max_completion_tokens", "max_tokens"} {
		if json.Unmarshal(q.fields[key], &n) == nil && n > 0 {
			break
		}
	}
	var p struct {
		MaxNewTokens int `json:"max_new_tokens"`
	}
	if json.Unmarshal(q.fields["sampling_params"], &p) == nil && p.MaxNewTokens > 0 {
		n = p.MaxNewTokens
	}
	if n <= 0 {
		n = defaultMaxNew
	}
	return int32(min(n, math.MaxInt32/4))
}

// bodyFor is the body to send to a worker: that of the client, but for the name
// of the model, where the worker's interface spells adapters differently.
func (q *want) bodyFor(api fleet.API, base, adapter string) []byte {
	if !q.openAI || q.adapter == trace.BaseModel {
		return q.body
	}
	model := adapter
	if api != fleet.VLLM {
		model = base + ":" + adapter
	}
	var now string
	if json.Unmarshal(q.fields["model"], &now) == nil && now == model {
		return q.body
	}
	fields := make(map[string]json.RawMessage, len(q.fields))
	for k, v := range q.fields {
		fields[k] = v
	}
	name, err := json.Marshal(model)
	if err != nil {
		return q.body
	}
	fields["model"] = name
	delete(fields, "lora_path")
	body, err := json.Marshal(fields)
	if err != nil {
		return q.body
	}
	return body
}
