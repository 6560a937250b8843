package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// TestExplore: the command prints an address, the page is there and begins with the file, and an interrupt ends it.
func TestExplore(t *testing.T) {
	file := testutil.File(t, "mine.yaml", "scenario: {workload: {request_rate: 7, file: w.csv}}\npolicies: [static, p2c]\n")
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"explore", file}, strings.NewReader(""), in, &stderr)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	go io.Copy(io.Discard, out) // nobody reads the rest
	_, address, _ := strings.Cut(strings.TrimSpace(line), "explore at ")
	get := func(path string) string {
		res, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %d %v", path, res.StatusCode, err)
		}
		return string(data)
	}
	if page := get(""); !strings.Contains(page, "<title>lorasim explore</title>") {
		t.Errorf("%.200s", page)
	}
	begin := get("api/start")
	want := `"query":{"settings":{"workload.file":"` + filepath.Join(filepath.Dir(file), "w.csv") +
		`","workload.request_rate":"7"},"policies":["static","p2c"]`
	if !strings.Contains(begin, want) {
		t.Errorf("the page begins with %.300s, expected %s", begin[max(strings.LastIndex(begin, `"query"`), 0):], want)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

// TestExploreRefuses: addresses that other machines reach, and files that are none.
func TestExploreRefuses(t *testing.T) {
	for says, args := range map[string][]string{
		"expected a loopback address": {"--listen", "0.0.0.0:0"},
		"ssh -L":                      {"--listen", ":8080"},
		"no such file":                {"nowhere.yaml"},
		"unknown key":                 {testutil.File(t, "a.yaml", "workload: {speed: 3}\n")},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"explore"}, args...), strings.NewReader(""), io.Discard, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%v: %d %s, expected %q", args, code, stderr.String(), says)
		}
	}
}

// TestKeepIn: uploads keep their names, two of one name do not collide, and none leaves the folder.
func TestKeepIn(t *testing.T) {
	dir := t.TempDir()
	keep := keepIn(dir)
	seen := map[string]bool{}
	for _, name := range []string{"a.csv", "a.csv", "..", "../../b.csv", "/"} {
		path, err := keep(name, strings.NewReader("x"))
		if err != nil || seen[path] || !strings.HasPrefix(path, dir+string(filepath.Separator)) {
			t.Errorf("%q: %s (%v)", name, path, err)
		}
		seen[path] = true
		if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
			t.Errorf("%q: %q (%v)", path, data, err)
		}
	}
	if _, err := keep("a.csv", io.MultiReader(strings.NewReader("x"), failing{})); err == nil {
		t.Error("a broken upload is kept")
	}
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
