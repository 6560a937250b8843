package requestlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// export is what an OpenTelemetry exporter writes as JSON (OTLP, opentelemetry/proto/trace/v1): the spans of
// several resources.
type export struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []otlpSpan `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type otlpSpan struct {
	Trace      string          `json:"traceId"`
	ID         string          `json:"spanId"`
	Parent     string          `json:"parentSpanId"`
	Name       string          `json:"name"`
	Start      json.RawMessage `json:"startTimeUnixNano"` // a number, by the specification as a string
	End        json.RawMessage `json:"endTimeUnixNano"`
	Attributes attributeList   `json:"attributes"`
	Status     struct {
		Code json.RawMessage `json:"code"` // 2 or STATUS_CODE_ERROR: failed
	} `json:"status"`
}

// attributeList are the attributes of a span as OTLP writes them.
type attributeList []struct {
	Key   string                     `json:"key"`
	Value map[string]json.RawMessage `json:"value"` // one member, such as intValue
}

// attributes of spans, and the columns that they become, of current and former versions of OpenTelemetry's semantic
// conventions for generative AI, and of OpenInference.
var attributes = map[string]string{
	"gen_ai.usage.input_tokens":      "prompt_tokens",
	"gen_ai.usage.prompt_tokens":     "prompt_tokens",
	"llm.usage.prompt_tokens":        "prompt_tokens",
	"llm.token_count.prompt":         "prompt_tokens",
	"gen_ai.usage.output_tokens":     "output_tokens",
	"gen_ai.usage.completion_tokens": "output_tokens",
	"llm.usage.completion_tokens":    "output_tokens",
	"llm.token_count.completion":     "output_tokens",
	"gen_ai.request.max_tokens":      "max_tokens",
	"gen_ai.request.model":           "model",
	"gen_ai.response.model":          "response.model",
	"llm.model_name":                 "model",
	"gen_ai.operation.name":          "operation",
	"error.type":                     "error.type",
	"http.response.status_code":      "http_status",
	"http.status_code":               "http_status",
}

// span is one span of a trace.
type span struct {
	row               // times, tokens, model, outcome
	trace, id, parent string
	children          []*span // nearest spans below with token counts
}

// counts reports whether the span states token counts.
func (s *span) counts() bool { return s.get("prompt_tokens") != "" || s.get("output_tokens") != "" }

func (s *span) set(name, value string) {
	if value != "" && s.get(name) == "" {
		s.names, s.values = append(s.names, name), append(s.values, value)
	}
}

// spanSet holds the spans of a log. They become rows when all are known.
type spanSet struct{ list []*span }

// export adds the spans of an OTLP export.
func (l *spanSet) export(text []byte, line int) error {
	var e export
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	for _, resource := range e.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for i := range scope.Spans {
				l.list = append(l.list, scope.Spans[i].span(line))
			}
		}
	}
	return nil
}

func (s *otlpSpan) span(line int) *span {
	out := &span{row: row{line: line}, trace: s.Trace, id: s.ID, parent: s.Parent}
	out.set("startTimeUnixNano", scalar(s.Start))
	out.set("endTimeUnixNano", scalar(s.End))
	out.attributes(s.Attributes)
	out.status(scalar(s.Status.Code))
	return out
}

func (s *span) attributes(list attributeList) {
	for _, a := range list {
		if name := attributes[a.Key]; name != "" {
			for _, v := range a.Value {
				s.set(name, scalar(v))
			}
		}
	}
}

// status enters the status code of a span.
func (s *span) status(code string) {
	switch strings.ToUpper(strings.TrimPrefix(code, "StatusCode.")) {
	case "2", "STATUS_CODE_ERROR", "ERROR":
		s.set("status", "error")
	default:
		s.set("status", "ok")
	}
}

// isSpan reports whether a row is a span that was written as one JSON object, as OpenTelemetry's console exporters
// and OpenInference do.
func isSpan(r row, text []byte) bool {
	has := func(end string) bool {
		return slices.ContainsFunc(r.names, func(n string) bool { return strings.HasSuffix(plainName(n), end) })
	}
	return has("spanid") && has("traceid") && (bytes.Contains(text, []byte(`"attributes"`)) ||
		bytes.Contains(text, []byte(`"gen_ai.`)))
}

