package emulate

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/serving/httpapi"
)

// messageRequest is the body of /v1/messages.
type messageRequest struct {
	Model     string         `json:"model"`
	Messages  []message      `json:"messages"`
	System    jsontext.Value `json:"system"`
	MaxTokens *int           `json:"max_tokens"`
	Stream    bool           `json:"stream"`
}

// tokens returns the prompt, of which the system's part is the first.
func (q *messageRequest) tokens() []int32 {
	system := message{Role: "system", Content: q.System}
	return append(Tokenize(system.text()), chatTokens(q.Messages)...)
}

// messages serves /v1/messages, Anthropic's form of a chat.
func (w *Worker) messages() http.HandlerFunc {
	return reading(w.say.refuseMessages, func(rw http.ResponseWriter, r *http.Request, q *messageRequest) {
		refuse := func(err error) { w.say.refuseMessages(rw, err) }
		for field, lacks := range map[string]bool{"max_tokens": q.MaxTokens == nil, "messages": q.Messages == nil} {
			if lacks {
				refuse(missing(field))
				return
			}
		}
		adapter, name, err := w.say.adapter(q.Model, "")
		if err == nil {
			err = w.admit(1)
		}
		if err != nil {
			refuse(err)
			return
		}
		m := &messageReply{w: w, id: newID(), model: name}
		orders := []order{{prompt: q.tokens(), adapter: adapter, budget: *q.MaxTokens}}
		w.serve(rw, r, orders, q.Stream, form{early: w.say.early(), refuse: refuse, broken: m.broken,
			event: m.appendEvents,
			end:   func(b []byte, _ []*job) []byte { return b }, whole: m.appendWhole})
	})
}

// messageReply is the reply to one request of /v1/messages.
type messageReply struct {
	w         *Worker
	id, model string
	begun     bool
}

// stop is the reason for the end of a message. Anthropic's interface has none for a request that was aborted.
func (m *messageReply) stop(j *job) any {
	switch j.finish() {
	case "stop":
		return "end_turn"
	case "abort":
		return nil
	}
	return "max_tokens"
}

func (m *messageReply) appendWhole(b []byte, jobs []*job) []byte {
	j := jobs[0]
	return appendJSON(b, m.w.say.message(object{"id": m.id, "type": "message", "role": "assistant", "model": m.model,
		"content":     []any{object{"type": "text", "text": Text(j.out)}},
		"stop_reason": m.stop(j), "usage": object{"input_tokens": j.prompt, "output_tokens": len(j.out)}}))
}

// named appends an event with its name, which its data repeats as type.
func named(b []byte, name string, data object) []byte {
	data["type"] = name
	b = append(append(append(b, "event: "...), name...), '\n')
	return appendEvent(b, data)
}

