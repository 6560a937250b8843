package requestlog

import (
	"encoding/json"
	"fmt"
)

// export is what an OpenTelemetry exporter writes as JSON (OTLP, opentelemetry/proto/trace/v1): the spans of
// several resources.
type export struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []span `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type span struct {
	Start      json.RawMessage `json:"startTimeUnixNano"` // a number, by the specification as a string
	Attributes []struct {
		Key   string                     `json:"key"`
		Value map[string]json.RawMessage `json:"value"` // one member, such as intValue
	} `json:"attributes"`
	Status struct {
		Code json.RawMessage `json:"code"` // 2 or STATUS_CODE_ERROR: failed
	} `json:"status"`
}

// scanSpans visits as rows the spans that hold token counts (gen_ai.usage.*). It reads current and former versions
// of OpenTelemetry's semantic conventions for generative AI.
func scanSpans(text []byte, line int, visit func(row) error) (rows int, err error) {
	var e export
	if err := json.Unmarshal(text, &e); err != nil {
		return 0, err
	}
	for _, resource := range e.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for i := range scope.Spans {
				r := scope.Spans[i].row(line)
				if r.get("output_tokens") == "" && r.get("prompt_tokens") == "" {
					continue // not of a call of a model
				}
				rows++
				if err := visit(r); err != nil {
					return rows, err
				}
			}
		}
	}
	return rows, nil
}

// attributes of spans, and the columns that they become.
var attributes = map[string]string{
	"gen_ai.usage.input_tokens":      "prompt_tokens",
	"gen_ai.usage.prompt_tokens":     "prompt_tokens",
	"llm.usage.prompt_tokens":        "prompt_tokens",
	"gen_ai.usage.output_tokens":     "output_tokens",
	"gen_ai.usage.completion_tokens": "output_tokens",
	"llm.usage.completion_tokens":    "output_tokens",
	"gen_ai.request.max_tokens":      "max_tokens",
	"gen_ai.request.model":           "model",
	"gen_ai.response.model":          "response.model",
}

func (s *span) row(line int) row {
	r := row{line: line}
	set := func(name, value string) {
		if value != "" && r.get(name) == "" {
			r.names, r.values = append(r.names, name), append(r.values, value)
		}
	}
	set("startTimeUnixNano", scalar(s.Start))
	for _, a := range s.Attributes {
		if name := attributes[a.Key]; name != "" {
			for _, v := range a.Value {
				set(name, scalar(v))
			}
		}
	}
	if code := scalar(s.Status.Code); code == "2" || code == "STATUS_CODE_ERROR" {
		set("status", "error")
	} else {
		set("status", "ok")
	}
	if r.get("model") == "" {
		set("model", r.get("response.model"))
	}
	return r
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
