package requestlog

import (
	"strings"
	"testing"
	"time"

	"lorasim/trace"
)

const accessLine = `{"time":"2026-03-01T14:00:02.5Z","level":"INFO","msg":"request","client":"127.0.0.1:5",` +
	`"method":"POST","path":"/v1/completions","status":200,"bytes":17,"duration_s":2.5,"adapter":"a","worker":1,` +
	`"url":"http://gpu1:8000","tries":2,"prompt_tokens":30,"max_tokens":100,"output_tokens":20,"events":21,` +
	`"first_byte_s":0.25}`

// Both forms of the gateway's log give the same requests; other lines are left out.
func TestReadAccessLog(t *testing.T) {
	text := `time=2026-03-01T14:00:02.5Z level=INFO msg=request client=127.0.0.1:5 method=POST path=/v1/completions ` +
		`status=200 bytes=17 duration_s=2.5 adapter=a worker=1 url=http://gpu1:8000 tries=2 prompt_tokens=30 ` +
		`max_tokens=100 output_tokens=20 events=21 first_byte_s=0.25`
	want := Access{Line: 2, End: time.Date(2026, 3, 1, 14, 0, 2, 5e8, time.UTC), Duration: 2.5, FirstByte: 0.25,
		Adapter: "a", Worker: 1, URL: "http://gpu1:8000", Status: 200, Tries: 2, Prompt: 30, Output: 20, MaxTokens: 100,
		Events: 21}
	other := `{"time":"2026-03-01T14:00:02Z","level":"INFO","msg":"request","path":"/health","status":200,` +
		`"duration_s":1}`
	for _, line := range []string{accessLine, text} {
		path := write(t, "access.log", "lorasim: listening on :8000\n"+line+"\n"+other+"\n"+
			strings.Replace(line, "503", "200", 1)+"\n")
		list, err := ReadAccessLog(t.Context(), trace.Files{}, path)
		if err != nil || len(list) != 2 || list[0] != want || list[1].Line != 4 {
			t.Errorf("%+v, %v, expected %+v", list, err, want)
		}
	}
}

func TestReadAccessLogErrors(t *testing.T) {
	for old, c := range map[string]struct{ now, want string }{
		`"status":200`:                    {`"status":"gone"`, `access.log:1: status is "gone", expected a whole`},
		`"duration_s":2.5`:                {`"duration_s":-1`, `duration_s is "-1", expected a number of seconds`},
		`"time":"2026-03-01T14:00:02.5Z"`: {`"time":"noon"`, `time is "noon", expected a time as in`},
		`"worker":1`:                      {`"worker":1.5`, `worker is "1.5", expected a whole number of -1 to`},
		`"first_byte_s":0.25}`:            {`"first_byte_s":0.25`, `access.log:1: not a JSON object`},
		`"msg":"request"`:                 {`"msg":"other"`, `no request for a model, expected the access log`},
		`"prompt_tokens":30,`:             {`"prompt_tokens":3e99,`, `prompt_tokens is "3e99"`},
	} {
		path := write(t, "access.log", strings.Replace(accessLine, old, c.now, 1))
		list, err := ReadAccessLog(t.Context(), trace.Files{}, path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, expected %s", c.now, list, err, c.want)
		}
	}
}

// Whatever a line holds, it is left out, an error, or a request within the limits.
func FuzzAccess(f *testing.F) {
	f.Add([]byte(accessLine))
	f.Add([]byte(`time=2026-03-01T14:00:02.5Z level=INFO msg=request method=POST path=/generate status=200 ` +
		`duration_s=1 adapter="a b"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, is, err := parseAccess(text)
		if err != nil || !is {
			return
		}
		if a.Adapter == "" || !(a.Duration >= 0) || !(a.FirstByte >= 0) || a.Worker < -1 || a.Output < -1 ||
			a.Prompt < 0 {
			t.Fatalf("%q: %+v", text, a)
		}
	})
}
