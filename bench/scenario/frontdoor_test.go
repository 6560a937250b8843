package scenario

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog"
)

// truth is a request of the workload that the logs of this file hold.
type truth struct {
	at             time.Time
	took           time.Duration
	adapter        string // "": the base model
	prompt, output int
	failed         bool
}

// pen writes a known workload as a log. Its choices are drawn: layout, spelling of times, units, outcomes, gaps.
type pen struct {
	*rand.Rand
	rows  []truth
	story []string // the choices, for messages
}

func newPen(seed uint64) *pen {
	p := &pen{Rand: rand.New(rand.NewPCG(seed, 41))}
	names := [][]string{{"sql", "chat", "42"}, {"7", "12", "3"}, {"support-bot"}, {"a", "b", "", "c d"}}[p.IntN(4)]
	at := time.Date(2024, 5, 16, 9, 0, 0, 0, time.UTC).Add(time.Duration(p.IntN(86400)) * time.Second)
	rate := []float64{0.05, 0.5, 8}[p.IntN(3)]
	for range 8 + p.IntN(60) {
		r := truth{at: at, adapter: names[p.IntN(len(names))], prompt: 1 + p.IntN(3000), output: 1 + p.IntN(400)}
		r.took = time.Duration(float64(r.output)*(5+30*p.Float64())+50) * time.Millisecond
		p.rows = append(p.rows, r)
		at = at.Add(time.Duration(p.ExpFloat64()/rate*1000) * time.Millisecond)
		if p.IntN(40) == 0 {
			at = at.Add(10 * time.Minute) // a gap
		}
	}
	if last := &p.rows[len(p.rows)-1]; last.at.Sub(p.rows[0].at) < 2*time.Second {
		last.at = last.at.Add(2 * time.Second) // a log of less could be of any unit
	}
	for i := range p.rows {
		p.rows[i].failed = i > 2 && p.IntN(8) == 0
	}
	return p
}

// pick draws one of several texts, and remembers it.
func (p *pen) pick(list ...string) string {
	s := list[p.IntN(len(list))]
	p.story = append(p.story, s)
	return s
}

// cell is a value of a row, under the name of its column.
type cell struct{ name, value string }

// timeCells returns how times are written: the name of the column, and its values.
func (p *pen) times() (name string, write func(time.Time) string) {
	origin := p.rows[0].at
	generic := p.pick("timestamp", "time", "ts", "created_at", "start_time", "arrival", "Timestamp", "@timestamp",
		"request_time", "startTime")
	switch kind := p.pick("date", "epoch", "offset", "named"); kind {
	case "date":
		layout := p.pick(time.RFC3339Nano, "2006-01-02T15:04:05.000Z07:00", "2006-01-02 15:04:05.000",
			"2006/01/02 15:04:05.000",
			"02/Jan/2006:15:04:05.000 -0700", "2006-01-02 15:04:05,000", "20060102T150405.000Z",
			"02.01.2006 15:04:05.000",
			"01/02/2006 03:04:05.000 PM", "2006-01-02 15:04:05.000 MST", "2006-01-02T15:04:05.000-0700")
		zone := time.UTC
		if strings.Contains(layout, "-0700") {
			zone = time.FixedZone("", 2*3600)
		}
		return generic, func(t time.Time) string { return t.In(zone).Format(layout) }
	case "epoch":
		unit := p.pick("s", "ms", "us", "ns", "s.")
		return generic, func(t time.Time) string {
			switch unit {
			case "ms":
				return strconv.FormatInt(t.UnixMilli(), 10)
			case "us":
				return strconv.FormatInt(t.UnixMicro(), 10)
			case "ns":
				return strconv.FormatInt(t.UnixNano(), 10)
			}
			return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
		}
	case "offset": // no unit: seconds or ms
		unit := p.pick("s", "ms")
		return generic, func(t time.Time) string {
			if unit == "ms" {
				return strconv.FormatInt(t.Sub(origin).Milliseconds(), 10)
			}
			return strconv.FormatFloat(t.Sub(origin).Seconds(), 'f', 3, 64)
		}
	}
	units := map[string]time.Duration{"ms": time.Millisecond, "us": time.Microsecond, "ns": 1, "s": time.Second,
		"min": time.Minute, "h": time.Hour}
	spelled := map[string][]string{
		"ms": {"timestampMs", "ts_msec", "timestamp [ms]", "arrival_ms", "time (ms)", "startTimeMillis", "timestampms",
			"created_at_milliseconds", "TimeMS"},
		"us":  {"arrival_time_us", "ts_usec", "time [µs]", "startMicros", "timestamp_microseconds"},
		"ns":  {"startTimeUnixNano", "arrival_ns", "timestamp (ns)", "time_nanos", "tsNsec"},
		"s":   {"arrival_s", "time (seconds)", "timestampSec", "ts_secs", "start [s]"},
		"min": {"arrival_time (minutes)", "time_min", "timestamp [min]", "startMinutes"},
		"h":   {"arrival (hours)", "time_h", "timestampHours"},
	}
	unit := p.pick("ms", "us", "ns", "s", "min", "h")
	return p.pick(spelled[unit]...), func(t time.Time) string {
		return strconv.FormatFloat(float64(t.Sub(origin))/float64(units[unit]), 'f', -1, 64)
	}
}

