package requestlog

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// plainLog is the log that the mutations below change.
func plainLog() string {
	return tabular("timestamp,adapter,prompt_tokens,output_tokens", func(r logged) string {
		return fmt.Sprintf("%s,%s,%d,%d", r.at.Format(time.RFC3339Nano), r.adapter, r.prompt, r.output)
	})
}

// dated writes the log with times in another form.
func dated(layout string) string {
	return tabular("timestamp;adapter;prompt_tokens;output_tokens", func(r logged) string {
		return fmt.Sprintf("%s;%s;%d;%d", r.at.Format(layout), r.adapter, r.prompt, r.output)
	})
}

// utf16Of is a text in UTF-16 with a byte order mark, as PowerShell's > writes it.
func utf16Of(text string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune("\uFEFF" + text)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// mutation is a log that people have, and what the report must say of it. All give the same workload.
type mutation struct{ text, says string }

func mutations() map[string]mutation {
	plain := plainLog()
	header, body, _ := strings.Cut(plain, "\n")
	replace := func(old, by string) string { return strings.ReplaceAll(plain, old, by) }
	jsonl := ""
	for _, r := range rows() {
		jsonl += fmt.Sprintf(`{"ts": %q, "lora": %q, "usage": {"prompt_tokens": %d, "completion_tokens": %d}}`+"\n",
			r.at.Format(time.RFC3339Nano), r.adapter, r.prompt, r.output)
	}
	psql := tabular(" timestamp | adapter | prompt_tokens | output_tokens \n-----+-----+-----+----",
		func(r logged) string {
			return fmt.Sprintf(" %s | %s | %d | %d ", r.at.Format("2006-01-02 15:04:05.000+00"), r.adapter, r.prompt,
				r.output)
		})
	words := tabular("time   adapter  prompt_tokens output_tokens", func(r logged) string {
		return fmt.Sprintf("%s   %s %d\t%d", r.at.Format(time.RFC3339Nano), cmp.Or(r.adapter, "-"), r.prompt, r.output)
	})
	twoColumns := tabular("date,time,adapter,prompt_tokens,output_tokens", func(r logged) string {
		return fmt.Sprintf("%s,%s,%s,%d,%d", r.at.Format("2006-01-02"), r.at.Format("15:04:05.000"), r.adapter,
			r.prompt,
			r.output)
	})
	return map[string]mutation{
		"comments":          {"# exported by hand\n#\n" + plain + "# the end\n", "kept       4 of 4"},
		"header in comment": {"# my gateway\n# " + plain, `column "timestamp"`},
		"blank lines":       {"\n\n" + replace("\n", "\n\n"), "kept       4 of 4"},
		"excel": {
			"sep=;\r\n" + strings.NewReplacer(",", ";", "\n", "\r\n").Replace(plain),
			"separator ';'",
		},
		"utf-16":         {utf16Of(plain), "separator ','"},
		"trailing comma": {replace("\n", ",\n"), ""},
		"psql":           {psql + "(4 rows)\n", "dropped    1: "},
		"markdown": {"| timestamp | adapter | prompt_tokens | output_tokens |\n| --- | --- | --- | --- |\n" +
			strings.ReplaceAll("| "+strings.ReplaceAll(strings.TrimSpace(body), ",", " | ")+" |", "\n", " |\n| "), ""},
		"white space":   {words, "white space"},
		"date and time": {twoColumns, `time       column "date", with column "time", dates`},
		"unknown values": {
			replace("512", "512") + "2024-05-16T09:00:01Z,sql,N/A,5\n-,chat,1,1\n",
			"dropped    1: prompt tokens are no whole number (first: line 6)",
		},
		"no zone":     {replace("Z,", ","), "dates without a zone, read as UTC"},
		"zone name":   {dated("2006-01-02 15:04:05.000 MST"), "dates"},
		"day first":   {dated("02/01/2006 15:04:05.000"), "dates, day/month/year without a zone"},
		"month first": {dated("01/02/2006 03:04:05.000 PM"), "dates, month/day/year"},
		"german":      {dated("02.01.2006 15:04:05,000"), "dates"},
		"log style":   {dated("[02/Jan/2006:15:04:05.000 -0700]"), "dates"},
		"seconds": {tabular("time;adapter;prompt;output", func(r logged) string {
			return fmt.Sprintf("%s;%s;%d;%d", strings.Replace(fmt.Sprintf("%.3f", r.at.Sub(begin).Seconds()), ".", ",",
				1),
				r.adapter, r.prompt, r.output)
		}), "s since the log's origin"},
		"unit in name": {tabular("Time (ms),adapter,prompt,output", func(r logged) string {
			return fmt.Sprintf("%d,%s,%d,%d", r.at.Sub(begin).Milliseconds(), r.adapter, r.prompt, r.output)
		}), "ms since the log's origin"},
		"upside down": {header + "\n" + upsideDown(body), "rows were sorted by arrival"},
		"failed rows": {
			strings.Replace(replace("\n", ",\n"), "output_tokens,", "output_tokens,error", 1) +
				"2024-05-16T09:00:01Z,sql,5,5,timeout\n",
			"dropped    1: the request failed (first: line 6)",
		},
		"status text": {
			strings.Replace(replace("\n", ",200 OK\n"), "200 OK", "status", 1) +
				"2024-05-16T09:00:01Z,sql,5,5,503 Service Unavailable\n",
			"the request failed",
		},
		"unknown as 0": {
			strings.Replace(replace("\n", ",0\n"), "output_tokens,0", "output_tokens,server_input_tokens", 1),
			`column "prompt_tokens"`,
		},
		"cut off": {jsonl + `{"ts": "2024-05`, "dropped    1: not valid JSON (first: line 5)"},
		"text in JSONL": {
			"INFO: started\n" + strings.Replace(jsonl, "\n", "\nWARN: {slow}\n", 1),
			"dropped    2: not valid JSON (first: line 1)",
		},
		"cut off array": {
			"[\n" + strings.ReplaceAll(strings.TrimSpace(jsonl), "\n", ",\n") + `, {"ts"`,
			"the end of the file is cut off",
		},
		"list inside": {
			`{"exported": "today", "tags": ["a"], "requests": [` +
				strings.ReplaceAll(strings.TrimSpace(jsonl), "\n", ",") + "]}",
			"JSON",
		},
	}
}

func upsideDown(body string) string {
	var out string
	for line := range strings.Lines(body) {
		out = line + out
	}
	return out
}

// Logs in the forms that people have them give the workload of the plain log.
func TestMutations(t *testing.T) {
	for name, m := range mutations() {
		t.Run(name, func(t *testing.T) {
			w, report, err := Read(t.Context(), []string{write(t, "log", m.text)}, Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, m.text)
			}
			checkRows(t, w, rows())
			if !strings.Contains(report.String(), m.says) {
				t.Errorf("the report lacks %q:\n%s", m.says, report)
			}
		})
	}
}

// What cannot be a log says what is missing and how to mend it.
func TestMutationErrors(t *testing.T) {
	plain := plainLog()
	for want, text := range map[string]string{
		"no column holds the numbers of output tokens: expected one such as output_tokens, found timestamp, adapter, " +
			"prompt_tokens; name it with lorasim trace import --columns output=NAME": strings.Replace(plain,
			",output_tokens", "", 1),
		"no column holds the times of arrival": strings.NewReplacer("timestamp", "day_of",
			"2024-05-16T", "Thursday, ").Replace(plain),
		"the log has no rows":                                   "timestamp,adapter,prompt_tokens,output_tokens\n",
		"the log has no rows: it holds comments alone":          "# nothing\n#\n",
		"line 3 is \"5,sql,1,1\", expected the names":           "# mine\n\n5,sql,1,1\n",
		"the zone CEST of \"2024-05-16 09:00:00 CEST\" is ambi": "date;prompt;output\n2024-05-16 09:00:00 CEST;1;1\n",
	} {
		_, _, err := Read(t.Context(), []string{write(t, "log", text)}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}
