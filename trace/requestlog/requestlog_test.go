package requestlog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/requestlog/evidence"
)

// logged is the request of a log that the tests write in many layouts. Its times are dates of 2024.
type logged struct {
	at             time.Time
	adapter        string
	prompt, output int
}

var begin = time.Date(2024, 5, 16, 9, 0, 0, 250_000_000, time.UTC)

// rows is the log that every layout below holds, in the order of arrival.
func rows() []logged {
	return []logged{
		{begin, "sql", 512, 40},
		{begin.Add(125 * time.Millisecond), "", 1024, 7},
		{begin.Add(2 * time.Second), "chat", 33, 300},
		{begin.Add(2*time.Second + 1*time.Millisecond), "sql", 600, 1},
	}
}

// checkRows holds a workload against rows.
func checkRows(t *testing.T, w *trace.Workload, from []logged) {
	t.Helper()
	if len(w.Requests) != len(from) {
		t.Fatalf("%d requests, expected %d", len(w.Requests), len(from))
	}
	for i, r := range w.Requests {
		name := ""
		if r.Adapter >= 0 {
			name = w.Adapters[r.Adapter].Name
		}
		at := from[i].at.Sub(from[0].at).Seconds()
		if name != from[i].adapter || int(r.Prompt) != from[i].prompt || int(r.Output) != from[i].output ||
			math.Abs(r.Arrival-at) > 1e-6 || r.ID != int64(i) || r.Check(len(w.Adapters)) != nil {
			t.Errorf("request %d: %+v of adapter %q, expected %+v at %v s", i, r, name, from[i], at)
		}
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tabular writes rows as text with one line each.
func tabular(header string, line func(r logged) string) string {
	var b strings.Builder
	b.WriteString(header + "\n")
	for _, r := range rows() {
		b.WriteString(line(r) + "\n")
	}
	return b.String()
}

// Each of these layouts of one log gives the same workload.
func TestLayouts(t *testing.T) {
	iso := func(r logged) string { return r.at.Format(time.RFC3339Nano) }
	epoch := func(r logged, per time.Duration) string {
		return fmt.Sprint(float64(r.at.UnixNano()/1000) / float64(per/1000))
	}
	zone := time.FixedZone("", 2*3600)
	for name, text := range map[string]string{
		"iso.csv": tabular("timestamp,adapter,prompt_tokens,output_tokens", func(r logged) string {
			return fmt.Sprintf("%s,%s,%d,%d", iso(r), r.adapter, r.prompt, r.output)
		}),
		"semicolon.csv": tabular("Output Tokens;Prompt Tokens;LoRA;Time", func(r logged) string {
			return fmt.Sprintf("%d;%d;%s;%s", r.output, r.prompt, r.adapter, iso(r))
		}),
		"tab.tsv": tabular("ts\tlora_name\tinput_len\toutput_len", func(r logged) string {
			return fmt.Sprintf("%s\t%s\t%d\t%d", epoch(r, time.Second), r.adapter, r.prompt, r.output)
		}),
		"pipe.log": tabular("start | model | isl | osl", func(r logged) string {
			return fmt.Sprintf("%d | %s | %d | %d", r.at.UnixMilli(), r.adapter, r.prompt, r.output)
		}),
		"quoted.csv": tabular(`"created_at","adapter_name","prompt_tokens","completion_tokens","prompt"`,
			func(r logged) string {
				return fmt.Sprintf(`"%s","%s","%d","%d","say ""hi"", then`+"\n"+`go"`,
					r.at.In(zone).Format("2006-01-02 15:04:05.000-0700"),
					r.adapter, r.prompt, r.output)
			}),
		"crlf.csv": strings.ReplaceAll("\xef\xbb\xbf"+
			tabular("arrival_time_us,tenant,server_input_tokens,output_tokens",
				func(r logged) string {
					return fmt.Sprintf("%d,%s,%d,%d", r.at.Sub(begin).Microseconds(), r.adapter, r.prompt, r.output)
				}), "\n", "\r\n"),
		"total.csv": tabular("request_time,lora_id,total_tokens,generated_tokens", func(r logged) string {
			return fmt.Sprintf("%s,%s,%d,%d", r.at.Format("02/Jan/2006:15:04:05.000 -0700"), r.adapter,
				r.prompt+r.output, r.output)
		}),
		"thousands.csv": tabular("date,adapter,prompt_tokens,output_tokens", func(r logged) string {
			p := fmt.Sprint(r.prompt)
			if r.prompt >= 1000 {
				p = fmt.Sprintf(`"%d,%03d"`, r.prompt/1000, r.prompt%1000)
			}
			return fmt.Sprintf("%s,%s,%s,%d.0", r.at.Format("2006-01-02 15:04:05.000"), r.adapter, p, r.output)
		}),
		"log.jsonl": func() (out string) {
			for _, r := range rows() {
				adapter := `"` + r.adapter + `"`
				if r.adapter == "" {
					adapter = "null"
				}
				out += fmt.Sprintf(
					`{"time": "%s", "request": {"model": %s}, "usage": {"prompt_tokens": %d, "completion_tokens": %d},
					"messages": [{"a": [1, {}]}]}`+"\n", iso(r), adapter, r.prompt, r.output)
			}
			return out
		}(),
		"array.json": func() string {
			var list []string
			for _, r := range rows() {
				list = append(list, fmt.Sprintf(
					`{"arrival_ns": %d, "adapter": "%s", "input_tokens": %d, "output_tokens": %d}`,
					r.at.UnixNano(), r.adapter, r.prompt, r.output))
			}
			return "[" + strings.Join(list, ",\n") + "]"
		}(),
		"spans.json": spans(),
		"base.csv": tabular("time,base_model,model,prompt_tokens,output_tokens", func(r logged) string {
			model := r.adapter
			if model == "" {
				model = "llama"
			}
			return fmt.Sprintf("%s,llama,%s,%d,%d", iso(r), model, r.prompt, r.output)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			w, report, err := Read(t.Context(), []string{write(t, name, text)}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkRows(t, w, rows())
			if report.Rows != 4 || report.Kept != 4 || report.Sorted || len(report.Dropped) > 0 {
				t.Errorf("report: %+v", report)
			}
			if dated := name != "crlf.csv"; dated != (report.Begin.Sub(begin).Abs() < time.Microsecond) {
				t.Errorf("begins %v, expected %v", report.Begin, begin)
			}
		})
		t.Run("packed "+name, func(t *testing.T) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write([]byte(text))
			z.Close()
			w, _, err := Read(t.Context(), []string{write(t, name+".gz", b.String())}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkRows(t, w, rows())
		})
	}
}

// spans are the rows as OTLP JSON, one export a line, with a span of something else in each.
func spans() (out string) {
	for i, r := range rows() {
		model := r.adapter
		if model == "" {
			model = "none"
		}
		in, gen := "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
		if i%2 == 1 { // names of older conventions
			in, gen = "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"
		}
		out += fmt.Sprintf(`{"resourceSpans":[{"resource":{},"scopeSpans":[{"spans":[`+
			`{"name":"GET","startTimeUnixNano":"1","attributes":[]},`+
			`{"name":"chat","startTimeUnixNano":"%d","attributes":[{"key":"gen_ai.request.model","value":{"stringValue":"%s"}},`+
			`{"key":"%s","value":{"intValue":"%d"}},{"key":"%s","value":{"intValue":%d}}]}]}]}]}`+"\n",
			r.at.UnixNano(), model, in, r.prompt, gen, r.output)
	}
	return out
}

// A Parquet file with a timestamp, optional values and a column that is no use.
func TestParquet(t *testing.T) {
	type record struct {
		Start   time.Time `parquet:"start_time,timestamp(microsecond)"`
		Adapter *string   `parquet:"adapter,optional,plain"`
		Prompt  int64     `parquet:"prompt_tokens"`
		Output  *int32    `parquet:"output_tokens,optional"`
		Cost    float64   `parquet:"cost"`
		Tags    []string  `parquet:"tags,list"`
	}
	var list []record
	for _, r := range rows() {
		output := int32(r.output)
		rec := record{Start: r.at, Prompt: int64(r.prompt), Output: &output, Tags: []string{"a", "b"}}
		if r.adapter != "" {
			rec.Adapter = &r.adapter
		}
		list = append(list, rec)
	}
	list = append(list, record{Start: begin, Prompt: 5}) // without output
	path := filepath.Join(t.TempDir(), "log.parquet")
	if err := parquet.WriteFile(path, list); err != nil {
		t.Fatal(err)
	}
	w, report, err := Read(t.Context(), []string{path}, Options{Files: columnar.Files()})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, w, rows())
	want := []Dropped{{"no output tokens: the request failed or was cancelled", 1, 5}}
	if !slices.Equal(report.Dropped, want) || !slices.Equal(report.Unused, []string{"cost"}) {
		t.Errorf("report: %+v", report)
	}
}

// Rows that cannot be requests are dropped and counted by reason; rows are sorted by arrival.
func TestDropped(t *testing.T) {
	text := "timestamp,adapter,prompt_tokens,output_tokens,status,max_tokens,rank\n" +
		"12.5,b,10,20,200,64,16\n" +
		"11.5,a,10,20,200,5,\n" + // max_tokens below the output: not a budget
		"11.75,a,10,0,200,,\n" +
		"x,a,10,20,200,,\n" +
		",a,10,20,200,,\n" +
		"11.8,a,10,20,503,,\n" +
		"11.9,a,,20,200,,\n" +
		"11.9,a,1.5,20,200,,\n"
	var many strings.Builder // beyond the rows from which columns are found
	for i := range sniffed {
		fmt.Fprintf(&many, "%d,c,1,1,200,,\n", 100+i)
	}
	header, rest, _ := strings.Cut(text, "\n")
	w, report, err := Read(t.Context(), []string{write(t, "log.csv", header+"\n"+many.String()+rest)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := w.Requests[0], w.Requests[1]
	if a.Arrival != 0 || a.MaxNew != 0 || b.Arrival != 1 || b.MaxNew != 64 ||
		w.Adapters[b.Adapter] != (trace.Adapter{Name: "b", Rank: 16}) {
		t.Errorf("%+v, %+v of %v", a, b, w.Adapters)
	}
	want := []Dropped{
		{"no output tokens: the request failed or was cancelled", 1, sniffed + 4},
		{"the time cannot be read", 1, sniffed + 5},
		{"no time", 1, sniffed + 6},
		{"the request failed", 1, sniffed + 7},
		{"no prompt tokens", 1, sniffed + 8},
		{"prompt tokens are no whole number", 1, sniffed + 9},
	}
	if !slices.Equal(report.Dropped, want) || !report.Sorted || report.Kept != sniffed+2 || report.Rows != sniffed+8 {
		t.Errorf("report:\n%s", report)
	}
	for _, part := range []string{`time       column "timestamp", s since the log's origin`,
		"kept       1002 of 1008 rows",
		"dropped    1: the request failed (first: line 1007)", "rows were sorted by arrival"} {
		if !strings.Contains(report.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, report)
		}
	}
}

// Errors say what was found and what to do.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                          "the file is empty",
		"time,prompt_tokens\n1,2\n":                 "no column holds the numbers of output tokens: expected one such as output_tokens, found time, prompt_tokens; name it with lorasim trace import --columns output=NAME",
		"x,prompt_tokens,output_tokens\n1,2,3\n":    "no column holds the times of arrival",
		"time,output_tokens\n1,2\n":                 "no column holds the numbers of prompt tokens",
		"time,prompt_tokens,output_tokens\n":        "the log has no rows",
		"time,prompt_tokens,output_tokens\n1,2,0\n": "the log has no request: 1 rows dropped: no output tokens",
		"1,2,3\n":                                   `line 1 is "1,2,3", expected the names of the columns`,
		"\x00\x01\x02":                              "not a text file: expected CSV, JSON or Parquet",
		"{\"a\": 1":                                 "line 1: not valid JSON",
		"[1]":                                       "line 1: expected an object for each request",
		"[{\"a\":1}\n,\n5]":                         "line 3: expected an object",
		"time,prompt_tokens,output_tokens\n1,2,3\n1e9,2,3\n": "column \"time\" states no unit of its times:\n  column \"time\" as s since the log's origin: span 1.16e+04 days",
	} {
		_, _, err := Read(t.Context(), []string{write(t, "log", text)}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
	log := write(t, "log", "when,prompt_tokens,output_tokens\n1,2,3\n5,2,3\n")
	for spec, want := range map[string]string{
		"time=wen": `--columns time=wen: unknown column "wen", did you mean "when"?`,
		"tim=when": `unknown field "tim", did you mean "time"?`,
		"time":     `"time": expected FIELD=COLUMN`,
	} {
		columns, err := evidence.ParseColumns(spec)
		if err == nil {
			_, _, err = Read(t.Context(), []string{log}, Options{Columns: columns})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", spec, err, want)
		}
	}
	w, _, err := Read(t.Context(), []string{log}, Options{Columns: map[evidence.Field]string{evidence.Time: "when"},
		TimeUnit: evidence.Millis})
	if err != nil || w.Requests[1].Arrival != 0.004 {
		t.Errorf("%+v, %v", w, err)
	}
}