// outcome returns the cells that tell whether a row failed.
func (p *pen) outcome() func(r truth) []cell {
	of := func(name, good, bad string) func(truth) []cell {
		return func(r truth) []cell {
			if r.failed {
				return []cell{{name, bad}}
			}
			return []cell{{name, good}}
		}
	}
	bads := []string{"500", "503", "429", "HTTP 500", "HTTP/1.1 503 Service Unavailable", "499.0", "error",
		"ERROR: timeout",
		"exception", "failed", "fail", "incomplete", "Timeout", "cancelled", "aborted", "rejected", "no",
		"DEADLINE_EXCEEDED",
		"502 Bad Gateway", "unavailable", "FAILURE", "timed out"}
	goods := []string{"200", "200 OK", "ok", "OK", "success", "200.0", "HTTP 200", "completed", "SUCCEEDED",
		"finished", "yes"}
	messages := []string{"timeout", "Bad Gateway", "connection reset by peer", "CUDA out of memory", "{'code': 500}",
		"1", "429"}
	nothing := []string{"", "null", "None", "{}", "[]", "N/A", "0.0", "0", "-", "no error", "false", "nan"}
	switch p.pick("status", "success", "error", "error_code", "cancelled") {
	case "status":
		return of(p.pick("status", "status_code", "http_status", "response_code", "Status", "responseCode"),
			p.pick(goods...),
			p.pick(bads...))
	case "success":
		two := [][2]string{{"1", "0"}, {"true", "false"}, {"True", "False"}, {"yes", "no"}, {"Y", "N"}, {"1.0",
			"0.0"}}[p.IntN(6)]
		return of(p.pick("success", "ok", "is_success", "succeeded", "Success"), two[0], two[1])
	case "error":
		return of(p.pick("error", "error_message", "exception", "error_msg", "errorMessage", "failure_reason"),
			p.pick(nothing...), p.pick(messages...))
	case "error_code":
		return of(p.pick("error_code", "errorCode"), p.pick("200", "0", ""), p.pick("429", "500", "-1"))
	}
	return of(p.pick("cancelled", "failed", "is_error", "timed_out", "was_cancelled"), p.pick("false", "0", "False"),
		p.pick("true", "1", "True"))
}