func (m *messageReply) appendEvents(b []byte, j *job, fresh []int32) []byte {
	if !m.begun {
		m.begun = true
		b = m.w.say.messageStart(b, m, j)
		b = named(b, "content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	}
	if len(fresh) > 0 {
		b = named(b, "content_block_delta",
			object{"index": 0, "delta": object{"type": "text_delta", "text": Text(fresh)}})
	}
	if j.ended() {
		b = named(b, "content_block_stop", object{"index": 0})
		b = m.w.say.messageDelta(b, m, j)
		b = named(b, "message_stop", object{})
	}
	return b
}

func (m *messageReply) broken(b []byte, err error) []byte {
	r := m.w.say.refusal(err)
	return named(b, "error", object{"error": object{"type": r.kind, "message": r.text}})
}

// countTokens serves /v1/messages/count_tokens.
func (w *Worker) countTokens() http.HandlerFunc {
	return reading(w.say.refuseMessages, func(rw http.ResponseWriter, r *http.Request, q *messageRequest) {
		writeJSON(rw, http.StatusOK, w.say.count(len(q.tokens())))
	})
}

// responseRequest is the body of /v1/responses.
type responseRequest struct {
	Model           string         `json:"model"`
	Input           jsontext.Value `json:"input"` // a text or a list of messages
	MaxOutputTokens *int           `json:"max_output_tokens"`
	Stream          bool           `json:"stream"`
}

// responses serves /v1/responses, OpenAI's newer form of a chat.
func (w *Worker) responses() http.HandlerFunc {
	return reading(w.say.refuseResponses, func(rw http.ResponseWriter, r *http.Request, q *responseRequest) {
		refuse := func(err error) { w.say.refuseResponses(rw, err) }
		if q.Input == nil {
			refuse(missing("input"))
			return
		}
		adapter, name, err := w.say.adapter(q.Model, "")
		if err == nil {
			err = w.say.checkResponses(q.Model, adapter)
		}
		if err == nil {
			err = w.admit(1)
		}
		if err != nil {
			refuse(err)
			return
		}
		if q.Stream && w.cfg.API == httpapi.SGLang {
			rw.Header().Set("Cache-Control", "no-cache")
			rw.Header()["Connection"] = []string{"keep-alive"}
		}
		var list []message
		json.Unmarshal(q.Input, &list)
		prompt := append(chatTokens(list), Tokenize((&message{Content: q.Input}).text())...)
		s := &responseReply{w: w, id: "resp_" + newID(), item: "msg_" + newID(), model: name,
			created: time.Now().Unix(), q: q}
		budget := *cmp.Or(q.MaxOutputTokens, new(max(1, w.context()-len(prompt))))
		w.serve(rw, r, []order{{prompt: prompt, adapter: adapter, budget: budget}}, q.Stream, form{early: w.say.early(),
			refuse: refuse, broken: w.say.broken, event: s.appendEvents,
			end:   func(b []byte, _ []*job) []byte { return w.say.responsesEnd(b) },
			whole: func(b []byte, jobs []*job) []byte { return appendJSON(b, s.body(jobs[0])) }})
	})
}

// responseReply is the reply to one request of /v1/responses.
type responseReply struct {
	w               *Worker
	id, item, model string
	created         int64
	q               *responseRequest
	events          int // sent so far
}

// body is the reply as of now; without a job, that before the first token.
func (s *responseReply) body(j *job) object {
	o := object{"id": s.id, "object": "response", "created_at": s.created, "model": s.model, "status": "in_progress",
		"output": []any{}, "usage": nil, "max_output_tokens": nil, "incomplete_details": nil}
	if s.q.MaxOutputTokens != nil {
		o["max_output_tokens"] = *s.q.MaxOutputTokens
	}
	if j != nil {
		o["output"] = s.output(j)
		if o["status"] = "completed"; j.finish() == "length" {
			o["status"], o["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
		}
		o["usage"] = s.w.say.responseUsage(j)
	}
	return s.w.say.response(o)
}

// output is the list of items. A reply without a token has an empty item, a stream none.
func (s *responseReply) output(j *job) []any {
	switch {
	case len(j.out) > 0:
		return []any{s.message(Text(j.out))}
	case s.q.Stream:
		return []any{}
	}
	item := s.message("")
	item["content"] = []any{}
	return []any{item}
}

// message is the item of the output.
func (s *responseReply) message(text string) object {
	return object{"id": s.item, "type": "message", "role": "assistant", "status": "completed",
		"phase": s.w.say.phase(), "content": []any{s.part(text)}}
}

func (s *responseReply) part(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": nil}
}

func (s *responseReply) named(b []byte, name string, data object) []byte {
	data["sequence_number"] = s.events
	s.events++
	return named(b, name, data)
}

func (s *responseReply) appendEvents(b []byte, j *job, fresh []int32) []byte {
	at := func(o object) object {
		o["item_id"], o["output_index"], o["content_index"] = s.item, 0, 0
		return o
	}
	if s.events == 0 {
		b = s.named(b, "response.created", object{"response": s.body(nil)})
		b = s.named(b, "response.in_progress", object{"response": s.body(nil)})
		if j.ended() && len(j.out) == 0 { // aborted
			return s.named(b, "response.completed", object{"response": s.body(j)})
		}
		begun := s.message("")
		begun["status"], begun["content"] = "in_progress", []any{}
		b = s.named(b, "response.output_item.added", object{"output_index": 0, "item": begun})
		part := s.part("")
		if s.w.cfg.API == httpapi.VLLM {
			part["logprobs"] = []any{}
		}
		b = s.named(b, "response.content_part.added", at(object{"part": part}))
	}
	b = s.named(b, "response.output_text.delta", at(object{"delta": Text(fresh), "logprobs": []any{}}))
	if j.ended() {
		text := Text(j.out)
		b = s.named(b, "response.output_text.done", at(object{"text": text, "logprobs": []any{}}))
		b = s.named(b, "response.content_part.done", at(object{"part": s.part(text)}))
		b = s.named(b, "response.output_item.done", object{"output_index": 0, "item": s.message(text)})
		whole, name := s.body(j), "response.completed"
		if s.w.cfg.API == httpapi.SGLang && whole["status"] == "incomplete" {
			name = "response.incomplete"
		}
		b = s.named(b, name, object{"response": whole})
	}
	return b
}

// tokenizeRequest is the body of /tokenize and /detokenize.
type tokenizeRequest struct {
	Model    string         `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages []message      `json:"messages"`
	Tokens   []int32        `json:"tokens"`
}

// tokenize serves /tokenize.
func (w *Worker) tokenize() http.HandlerFunc {
	return reading(w.say.badBody, func(rw http.ResponseWriter, r *http.Request, q *tokenizeRequest) {
		var text string
		ids := chatTokens(q.Messages)
		if q.Messages == nil {
			if err := json.Unmarshal(q.Prompt, &text); err != nil {
				w.say.badBody(rw, errBody{err, "prompt"})
				return
			}
			ids = Tokenize(text)
		}
		w.say.tokenized(rw, q, ids)
	})
}
