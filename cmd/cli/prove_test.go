package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// accessLog is a log of n requests of two adapters, one each second, on a worker of their own.
func accessLog(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"time":%q,"level":"INFO","msg":"request","method":"POST","path":"/v1/completions",`+
			`"status":200,"duration_s":0.5,"adapter":"a%d","worker":%[2]d,"url":"http://gpu%[2]d:8000","tries":1,`+
			`"prompt_tokens":100,"max_tokens":20,"output_tokens":20,"events":20,"first_byte_s":0.05}`+"\n",
			time.Unix(1772373600+int64(i), 0).UTC().Format(time.RFC3339), i%2)
	}
	return b.String()
}

func TestProveErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"few.log": accessLog(20), "other.log": accessLog(20),
		"bad.log": strings.Replace(accessLog(2), `"status":200`, `"status":"?"`, 1), "up.txt": "up 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"few.log --draws 5":                            {exitUsage, "--draws needs --prove"},
		"few.log up.txt":                               {exitUsage, "accepts at most 1 arg"},
		"--prove":                                      {exitUsage, "expected the access log of lorasim gateway"},
		"few.log other.log --prove":                    {exitUsage, "are logs: expected one, and files of metrics"},
		"s.yaml --prove":                               {exitUsage, "s.yaml is a scenario, expected an access log"},
		"few.log --prove --map":                        {exitUsage, "--map has no effect with --prove"},
		"few.log --prove --from noon":                  {exitUsage, `--from: "noon", expected a time with its zone`},
		"few.log --prove -o hour.txt":                  {exitUsage, `hour.txt: unknown file format ".txt"`},
		"few.log --prove":                              {exitFailed, "expected at least 200 in each half"},
		"few.log --prove --num-workers 1":              {exitFailed, "at least 200"},
		"few.log up.txt --prove":                       {exitFailed, "no metrics of engines"},
		"up.txt --prove":                               {exitFailed, "neither an access log nor metrics"},
		"bad.log --prove":                              {exitFailed, `bad.log:1: status is "?", expected`},
		"few.log --prove --until 2020-01-01T00:00:00Z": {exitFailed, "no request of the log is in the time"},
	} {
		var out, errs bytes.Buffer
		all := append([]string{"explain"}, strings.Fields(args)...)
		code := run(t.Context(), all, strings.NewReader(""), &out, &errs)
		if code != want.code || !strings.Contains(errs.String(), want.text) {
			t.Errorf("explain %s: exit code %d, %q, expected %d and %q", args, code, errs.String(), want.code,
				want.text)
		}
	}
}

// A fleet in which nothing waits is reproduced, by flags or by metrics. Another number of slots is as good.
func TestProve(t *testing.T) {
	folder := t.TempDir()
	path := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	metrics := "sglang:num_running_reqs 1\nsglang:lora_pool_slots_total 1\nsglang:max_total_num_tokens 9000\n"
	log, page := path("access.log", accessLog(500)), filepath.Join(folder, "hour.html")
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"explain", log, path("gpu0.txt", metrics), "--prove", "--draws", "2", "--json",
		"-o", page}, strings.NewReader(""), &out, &errs)
	var answer struct {
		Policy   string
		Slots    int
		KVTokens int `json:"kv_tokens"`
		Refused  []string
	}
	err := json.Unmarshal(out.Bytes(), &answer)
	if code != exitOK || err != nil || answer.Policy != "static" || answer.Slots != 1 || answer.KVTokens != 9000 {
		t.Errorf("exit code %d, %v, %+v, %s", code, err, answer, errs.String())
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("TTFT by minute")) {
		t.Errorf("page of %d bytes, %v", len(text), err)
	}
	out.Reset()
	if code := run(t.Context(), []string{"explain", log, "--prove", "--policy", "static", "--max-error", "1e-9"},
		strings.NewReader(""), &out, &errs); code != exitRefused || !strings.Contains(out.String(), "not reproduced") {
		t.Errorf("exit code %d, expected %d: %s", code, exitRefused, out.String())
	}
}
