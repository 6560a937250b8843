package cli

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A gateway follows its file of workers: one that the file lists later serves, and takes the place of the first.
func TestWorkersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workers.txt")
	write := func(urls ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(urls, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start := func(name string) string {
		return serving(t, "worker", "--listen", "127.0.0.1:0", "--served-model-name", name, "--num-adapters", "1",
			"--time-scale", "100").url
	}
	first, second := start("m"), start("m")
	write("# one", first)
	gateway := serving(t, "gateway", "--workers-file", file, "--listen", "127.0.0.1:0", "--poll-interval", "50ms",
		"--access-log", "none", "--allow", "/metrics")
	metrics := func() string {
		resp, err := http.Get(gateway.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	up := func(url string) string { return `worker_up{worker="` + url + `"} 1` }
	await := func(what, has, lacks string) {
		t.Helper()
		for range 600 {
			if m := metrics(); strings.Contains(m, has) && (lacks == "" || !strings.Contains(m, lacks)) {
				return
			}
			time.Sleep(50 * time.Millisecond) // there is no event to wait for in another process
		}
		t.Fatalf("%s:\n%s", what, metrics())
	}
	await("the first worker", up(first), second)
	write(first, second)
	await("the second worker", up(second), "")
	write(second)
	await("the second worker alone", up(second), first)
	resp, err := http.Post(gateway.url+"/v1/completions", "application/json",
		strings.NewReader(`{"model": "lora0", "prompt": "hello", "max_tokens": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestWorkersFileErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.txt")
	if err := os.WriteFile(bad, []byte("http://a:1\nftp://b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		bad:              "--workers-file: " + bad + `:2: worker URL "ftp://b", expected http(s)://HOST:PORT`,
		bad + "-missing": "no such file",
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"gateway", "--workers-file", file}, strings.NewReader(""), &out,
			&errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %s; expected %s", file, code, errs.String(), want)
		}
	}
}
