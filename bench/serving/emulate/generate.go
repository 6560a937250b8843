package emulate

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// generateRequest is the body of sglang's /generate.
type generateRequest struct {
	Text           jsontext.Value `json:"text"`      // a text or a list of texts
	InputIDs       jsontext.Value `json:"input_ids"` // a list of ids or a list of lists
	SamplingParams struct {
		MaxNewTokens *int     `json:"max_new_tokens"`
		IgnoreEOS    bool     `json:"ignore_eos"`
		Temperature  *float64 `json:"temperature"`
		TopP         *float64 `json:"top_p"`
		N            *int     `json:"n"`
	} `json:"sampling_params"`
	Stream        bool   `json:"stream"`
	LoraPath      string `json:"lora_path"`
	RID           string `json:"rid"`
	ReturnLogprob bool   `json:"return_logprob"`
}

const defaultMaxNewTokens = 128 // sglang's

// generated is the answer to a request of /generate.
type generated struct {
	w     *Worker
	g     *generateRequest
	many  bool              // a list is asked for
	texts []strings.Builder // of the jobs; all of it is repeated in every event, unless StreamOutput
	rids  [][]byte
	begun []bool // jobs of which something has been sent
}

// generate serves /generate. Like sglang, it sends the header of a stream at once, and reports all errors in the
// stream.
func (w *Worker) generate(rw http.ResponseWriter, r *http.Request, g *generateRequest) {
	a := &generated{w: w, g: g}
	s := sglang{w}
	f := form{early: true, broken: s.brokenGenerate, event: a.appendEvent, whole: a.appendWhole,
		refuse: func(err error) {
			if g.Stream {
				events(rw)
				send(rw, s.brokenGenerate(nil, err), true)
				return
			}
			s.refuseGenerate(rw, err)
		},
		end: func(b []byte, _ []*job) []byte { return append(b, done...) },
	}
	orders, err := a.orders()
	if err != nil {
		f.refuse(err)
		return
	}
	w.serve(rw, r, orders, g.Stream, f)
}

// orders turns a request into orders.
func (a *generated) orders() ([]order, error) {
	g := a.g
	prompts, err := a.prompts()
	if err != nil {
		return nil, err
	}
	adapter := g.LoraPath
	if _, ok := a.w.lookup(adapter); !ok && adapter != "" {
		return nil, errUnknownAdapter{adapter}
	}
	if err := (sglang{a.w}).sampling(g.SamplingParams.Temperature, g.SamplingParams.TopP); err != nil {
		return nil, err
	}
	n := *cmp.Or(g.SamplingParams.N, new(1))
	a.many = a.many || n > 1
	var orders []order
	for _, p := range prompts {
		for range n {
			o := order{rid: g.RID, prompt: p, adapter: adapter, ignoreEOS: g.SamplingParams.IgnoreEOS,
				budget: *cmp.Or(g.SamplingParams.MaxNewTokens, new(defaultMaxNewTokens))}
			if o.rid == "" {
				o.rid = newID()
			}
			orders = append(orders, o)
			a.rids = append(a.rids, appendJSON(nil, o.rid))
		}
	}
	a.texts, a.begun = make([]strings.Builder, len(orders)), make([]bool, len(orders))
	return orders, nil
}

func (a *generated) prompts() ([][]int32, error) {
	var text string
	var texts []string
	var ids []int32
	var lists [][]int32
	given := func(v jsontext.Value) bool { return v.Kind() != 0 && v.Kind() != 'n' }
	t, i := given(a.g.Text), given(a.g.InputIDs)
	switch {
	case !t && !i:
		return nil, errValue{"", "Either text, input_ids or input_embeds should be provided."}
	case t && json.Unmarshal(a.g.Text, &text) == nil:
		return [][]int32{Tokenize(text)}, nil
	case t && json.Unmarshal(a.g.Text, &texts) == nil:
		for _, t := range texts {
			lists = append(lists, Tokenize(t))
		}
	case i && json.Unmarshal(a.g.InputIDs, &ids) == nil:
		return [][]int32{ids}, nil
	case i && json.Unmarshal(a.g.InputIDs, &lists) == nil:
	default:
		return nil, errBody{error: errors.New("expected a text, token ids, or a list of either")}
	}
	a.many = true
	return lists, nil
}

func (a *generated) appendEvent(b []byte, j *job, fresh []int32) []byte {
	ids, text := j.out, &a.texts[j.index]
	if a.w.cfg.StreamOutput {
		ids = fresh
		text.Reset()
	}
	text.WriteString(Text(fresh))
	return append(a.append(append(b, "data: "...), j, text.String(), ids), "\n\n"...)
}

func (a *generated) appendWhole(b []byte, jobs []*job) []byte {
	if !a.many {
		return a.append(b, jobs[0], Text(jobs[0].out), jobs[0].out)
	}
	b = append(b, '[')
	for i, j := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.append(b, j, Text(j.out), j.out)
	}
	return append(b, ']')
}