// plainName is a name in lower case without underscores.
func plainName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// flat adds a span that is one JSON object.
func (l *spanSet) flat(r row, text []byte) error {
	s := &span{row: row{line: r.line}}
	code := ""
	for i, name := range r.names {
		v := r.values[i]
		last := name[strings.LastIndexByte(name, '.')+1:]
		switch plainName(last) {
		case "traceid":
			s.trace = cmp.Or(s.trace, v)
		case "spanid":
			s.id = cmp.Or(s.id, v)
		case "parentid", "parentspanid":
			s.parent = cmp.Or(s.parent, v)
		case "starttime", "starttimeunixnano", "starttimestamp", "timestamp", "start":
			s.set(last, v)
		case "endtime", "endtimeunixnano", "endtimestamp", "end":
			s.set(last, v)
		}
		switch plainName(name) {
		case "status.code", "status.statuscode", "status", "statuscode":
			code = cmp.Or(code, v)
		}
		if known := attributes[strings.TrimPrefix(name, "attributes.")]; known != "" {
			s.set(known, v)
		}
	}
	var listed struct {
		Attributes attributeList `json:"attributes"`
	}
	if json.Unmarshal(text, &listed) == nil {
		s.attributes(listed.Attributes)
	}
	s.status(code)
	l.list = append(l.list, s)
	return nil
}

// visit visits the calls of models as rows. A span whose calls are spans below it is no call itself:
//   - the span of an agent states the sum of the tokens of its calls,
//   - the span of a client states the tokens of the server's span below it.
func (l *spanSet) visit(visit func(row) error, report *Report) error {
	l.link()
	sums, twins := 0, 0
	for _, s := range l.list {
		if !s.counts() {
			continue // not of a call of a model
		}
		switch s.repeats() {
		case aSum:
			sums++
			continue
		case aTwin:
			twins++
			s.children[0].inherit(s)
			continue
		}
		s.set("model", s.get("response.model"))
		if err := visit(s.row); err != nil {
			return err
		}
	}
	if sums > 0 {
		report.note("%d spans are not counted: they state the sums of the calls below them (agents, workflows)", sums)
	}
	if twins > 0 {
		report.note("%d spans are not counted: they are the client's side of a call whose server's side is there too",
			twins)
	}
	return nil
}

// link finds the spans with token counts below each span, and leaves out spans that were exported twice. Parents come
// before their children.
func (l *spanSet) link() {
	type key struct{ trace, id string }
	known := map[key]*span{}
	l.list = slices.DeleteFunc(l.list, func(s *span) bool {
		k := key{s.trace, s.id}
		if s.id == "" || known[k] == nil {
			known[k] = s
			return false
		}
		return true
	})
	depth := map[*span]int{}
	for _, s := range l.list {
		linked := false
		for p := s; p.parent != "" && depth[s] < deepestSpan; depth[s]++ {
			if p = known[key{p.trace, p.parent}]; p == nil || p == s {
				break
			}
			if !linked && p.counts() && s.counts() {
				p.children, linked = append(p.children, s), true
			}
		}
	}
	slices.SortStableFunc(l.list, func(a, b *span) int { return cmp.Compare(depth[a], depth[b]) })
}

// deepestSpan bounds how many spans above a span are looked at.
const deepestSpan = 64

// What a span with spans below it is.
const (
	aCall = iota
	aSum
	aTwin
)

// repeats tells whether a span states the tokens of the spans below it.
func (s *span) repeats() int {
	if len(s.children) == 0 {
		return aCall
	}
	of := func(r *span, name string) (n float64) { fmt.Sscan(r.get(name), &n); return n }
	prompt, output := 0.0, 0.0
	for _, c := range s.children {
		prompt, output = prompt+of(c, "prompt_tokens"), output+of(c, "output_tokens")
	}
	switch {
	case len(s.children) == 1 && prompt == of(s, "prompt_tokens") && output == of(s, "output_tokens"):
		return aTwin
	case slices.Contains([]string{"chat", "text_completion", "generate_content"}, s.get("operation")) &&
		prompt != of(s, "prompt_tokens"):
		return aCall // a call that runs another one, as a tool
	}
	return aSum
}

// inherit enters what the client's side of a call states and the server's does not.
func (s *span) inherit(client *span) {
	for i, name := range client.names {
		s.set(name, client.values[i])
	}
	if client.get("status") == "error" {
		s.set("error", "the client's span failed")
	}
}

// scalar is a JSON string or number as text.
func scalar(raw json.RawMessage) string {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return string(raw)
	case bool:
		return fmt.Sprint(v)
	}
	return ""
}
