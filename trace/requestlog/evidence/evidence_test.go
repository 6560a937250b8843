package evidence

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// tableOf makes a table of columns separated by commas and rows separated by semicolons.
func tableOf(columns, rows string) *Table {
	t := &Table{Columns: strings.Split(columns, ",")}
	for text := range strings.SplitSeq(rows, ";") {
		values := strings.Split(text, ",")
		t.Rows = append(t.Rows, func(column string) string {
			for i, c := range t.Columns {
				if c == column && i < len(values) {
					return values[i]
				}
			}
			return ""
		})
	}
	return t
}

func TestUnitIn(t *testing.T) {
	for name, want := range map[string]Unit{
		"timestampMs": Millis, "ts_msec": Millis, "timestamp [ms]": Millis, "arrival_time (minutes)": Minutes,
		"timestampms": Millis, "startTimeUnixNano": Nanos, "time (\u00b5s)": Micros, "arrival_us": Micros,
		"arrival_s":      Seconds,
		"ms_since_start": Millis, "time_h": Hours, "tsUsec": Micros, "timesec": Seconds, "TimestampMS": Millis,
		"timestamps": "", "time": "", "msec": "", "arrivals": "", "date": "", "latency.min": "", "items": "",
	} {
		if got, _ := unitIn(name); got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		of        func(string) verdict
		good, bad string
	}{
		{ofStatus, "200|200 OK|ok|OK|success|200.0|HTTP 200|HTTP/1.1 200 OK|completed|201|stop|STATUS_CODE_OK|0|yes|no error",
			"500|HTTP 500|499.0|error|ERROR: timeout|exception|incomplete|fail|no|503 Service Unavailable|timed out|" +
				"DEADLINE_EXCEEDED|unsuccessful|rate limited (throttled)|HTTP/1.1 503|cancelled|false|5xx"},
		{ofSuccess, "1|true|True|yes|Y|1.0|ok", "0|false|no|N|0.0|failed"},
		{ofError, "|null|None|{}|[]|N/A|0.0|0|200|200 OK|-|no error|false|nan|undefined|''|ok",
			"timeout|429|500|-1|true|1|{'code': 5}|Bad Gateway|connection reset"},
	} {
		for text := range strings.SplitSeq(c.good, "|") {
			if c.of(text) == bad {
				t.Errorf("%q is a failure", text)
			}
		}
		for text := range strings.SplitSeq(c.bad, "|") {
			if c.of(text) != bad {
				t.Errorf("%q is no failure", text)
			}
		}
	}
}

// Which column is the time, by what the columns hold.
func TestTime(t *testing.T) {
	dates := "2026-03-08T01:58:0%d,"
	rows := func(format string) string {
		var list []string
		for i := range 9 {
			list = append(list, strings.ReplaceAll(fmt.Sprintf(dates+format, i), "#", fmt.Sprint((i*5)%7+1)))
		}
		return strings.Join(list, ";")
	}
	for _, c := range []struct {
		columns, rows string
		field         Field
		want          string // column; "!" and a part of an error
	}{
		{"date,time,prompt,output", rows("#.5,10,5"), Time, "date"},
		{"created_at,start,prompt,output", rows("0.#,10,5"), Time, "created_at"},
		{"when_seen,request_time,prompt,output", rows("#.25,10,5"), Time, "when_seen"},
		{"time_local,request_time,prompt,output", rows("#.25,10,200"), Duration, "request_time"},
		{"id,request_time,prompt,output", "a,5.5,1,2;b,1.5,1,2;c,3.5,1,2;d,2,1,2;e,4,1,2", Time, "!does not grow"},
		{"day,hour,prompt,output", "2026-03-08,01:00:00,1,2;2026-03-08,01:00:09,1,2", Time, "day"},
		{"seen,done_by,prompt,output",
			"2026-03-08T01:00:00,2026-03-09T01:00:00,1,2;2026-03-08T01:00:09,2026-03-12T01:00:00,1,2",
			Time, "!several columns hold dates"},
		{"created_at,timestamp,prompt,output",
			"2026-03-08T01:00:00,2026-03-09T01:00:00,1,2;2026-03-08T01:00:09,2026-03-12T01:00:00,1,2",
			Time, "!both name the time of arrival"},
		{"start,end,prompt,output", "0,4000,1,100;1000,7000,1,200;9000,9500,1,20", End, "end"},
		{"timestamp_ms,prompt,output", "1772000000,1,1;1772000001,1,1;1772000060,1,1", Time,
			"!states ms, but its numbers are s"},
		{"timestamp,prompt,output", "0,1,1;3600000,1,1;7200000,1,1", Time, "!states no unit"},
		{"timestamp,prompt,output", "0,1,1;0.1,1,1;0.2,1,1", Time, "!states no unit"},
		{"finished_at,latency,prompt,output", rows("#,1,100"), Duration, "latency"},
	} {
		l, err := Decide(tableOf(c.columns, c.rows), Options{})
		want, isError := strings.CutPrefix(c.want, "!")
		switch {
		case isError && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, expected %q", c.columns, err, want)
		case !isError && err != nil:
			t.Errorf("%s: %v", c.columns, err)
		case !isError && l.Column(c.field) != want:
			t.Errorf("%s: %s is %q, expected %q", c.columns, c.field, l.Column(c.field), want)
		}
	}
}