// append appends the JSON object of a job as of now, with the given text, which is of a kind that needs no escaping,
// and token ids.
func (a *generated) append(b []byte, j *job, text string, ids []int32) []byte {
	b = append(append(append(b, `{"text": "`...), text...), `", "output_ids": [`...)
	for i, t := range ids {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(t), 10)
	}
	reason := "null"
	switch {
	case !j.ended():
	case j.finish() == "length":
		reason = fmt.Sprintf(`{"type": "length", "length": %d}`, len(j.out))
	case j.finish() == "stop":
		reason = fmt.Sprintf(`{"type": "stop", "matched": %d}`, EOS)
	default:
		reason = `{"type": "abort", "message": "Aborted"}`
	}
	b = fmt.Appendf(b,
		`], "meta_info": {"id": %s, "finish_reason": %s, "prompt_tokens": %d, "completion_tokens": %d, "cached_tokens": %d`,
		a.rids[j.index], reason, j.prompt, len(j.out), j.cached)
	if a.g.ReturnLogprob {
		b = a.appendLogprobs(b, ids)
	}
	b = append(b, unmeasured...)
	first := !a.begun[j.index]
	if a.begun[j.index] = true; first || j.ended() {
		b = append(b, sent...)
	}
	if j.ended() {
		b = fmt.Appendf(b, unmeasuredAtEnd, len(j.out))
	}
	return append(b, "}}"...)
}

// What /generate tells beside the tokens: times that the emulated worker does not measure.
const (
	unmeasured = `, "weight_version": "default", "num_retractions": 0, "storage_prefetch_wait": 0.0, "storage_staging_wait": 0.0` +
		`, "forward_entry_time": 0.0, "prefill_finished_time": 0.0, "queue_time": 0.0, "reasoning_tokens": 0` +
		`, "cached_tokens_details": {"device": 0, "host": 0}, "dp_rank": null`
	sent            = `, "response_sent_to_client_ts": 0.0`
	unmeasuredAtEnd = `, "weight_versions": [{"version": "default", "start": 0, "end": %d}], "e2e_latency": 0.0` +
		`, "request_received_ts": 0.0, "first_token_latency": 0.0, "api_server_dispatch_finish_ts": 0.0` +
		`, "request_finished_ts": 0.0, "decode_throughput": 0.0`
)

// appendLogprobs appends the logarithms of tokens: each with the token's id, and no text.
func (a *generated) appendLogprobs(b []byte, ids []int32) []byte {
	b = append(b, `, "input_token_logprobs": [], "output_token_logprobs": [`...)
	for i, t := range ids {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = fmt.Appendf(b, "[%v, %d, null]", logprob, t)
	}
	return fmt.Appendf(b, `], "output_token_logprobs_length": %d`, len(ids))
}

// badGenerate answers a body of /generate that cannot be read. Fields of other types are checked apart.
func (s sglang) badGenerate(rw http.ResponseWriter, err error) {
	if e, ok := errors.AsType[errBody](err); ok {
		if _, field := errors.AsType[*json.SemanticError](e.error); field {
			writeJSON(rw, http.StatusBadRequest, object{"error": e.Error()})
			return
		}
	}
	s.badBody(rw, err)
}

// refuseGenerate answers a request of /generate that is not streamed.
func (s sglang) refuseGenerate(rw http.ResponseWriter, err error) {
	r := s.refusal(err)
	if r.status != http.StatusBadRequest {
		s.refuse(rw, err)
		return
	}
	writeJSON(rw, r.status, object{"error": object{"message": r.text}})
}

// brokenGenerate is the event of an error in a stream of /generate.
func (s sglang) brokenGenerate(b []byte, err error) []byte {
	r := s.refusal(err)
	if r.status == http.StatusServiceUnavailable { // from the scheduler
		return append(appendEvent(b, object{"text": "", "output_ids": []any{}, "meta_info": object{"id": newID(),
			"finish_reason":  object{"type": "abort", "status_code": r.status, "message": r.text},
			"weight_version": "default", "weight_versions": []any{object{"version": "default", "start": 0, "end": 0}},
			"e2e_latency": 0.0, "completion_tokens": 0, "response_sent_to_client_ts": 0.0}}), done...)
	}
	return append(appendEvent(b, object{"error": object{"message": r.text, "type": "invalid_request_error",
		"code": r.status, "retryable": false}}), done...)
}

type abortRequest struct {
	RID      string `json:"rid"`
	AbortAll bool   `json:"abort_all"`
}

// abort serves /abort_request: every request whose rid begins with the given one.
func (w *Worker) abort(rw http.ResponseWriter, _ *http.Request, q *abortRequest) {
	w.eng.cancel(func(s *stream) bool { return q.AbortAll || q.RID != "" && strings.HasPrefix(s.rid, q.RID) })
}

func (w *Worker) flushCache(rw http.ResponseWriter, _ *http.Request) {
	rw.Header()["Content-Type"] = nil // it has none
	if n := w.Running(); n > 0 {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, "Cache not flushed: %d requests are in flight.\n", n)
		return
	}
	w.eng.do(w.eng.srv.FlushCache)
	writeBody(rw, []byte("Cache flushed.\nPlease check backend logs for more details. "+
		"(When there are running or waiting requests, the operation will not be performed.)\n"))
}
