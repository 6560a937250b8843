package requestlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lorasim/internal/testutil"
)

// access writes the rows as lorasim gateway logs them: when a request ends, each with how long it took. The requests of
// the first two rows end in reverse order.
func access(handler func(*bytes.Buffer) slog.Handler) string {
	var b bytes.Buffer
	h := handler(&b)
	list := rows()
	list[0], list[1] = list[1], list[0]
	for i, r := range list {
		took := time.Duration(10-i) * time.Second
		rec := slog.NewRecord(r.at.Add(took), slog.LevelInfo, "request", 0)
		rec.Add("client", "127.0.0.1:5", "method", "POST", "path", "/v1/completions", "status", 200, "bytes", 17,
			"duration_s", took.Seconds())
		adapter := r.adapter
		if adapter == "" {
			adapter = "base"
		}
		rec.Add("adapter", adapter, "worker", 0, "tries", 1, "prompt_tokens", r.prompt, "events", r.output,
			"first_byte_s", 0.5)
		if i%2 == 1 {
			rec.Add("output_tokens", r.output)
		}
		h.Handle(context.Background(), rec)
		plan := slog.NewRecord(r.at, slog.LevelInfo, "plan", 0)
		plan.Add("result", "applied", "reason", `b "busy"`, "load", "[b@0]")
		h.Handle(context.Background(), plan)
	}
	other := slog.NewRecord(begin, slog.LevelInfo, "worker joined", 0)
	other.Add("url", "http://gpu1:8000")
	h.Handle(context.Background(), other)
	status := slog.NewRecord(begin, slog.LevelInfo, "request", 0)
	status.Add("method", "GET", "path", "/health", "status", 200, "duration_s", 0.001)
	h.Handle(context.Background(), status)
	return b.String()
}

func asText(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) }
func asJSON(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) }

// perf writes the rows as inference-perf's file of requests, of this or an older version.
func perf(old bool) string {
	var list []string
	for _, r := range rows() {
		info := fmt.Sprintf(`{"request_metrics":{"text":{"input_tokens":%d}},"response_metrics":{"output_tokens":%d,`+
			`"output_token_times":[1,2]},"extra_info":{},"lora_adapter":%q,"input_tokens":%[1]d}`, r.prompt, r.output,
			r.adapter)
		model := "llama"
		if old {
			info = fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"output_token_times":[1]}`, r.prompt, r.output)
			model = r.adapter
		} else if r.adapter == "" {
			model = ""
		}
		list = append(list,
			fmt.Sprintf(`{"start_time":%.4f,"end_time":9e9,"request":"{\"model\":\"%s\"}","response":"",`+
				`"info":%s,"error":null}`, r.at.Sub(begin).Seconds()+7000, model, info))
	}
	return "[\n" + strings.Join(list, ",\n") + `,{"start_time":1,"request":"{}","info":{"input_tokens":5,` +
		`"output_tokens":5},"error":{"error_type":"ClientError","error_msg":""}}]`
}

// blis writes the rows as the CSV of blis observe.
func blis() string {
	return tabular(
		"request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"+
			"input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,"+
			"server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"+
			"error_message,finish_reason,adapter", func(r logged) string {
			at := r.at.Sub(begin).Microseconds()
			return fmt.Sprintf("0,c1,t1,standard,,0,,0,true,%d,%d,0,0,0,0,0,llama,0,%d,%d,%d,%d,%d,3,ok,,stop,%s",
				r.prompt-3, r.output, r.prompt, at, at+5, at+9, at+99, r.adapter)
		}) + "9,c1,t1,standard,,0,,0,true,5,0,0,0,0,0,0,llama,0,0,1,2,3,4,0,timeout,deadline,,sql\n"
}

// Files of known programs give the rows, and the report names the program.
func TestKnown(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"gateway JSON":       {access(asJSON), "access log of lorasim gateway"},
		"gateway text":       {"lorasim: listening on :8000\n" + access(asText), "access log of lorasim gateway"},
		"inference-perf":     {perf(false), "requests of inference-perf"},
		"inference-perf 0.1": {perf(true), "dropped    1: the request failed"},
		"blis observe":       {blis(), "dropped    1: the request failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w, report, err := Read(t.Context(), []string{write(t, "log", c.text)}, Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, c.text)
			}
			checkRows(t, w, rows())
			if !strings.Contains(report.String(), c.says) {
				t.Errorf("the report lacks %q:\n%s", c.says, report)
			}
			if strings.HasPrefix(name, "gateway") && report.Rows != report.Kept {
				t.Errorf("messages of another kind count as requests:\n%s", report)
			}
		})
	}
}

// Times of a Mooncake trace are ms, and one model of all requests may be the base model.
func TestNotes(t *testing.T) {
	for text, says := range map[string]string{
		`{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [1]}` + "\n" +
			`{"timestamp": 1500, "input_length": 5, "output_length": 6, "hash_ids": [1]}` +
			"\n": "are ms, as in Mooncake's traces",
		"time,model,prompt,output\n0,m,5,6\n1.5,m,5,6\n": `if it is the base model: --columns base=model`,
	} {
		w, report, err := Read(t.Context(), []string{testutil.File(t, "log", text)}, Options{})
		if err != nil || w.Requests[1].Arrival != 1.5 || !strings.Contains(report.String(), says) {
			t.Errorf("%+v, %v, expected %q", report, err, says)
		}
	}
}