// table makes the rows of a plain log: cells in the order of the columns. Some rows are no requests: they have no
// output.
func (p *pen) table() (rows [][]cell) {
	timeName, at := p.times()
	outcome := p.outcome()
	adapter := p.pick("adapter", "lora", "lora_name", "model", "adapter_name", "deployment", "tenant", "LoRA Adapter")
	prompt := p.pick("prompt_tokens", "input_tokens", "input_len", "isl", "ContextTokens", "num_prompt_tokens")
	output := p.pick("output_tokens", "completion_tokens", "output_len", "osl", "GeneratedTokens", "generated_tokens")
	base := p.pick("", "-", "none", "base")
	noise := p.pick("none", "ttft", "latency")
	total := p.IntN(4) == 0
	for _, r := range p.rows {
		name := r.adapter
		if name == "" {
			name = base
		}
		row := append([]cell{{timeName, at(r.at)}, {adapter, name}, {prompt, strconv.Itoa(r.prompt)}}, outcome(r)...)
		if total {
			row = append(row, cell{"total_tokens", strconv.Itoa(r.prompt + r.output)})
		} else {
			row = append(row, cell{output, strconv.Itoa(r.output)})
		}
		if noise != "none" {
			row = append(row, cell{noise, fmt.Sprintf("%.3f", r.took.Seconds())})
		}
		rows = append(rows, row)
		if !total && p.IntN(20) == 0 {
			zero := slices.Clone(row)
			zero[slices.IndexFunc(zero, func(c cell) bool { return c.name == output })].value = "0"
			rows = append(rows, zero)
		}
	}
	switch p.pick("sorted", "sorted", "reversed", "nearly sorted") {
	case "reversed":
		slices.Reverse(rows)
	case "nearly sorted":
		for i := range len(rows) / 2 {
			if p.IntN(3) == 0 {
				rows[2*i], rows[2*i+1] = rows[2*i+1], rows[2*i]
			}
		}
	}
	return rows
}

// text writes a table as text.
func (p *pen) text(rows [][]cell, separator string) string {
	var b strings.Builder
	write := func(of func(cell) string) func([]cell) {
		return func(row []cell) {
			for i, c := range row {
				v := of(c)
				if strings.ContainsAny(v, ",;|\"\t") {
					v = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
				}
				if i > 0 {
					b.WriteString(separator)
				}
				b.WriteString(v)
			}
			b.WriteByte('\n')
		}
	}
	write(func(c cell) string { return c.name })(rows[0])
	for _, r := range rows {
		write(func(c cell) string { return c.value })(r)
	}
	return b.String()
}

