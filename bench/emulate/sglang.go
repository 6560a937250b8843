package emulate

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// generateRequest is the body of sglang's /generate.
type generateRequest struct {
	Text           *string         `json:"text"`
	InputIDs       []int32         `json:"input_ids"`
	SamplingParams *samplingParams `json:"sampling_params"`
	Stream         bool            `json:"stream"`
	LoraPath       *string         `json:"lora_path"`
	RID            string          `json:"rid"`
}

type samplingParams struct {
	MaxNewTokens *int `json:"max_new_tokens"`
	IgnoreEOS    bool `json:"ignore_eos"`
}

const defaultMaxNewTokens = 128 // sglang's

func (g *generateRequest) order() order {
	o := order{rid: g.RID, prompt: g.InputIDs, budget: defaultMaxNewTokens}
	if g.Text != nil {
		o.prompt = Tokenize(*g.Text)
	}
	if p := g.SamplingParams; p != nil {
		o.ignoreEOS = p.IgnoreEOS
		if p.MaxNewTokens != nil {
			o.budget = *p.MaxNewTokens
		}
	}
	if g.LoraPath != nil {
		o.adapter = *g.LoraPath
	}
	return o
}

// generate serves /generate. As in sglang, what is wrong with a request is told
// in the stream, with status 200, where the client asked for one.
func (w *Worker) generate(rw http.ResponseWriter, r *http.Request) {
	var g generateRequest
	if !readJSON(rw, r, &g) {
		return
	}
	o := g.order()
	if o.rid == "" {
		o.rid = fmt.Sprintf("emulated-%p", &g)
	}
	j, err := w.start(o)
	if err != nil {
		w.refuse(rw, g.Stream, err.Error())
		return
	}
	rid, err := json.Marshal(o.rid)
	if err != nil {
		panic(err) // a string
	}
	if g.Stream {
		var text strings.Builder // all of it is repeated in every event, unless StreamOutput
		j.sendEvents(rw, r, nil, func(b []byte, seen int) []byte {
			from := 0
			if w.cfg.StreamOutput {
				from = seen
				text.Reset()
			}
			text.WriteString(Text(j.out[seen:]))
			return append(appendGenerate(append(b, "data: "...), j, rid, text.String(), j.out[from:]), "\n\n"...)
		})
		return
	}
	if !j.whole(r.Context()) {
		return
	}
	if reason := j.failure(); reason != "" {
		badRequest(rw, reason)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Write(append(appendGenerate(nil, j, rid, Text(j.out), j.out), '\n'))
}

// refuse answers a request that never came to run.
func (w *Worker) refuse(rw http.ResponseWriter, stream bool, reason string) {
	if !stream {
		badRequest(rw, reason)
		return
	}
	events(rw)
	send(rw, errorEvent(reason), true)
}

// appendGenerate appends the JSON object of /generate as of now, with the given
// text, which is of a kind that needs no escaping, and token ids.
func appendGenerate(b []byte, j *job, rid []byte, text string, ids []int32) []byte {
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
	return fmt.Appendf(b, `], "meta_info": {"id": %s, "finish_reason": %s, "prompt_tokens": %d, "completion_tokens": %d, "cached_tokens": %d}}`,
		rid, reason, j.prompt, len(j.out), j.cached)
}

// abort serves /abort_request: every request whose rid begins with the given one.
func (w *Worker) abort(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		RID      string `json:"rid"`
		AbortAll bool   `json:"abort_all"`
	}
	if !readJSON(rw, r, &q) {
		return
	}
	if q.RID == "" && !q.AbortAll {
		badRequest(rw, "rid is missing")
		return
	}
	w.eng.cancel(func(s *stream) bool { return q.AbortAll || strings.HasPrefix(s.rid, q.RID) })
}

type loraRequest struct {
	Name   string `json:"lora_name"`
	Path   string `json:"lora_path"`
	Pinned bool   `json:"pinned"`
}

// lora serves a request about an adapter.
func lora(serve func(http.ResponseWriter, *loraRequest)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var q loraRequest
		if readJSON(rw, r, &q) {
			serve(rw, &q)
		}
	}
}

func (w *Worker) loadSGLang(rw http.ResponseWriter, q *loraRequest) {
	w.answerLora(rw, w.load(Adapter{Name: q.Name, Path: q.Path}, q.Pinned))
}

func (w *Worker) unloadSGLang(rw http.ResponseWriter, q *loraRequest) {
	w.answerLora(rw, w.unload(q.Name, true))
}

func (w *Worker) answerLora(rw http.ResponseWriter, err error) {
	status, text := http.StatusOK, ""
	if err != nil {
		status, text = http.StatusBadRequest, err.Error()
	}
	writeJSON(rw, status, object{"rid": nil, "success": err == nil, "error_message": text, "loaded_adapters": w.loadedAdapters()})
}

func (w *Worker) flushCache(rw http.ResponseWriter, _ *http.Request) {
	if n := w.Running(); n > 0 {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, "Cache not flushed: %d requests are in flight.\n", n)
		return
	}
	w.eng.do(w.eng.srv.FlushCache)
	fmt.Fprintln(rw, "Cache flushed.")
}