// A contradiction shows both readings with the flags that decide.
func TestContradiction(t *testing.T) {
	_, err := Decide(tableOf("timestamp,prompt,output", "0,1,1;27482,1,1"), Options{})
	var c *contradiction
	if !errors.As(err, &c) || len(c.Readings) != 2 || c.Readings[0].Flag != "--time-unit s" ||
		c.Readings[1].Flag != "--time-unit ms" {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"span 7.63 h", "span 27.5 s", "lorasim trace import --time-unit ms"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	l, err := Decide(tableOf("timestamp,prompt,output", "0,1,1;27482,1,1"), Options{Unit: Millis})
	if err != nil || len(l.Doubts) > 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Columns that may name adapters come in the order of how likely they do; columns of ids, texts and constants do not.
func TestCandidates(t *testing.T) {
	l, err := Decide(tableOf("ts,region,customer,request_id,method,note,prompt,output",
		"1,eu,acme,r1,POST,hello to all of you,1,2;2,us,zoo,r2,POST,hi there my old friend,1,2;3,eu,acme,r3,POST,,1,2;4,us,zoo,r4,POST,,1,2"),
		Options{})
	if err != nil || strings.Join(l.Candidates, " ") != "customer region" {
		t.Errorf("%+v, %v", l, err)
	}
}

// 1 is a success where the rows without output have 0, and a failure where it is the other way round.
func TestFlag(t *testing.T) {
	for rows, want := range map[string]string{"1,1,5,1;2,1,5,1;3,1,0,0": "ok ok failed",
		"1,1,5,0;2,1,5,0;3,1,0,1": "ok ok failed"} {
		l, err := Decide(tableOf("ts,prompt,output,status", rows), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range tableOf("ts,prompt,output,status", rows).Rows {
			word := "ok"
			if _, err := l.Request(r); err != nil {
				word = "failed"
				if err.Error() != Failed {
					t.Error(err)
				}
			}
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s", rows, got)
		}
	}
}

// Counts of tokens are found in other words for "tokens" and "number".
func TestTokenCounts(t *testing.T) {
	for name, want := range map[string]Field{
		"in_tok": Prompt, "num_prompt_tokens": Prompt, "promptTokenCount": Prompt, "Input Toks": Prompt,
		"number_of_input_tokens": Prompt, "out_tok": Output, "num_generation_tokens": Output, "n_output_tok": Output,
		"usage.completion_tkns": Output, "total_tok": Total,
	} {
		if rankOf(usual[want], plainKeys(name)) < 0 {
			t.Errorf("%s: %v is not %s", name, plainKeys(name), want)
		}
	}
	for _, name := range []string{"token", "auth_token", "in", "number", "tokens_per_s"} {
		for _, f := range []Field{Prompt, Output, Total} {
			if rankOf(usual[f], plainKeys(name)) >= 0 {
				t.Errorf("%s is taken for %s", name, f)
			}
		}
	}
}
