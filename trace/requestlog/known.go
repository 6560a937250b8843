package requestlog

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"lorasim/internal/textfile"
	"lorasim/trace/requestlog/evidence"
)

// inferencePerf is the format of inference-perf's file of requests.
const inferencePerf = "requests of inference-perf"

// gatewayLog is the format of the gateway's access log.
const gatewayLog = "access log of lorasim gateway"

// known renames the values of a row of programs whose logs hold more than plain columns. keep is true if the row is
// a request.
func (b *builder) known(r row, text []byte) (_ row, keep bool) {
	switch {
	case r.get("msg") != "" && r.get("level") != "" &&
		(isAccess(r) || isGateways(r.get("msg")) || b.report.Format == gatewayLog):
		b.report.Format = gatewayLog
		return b.access(r)
	case r.get("start_time") != "" && bytes.Contains(text, []byte(`"info"`)) && r.get("request") != "":
		b.report.Format = inferencePerf
		b.unit = evidence.Seconds
		return perfRow(r), true
	case r.get("timestamp") != "" && bytes.Contains(text, []byte(`"hash_ids"`)):
		b.blocks = true
		b.report.note("hash_ids: import does not read the blocks of the prompts; to keep shared prefixes: " +
			"lorasim trace workload --trace-name mooncake (or qwen_bailian)")
	}
	return r, true
}

// isAccess reports whether a row is a request in the access log of lorasim gateway.
func isAccess(r row) bool {
	return r.get("msg") == "request" && r.get("path") != "" && r.get("duration_s") != ""
}

// isGateways reports whether a message of the gateway's log is not about a request.
func isGateways(msg string) bool { return msg == "plan" || msg == "race" }

// access makes a row of a line of the gateway's access log, which is written when a request ends. Lines without an
// adapter are of requests that reached no model.
func (b *builder) access(r row) (row, bool) {
	if !isAccess(r) || r.get("adapter") == "" {
		return r, false
	}
	out := row{line: r.line}
	set := func(name, value string) { out.names, out.values = append(out.names, name), append(out.values, value) }
	end, err := time.Parse(time.RFC3339Nano, r.get("time"))
	took, err2 := strconv.ParseFloat(r.get("duration_s"), 64)
	if err == nil && err2 == nil {
		set("arrival", end.Add(-time.Duration(took*1e9)).UTC().Format(time.RFC3339Nano))
	}
	for _, name := range []string{"adapter", "prompt_tokens", "status", "max_tokens"} {
		set(name, r.get(name))
	}
	output := r.get("output_tokens")
	if output == "" {
		output = r.get("events")
		b.report.note("where the log states no output tokens, each event of the reply counts as one: " +
			"a reply that is not streamed counts as one token")
	}
	set("output_tokens", output)
	if r.get("broken_off") == "true" {
		set("error", "broken off")
	}
	return out, true
}

// isAccessLog reports whether a text is a log of the gateway without --access-log.
func isAccessLog(head []byte) bool {
	for line := range bytes.Lines(head) {
		if bytes.HasPrefix(line, []byte("time=")) && bytes.Contains(line, []byte(" msg=request ")) {
			return true
		}
	}
	return false
}

// scanAccessLog reads the gateway's log as text (the form of log/slog's TextHandler: name=value, quoted where needed).
func (b *builder) scanAccessLog(in *bufio.Reader, visit func(row) error) error {
	b.report.Format = gatewayLog
	lines := bufio.NewScanner(io.Reader(in))
	lines.Buffer(nil, textfile.MaxLine)
	for line := 1; lines.Scan(); line++ {
		text := lines.Text()
		if !strings.HasPrefix(text, "time=") {
			continue // another message on the same terminal
		}
		r := row{line: line}
		for text != "" {
			var name, value string
			if name, value, text = pair(text); name != "" {
				r.names, r.values = append(r.names, name), append(r.values, value)
			}
		}
		r, keep := b.access(r)
		if !keep {
			continue
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// pair takes name=value off a text.
func pair(text string) (name, value, rest string) {
	text = strings.TrimLeft(text, " ")
	name, text, ok := strings.Cut(text, "=")
	if !ok {
		return "", "", ""
	}
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		value, _ = strconv.Unquote(quoted)
		return name, value, text[len(quoted):]
	}
	value, rest, _ = strings.Cut(text, " ")
	return name, value, rest
}

// perfRow makes a row of a request of inference-perf (per_request_lifecycle_metrics.json, 0.1 to 0.7). Token counts
// of the server take precedence.
func perfRow(r row) row {
	var body struct {
		Model     string `json:"model"`
		MaxTokens int32  `json:"max_tokens"`
	}
	json.Unmarshal([]byte(r.get("request")), &body) // the body that was sent, where it is text
	const usage = "info.response_metrics.server_usage."
	out := row{line: r.line, names: []string{"start_time", "adapter", "prompt_tokens", "output_tokens", "error"}}
	out.values = []string{
		r.get("start_time"), cmp.Or(r.get("info.lora_adapter"), body.Model),
		cmp.Or(r.get(usage+"prompt_tokens"), r.get("info.request_metrics.text.input_tokens"),
			r.get("info.input_tokens")),
		cmp.Or(r.get(usage+"completion_tokens"), r.get("info.response_metrics.output_tokens"),
			r.get("info.output_tokens")),
		cmp.Or(r.get("error.error_type"), r.get("error.error_msg")),
	}
	if body.MaxTokens > 0 {
		out.names, out.values = append(out.names, "max_tokens"), append(out.values, strconv.Itoa(int(body.MaxTokens)))
	}
	return out
}