// object writes a row as a JSON object. Numbers and booleans lose their quotes where JSON has them.
func object(row []cell, nested, nan bool) string {
	var parts, usage []string
	for _, c := range row {
		v := c.value
		_, err := strconv.ParseFloat(v, 64)
		switch {
		case v == "None" || v == "null":
			v = "null"
		case v == "{}" || v == "[]" || v == "true" || v == "false" || err == nil && v != "nan" &&
			!strings.HasPrefix(c.name, "adapter"):
		case v == "nan":
			v = "NaN"
		default:
			quoted, _ := json.Marshal(v)
			v = string(quoted)
		}
		part := fmt.Sprintf("%q: %s", c.name, v)
		if nested && strings.HasSuffix(c.name, "_tokens") {
			usage = append(usage, part)
		} else {
			parts = append(parts, part)
		}
	}
	if usage != nil {
		parts = append(parts, `"usage": {`+strings.Join(usage, ", ")+"}")
	}
	if nan {
		parts = append(parts, `"queue_time": NaN, "score": -Infinity`)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func utf16Text(text string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune("\uFEFF" + text)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// layouts are all ways to write the log: first those of plain tables, then those of known programs.
var layouts = map[string]func(p *pen) string{
	"csv":        func(p *pen) string { return p.text(p.table(), ",") },
	"semicolon":  func(p *pen) string { return p.text(p.table(), ";") },
	"tab":        func(p *pen) string { return p.text(p.table(), "\t") },
	"pipe":       func(p *pen) string { return p.text(p.table(), "|") },
	"spaced csv": func(p *pen) string { return p.text(p.table(), ", ") },
	"excel":      func(p *pen) string { return "sep=;\r\n" + strings.ReplaceAll(p.text(p.table(), ";"), "\n", "\r\n") },
	"utf-16":     func(p *pen) string { return utf16Text(p.text(p.table(), ",")) },
	"bom":        func(p *pen) string { return "\xef\xbb\xbf" + p.text(p.table(), ",") },
	"gzip":       func(p *pen) string { return gzipped(p.text(p.table(), ",")) },
	"comments":   func(p *pen) string { return "# exported\n" + p.text(p.table(), ",") + "# end\n" },
	"psql": func(p *pen) string {
		head, body, _ := strings.Cut(p.text(p.table(), " | "), "\n")
		return head + "\n----+----\n" + body
	},
	"markdown": func(p *pen) string {
		lines := strings.Split(strings.TrimSpace(p.text(p.table(), " | ")), "\n")
		return "| " + lines[0] + " |\n| --- | --- |\n| " + strings.Join(lines[1:], " |\n| ") + " |\n"
	},
	"json lines": func(p *pen) string { return p.objects("\n", false, false) },
	"nested":     func(p *pen) string { return p.objects("\n", true, false) },
	"nan lines":  func(p *pen) string { return p.objects("\n", false, true) },
	"gzip lines": func(p *pen) string { return gzipped(p.objects("\n", false, false)) },
	"array":      func(p *pen) string { return "[" + p.objects(",\n", false, false) + "]" },
	"nan array":  func(p *pen) string { return "[" + p.objects(",\n", true, true) + "]" },
	"joined":     func(p *pen) string { return p.objects(" ", false, false) },
	"list in object": func(p *pen) string {
		return `{"exported": "yesterday", "rows": [` + p.objects(",", false, false) + `]}`
	},
	"lines and text": func(p *pen) string {
		return "INFO: started\n" + p.objects("\n", false, false) + "\nINFO: stopped\n"
	},
	"cut off lines": func(p *pen) string { return p.objects("\n", false, false) + "\n{\"times" },
	"nginx":         func(p *pen) string { return p.proxy("time_iso8601", time.RFC3339, "request_time", false) },
	"nginx local": func(p *pen) string {
		return p.proxy("time_local", "02/Jan/2006:15:04:05 -0700", "request_time",
			false)
	},
	"nginx msec": func(p *pen) string { return p.proxy("msec", "", "request_time", false) },
	"envoy": func(p *pen) string {
		return p.proxy("start_time", "2006-01-02T15:04:05.000Z", "duration",
			true)
	},
	"litellm":         (*pen).liteLLM,
	"otlp":            func(p *pen) string { return p.otlp("plain") },
	"otlp agents":     func(p *pen) string { return p.otlp("agents") },
	"otlp both sides": func(p *pen) string { return p.otlp("twins") },
	"flat spans":      (*pen).flatSpans,
	"inference-perf":  (*pen).inferencePerf,
	"aiperf":          (*pen).aiperf,
	"vllm":            (*pen).vllm,
	"start and end":   (*pen).startAndEnd,
}

// objects writes a table as JSON objects.
func (p *pen) objects(separator string, nested, nan bool) string {
	var list []string
	for _, r := range p.table() {
		list = append(list, object(r, nested, nan))
	}
	return strings.Join(list, separator)
}

// proxy writes the access log of nginx, whose times are of the ends, or of Envoy, whose are of the starts. Rows are in
// the order of the ends.
func (p *pen) proxy(name, layout, took string, starts bool) string {
	for i := range p.rows { // nginx writes whole seconds
		end := p.rows[i].at.Add(p.rows[i].took).Truncate(time.Second)
		if !starts && layout != "" {
			p.rows[i].at = end.Add(-p.rows[i].took)
		}
	}
	rows := slices.Clone(p.rows)
	slices.SortStableFunc(rows, func(a, b truth) int { return a.at.Add(a.took).Compare(b.at.Add(b.took)) })
	var b strings.Builder
	for _, r := range rows {
		at, status := r.at.Add(r.took), 200
		if r.failed {
			status = 504
		}
		length := fmt.Sprintf("%q", strconv.FormatFloat(r.took.Seconds(), 'f', 3, 64))
		if starts {
			at, length = r.at, strconv.FormatInt(r.took.Milliseconds(), 10)
		}
		stamp := at.Format(layout)
		if layout == "" {
			stamp = strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
		}
		code := "status"
		if starts {
			code = "response_code"
		}
		fmt.Fprintf(&b,
			`{%q: %q, %q: %d, %q: %s, "method": "POST", "lora": %q, "prompt_tokens": %d, "completion_tokens": %d}`+"\n",
			name, stamp, code, status, took, length, r.adapter, r.prompt, r.output)
	}
	return b.String()
}

func (p *pen) liteLLM() string {
	var b strings.Builder
	for i, r := range p.rows {
		status := "success"
		if r.failed {
			status = "failure"
		}
		fmt.Fprintf(&b,
			`{"request_id": "r%d", "call_type": "acompletion", "spend": 0.01, "startTime": %q, "endTime": %q, `+
				`"completionStartTime": %q, "model": %q, "prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d, "status": %q}`+"\n",
			i, r.at.Format(time.RFC3339Nano), r.at.Add(r.took).Format(time.RFC3339Nano),
			r.at.Add(r.took/4).Format(time.RFC3339Nano),
			r.adapter, r.prompt, r.output, r.prompt+r.output, status)
	}
	return b.String()
}

// startAndEnd writes seconds or ms since an origin, whose unit only the time for a token tells. Some rows end before
// they start.
func (p *pen) startAndEnd() string {
	unit := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond}[p.pick("s",
		"ms", "us")]
	b := strings.Builder{}
	b.WriteString("start,end,adapter,prompt_tokens,output_tokens\n")
	for i := range p.rows {
		r := &p.rows[i]
		from, to := r.at.Sub(p.rows[0].at)+time.Second, r.at.Sub(p.rows[0].at)+time.Second+r.took
		if r.failed {
			to = from - 500*time.Millisecond
		}
		fmt.Fprintf(&b, "%v,%v,%s,%d,%d\n", float64(from)/float64(unit), float64(to)/float64(unit), r.adapter,
			r.prompt, r.output)
	}
	return b.String()
}

// otlp writes spans: of calls alone, with agents that state the sums of their calls, or with both sides of a call.
func (p *pen) otlp(kind string) string {
	span := func(id, parent, op string, r truth, status int) string {
		return fmt.Sprintf(
			`{"traceId":"t","spanId":%q,"parentSpanId":%q,"name":"x","startTimeUnixNano":"%d","endTimeUnixNano":"%d",`+
				`"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":%q}},{"key":"gen_ai.request.model","value":{"stringValue":%q}},`+
				`{"key":"gen_ai.usage.input_tokens","value":{"intValue":"%d"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"%d"}}],`+
				`"status":{"code":%d}}`, id, parent, r.at.UnixNano(), r.at.Add(r.took).UnixNano(), op, r.adapter,
			r.prompt,
			r.output, status)
	}
	var spans []string
	for i, r := range p.rows {
		status := 0
		if r.failed {
			status = 2
		}
		parent := ""
		switch kind {
		case "agents":
			group := i / 3 * 3
			if group+2 < len(p.rows) {
				parent = fmt.Sprint("agent", group)
			}
			if i == group && parent != "" {
				sum := r
				sum.prompt += p.rows[i+1].prompt + p.rows[i+2].prompt
				sum.output += p.rows[i+1].output + p.rows[i+2].output
				spans = append(spans, span(parent, "", "invoke_agent", sum, 0))
			}
		case "twins":
			parent = fmt.Sprint("client", i)
			spans = append(spans, span(parent, "", "chat", r, status))
		}
		spans = append(spans, span(fmt.Sprint("call", i), parent, "chat", r, status))
	}
	p.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	wrap := func(list []string) string {
		return `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Join(list, ",") + "]}]}]}\n"
	}
	if half := len(spans) / 2; p.pick("one export", "two exports") == "two exports" {
		return wrap(spans[:half]) + wrap(spans[half:])
	}
	return wrap(spans)
}

func (p *pen) flatSpans() string {
	var b strings.Builder
	for i, r := range p.rows {
		code := `"OK"`
		if r.failed {
			code = `"ERROR"`
		}
		fmt.Fprintf(&b,
			`{"name": "chat", "context": {"trace_id": "0x1", "span_id": "0x%d"}, "parent_id": null, "start_time": %q, `+
				`"end_time": %q, "status": {"status_code": %s}, "attributes": {"gen_ai.request.model": %q, "gen_ai.usage.input_tokens": %d, `+
				`"gen_ai.usage.output_tokens": %d}}`+"\n", i, r.at.Format(time.RFC3339Nano),
			r.at.Add(r.took).Format(time.RFC3339Nano),
			code, r.adapter, r.prompt, r.output)
	}
	return b.String()
}

func (p *pen) inferencePerf() string {
	var list []string
	for _, r := range p.rows {
		fault := "null"
		if r.failed {
			fault = `{"error_type": "ClientError", "error_msg": ""}`
		}
		list = append(list,
			fmt.Sprintf(`{"start_time": %.4f, "end_time": %.4f, "request": "{}", "response": "", "info": {"lora_adapter": %q, `+
				`"input_tokens": %d, "output_tokens": %d}, "error": %s}`, r.at.Sub(p.rows[0].at).Seconds()+7000,
				r.at.Sub(p.rows[0].at).Seconds()+7000+r.took.Seconds(), r.adapter, r.prompt, r.output, fault))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// withoutNames makes all requests those of the base model: the client's file states no adapters.
func (p *pen) withoutNames() {
	for i := range p.rows {
		p.rows[i].adapter = ""
	}
}

func (p *pen) aiperf() string {
	p.withoutNames()
	var b strings.Builder
	for i, r := range p.rows {
		fault := "null"
		if r.failed {
			fault = `{"code": 500, "type": "Internal", "message": "x"}`
		}
		fmt.Fprintf(&b,
			`{"metadata": {"session_num": %d, "x_request_id": "r%d", "request_start_ns": %d, "request_ack_ns": %d, `+
				`"request_end_ns": %d, "benchmark_phase": "profiling", "was_cancelled": false}, "metrics": {"input_sequence_length": `+
				`{"value": %d, "unit": "tokens"}, "output_sequence_length": {"value": %d, "unit": "tokens"}, "request_latency": `+
				`{"value": %v, "unit": "ms"}, "time_to_first_token": {"value": 20, "unit": "ms"}}, "error": %s}`+"\n", i,
			i, r.at.UnixNano(),
			r.at.UnixNano()+1000, r.at.Add(r.took).UnixNano(), r.prompt, r.output, float64(r.took)/1e6, fault)
	}
	return b.String()
}

func (p *pen) vllm() string {
	p.withoutNames()
	var inputs, outputs, starts, latencies, ttfts, gaps, errors []string
	for i := range p.rows {
		r := &p.rows[i]
		r.failed = false
		inputs, outputs = append(inputs, fmt.Sprint(r.prompt)), append(outputs, fmt.Sprint(r.output))
		starts = append(starts, fmt.Sprintf("%.6f", r.at.Sub(p.rows[0].at).Seconds()+1000))
		latencies = append(latencies, fmt.Sprint(r.took.Seconds()))
		ttfts = append(ttfts, "0.02")
		gaps = append(gaps, fmt.Sprintf("[%v]", r.took.Seconds()-0.02))
		errors = append(errors, `""`)
	}
	list := func(l []string) string { return "[" + strings.Join(l, ", ") + "]" }
	return fmt.Sprintf(
		`{"backend": "vllm", "endpoint_type": "vllm", "completed": %d, "duration": 100.0, "request_rate": 4.0, `+
			`"total_input_tokens": 1, "total_output_tokens": 1, "input_lens": %s, "output_lens": %s, "start_times": %s, "latencies": %s, `+
			`"ttfts": %s, "itls": %s, "errors": %s}`, len(p.rows), list(inputs), list(outputs), list(starts),
		list(latencies),
		list(ttfts), list(gaps), list(errors))
}

// expected is the workload that the log holds.
func (p *pen) expected() (out []truth) {
	for _, r := range p.rows {
		if !r.failed {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b truth) int { return a.at.Compare(b.at) })
	return out
}

// differ describes the first difference between a workload and the expected requests; "": none. Requests of the same
// moment may be in any order.
func differ(w *trace.Workload, want []truth) string {
	if len(w.Requests) != len(want) {
		return fmt.Sprintf("%d requests, expected %d", len(w.Requests), len(want))
	}
	key := func(at float64, name string, prompt, output int) string {
		return fmt.Sprintf("%012.3f %s %d %d", math.Round(at*1000)/1000, name, prompt, output)
	}
	var got, expected []string
	for i, r := range w.Requests {
		name := ""
		if r.Adapter >= 0 {
			name = w.Adapters[r.Adapter].Name
		}
		got = append(got, key(r.Arrival, name, int(r.Prompt), int(r.Output)))
		x := want[i]
		expected = append(expected, key(x.at.Sub(want[0].at).Seconds(), x.adapter, x.prompt, x.output))
	}
	slices.Sort(got)
	slices.Sort(expected)
	for i := range got {
		if got[i] != expected[i] {
			return fmt.Sprintf("request %d is %q, expected %q", i, got[i], expected[i])
		}
	}
	return ""
}

// frontDoor writes a known workload as a log by drawn choices, and reads it. The workload comes back, or the log is
// refused: refused is true.
func frontDoor(t *testing.T, name string, seed uint64) (refused bool) {
	t.Helper()
	p := newPen(seed)
	text := layouts[name](p)
	path := testutil.File(t, "log", text)
	w, report, err := ReadLog(t.Context(), []string{path}, requestlog.Options{Seed: 1, Files: columnar.Files()})
	if err != nil {
		if len(err.Error()) < 20 {
			t.Errorf("%s, seed %d: %v", name, seed, err)
		}
		t.Logf("%s, seed %d %q: %v", name, seed, p.story, err)
		return true
	}
	if d := differ(w, p.expected()); d != "" {
		t.Errorf("%s, seed %d %q: %s\n%s\n%s", name, seed, p.story, d, report, text[:min(len(text), 600)])
	}
	return false
}

// A known workload, written in every layout, each spelling of time, unit, failure and gap: import gives it back, or
// refuses. It may refuse few.
func TestFrontDoor(t *testing.T) {
	const seeds = 60
	if len(layouts) < 25 {
		t.Fatalf("%d layouts", len(layouts))
	}
	for name := range layouts {
		t.Run(name, func(t *testing.T) {
			refused := 0
			for seed := range uint64(seeds) {
				if frontDoor(t, name, seed) {
					refused++
				}
			}
			if refused > seeds/3 {
				t.Errorf("%d of %d logs are refused", refused, seeds)
			}
		})
	}
}

func FuzzFrontDoor(f *testing.F) {
	names := make([]string, 0, len(layouts))
	for name := range layouts {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range names {
		f.Add(uint16(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, layout uint16, seed uint64) { frontDoor(t, names[int(layout)%len(names)], seed) })
}
