package matrix

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lorasim/bench/result/importer"
	"lorasim/internal/testutil"
	"lorasim/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// block is what a client of the tests prints.
const block = `
============ Serving Benchmark Result ============
Backend:                                 sglang    
Successful requests:                     7         
Benchmark duration (s):                  2.50      
==================================================
`

// write puts a matrix file into a folder of its own.
func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.yaml")
	for name, content := range map[string]string{"m.yaml": text, "block.txt": block} {
		testutil.Write(t, filepath.Join(dir, name), content)
	}
	return path
}

func run(t *testing.T, path string, o Options) []Row {
	t.Helper()
	m, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

const twoByTwo = `
name: test
env: {WHO: world}
servers:
  - name: good
    command: echo $$ > good.pid; echo hello $WHO; exec sleep 100000
    ready: {log: "^hello world", timeout: 1h}
    stop: {timeout: 5s}
  - name: never
    command: echo $$ > never.pid; sleep 100000
    ready: {log: ready, timeout: 300ms}
clients:
  - name: one
    command: echo one >> ran.txt; cat block.txt
  - name: two
    command: echo two >> ran.txt; test "$MATRIX_SERVER $MATRIX_CLIENT" = "good two" && cat block.txt; test -d "$MATRIX_DIR"
`

// Two servers, one of which never gets ready, and two clients: the others run,
// nothing is left running, and a second call runs only what failed.
func TestMatrix(t *testing.T) {
	path := write(t, twoByTwo)
	dir := filepath.Dir(path)
	rows := run(t, path, Options{})
	want := []struct{ server, client, status, say string }{
		{"good", "one", "ok", ""}, {"good", "two", "ok", ""},
		{"never", "one", "failed", "server: not ready within 300ms"},
		{"never", "two", "failed", "server: not ready within 300ms"},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, w := range want {
		r := rows[i]
		if r.Server != w.server || r.Client != w.client || r.Status != w.status || r.Error != w.say {
			t.Errorf("row %d: %+v, expected %+v", i, r, w)
		}
		if w.status == "ok" && (r.Metrics["completed"] != 7 || r.Metrics["duration"] != 2.5) {
			t.Errorf("row %d: metrics %v", i, r.Metrics)
		}
	}
	for _, name := range []string{"good.pid", "never.pid"} {
		pid, err := os.ReadFile(filepath.Join(dir, name))
		if name == "never.pid" && len(pid) == 0 {
			continue // it was stopped before it got anywhere
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
			t.Errorf("server %s still runs", name)
		}
	}
	if Failed(rows) != 2 {
		t.Errorf("%d failed", Failed(rows))
	}
	ran := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "ran.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(data)), " ")
	}
	if got := ran(); got != "one two" {
		t.Errorf("clients ran: %s", got)
	}

	again := run(t, path, Options{})
	if got := ran(); got != "one two" || !again[0].resumed || again[2].resumed {
		t.Errorf("a second call ran %q, rows %+v", got, again)
	}
	run(t, path, Options{Rerun: true})
	if got := ran(); got != "one two one two" {
		t.Errorf("with Rerun: %s", got)
	}

	imported, _, err := importer.Files(t.Context(), trace.Files{}, []string{filepath.Join(dir, "m.out", "results.txt")})
	if err != nil || len(imported) != 2 || imported[1].Server != "good" || imported[1].Client != "two" {
		t.Errorf("import of the joined log: %v, %d runs", err, len(imported))
	}
	var table strings.Builder
	if err := WriteTable(&table, again); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(table.String(), "\n"); len(lines) != 6 || !strings.Contains(lines[1], "already done") ||
		!strings.Contains(lines[3], "not ready within") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct{ name, server, client, say string }{
		{"the server ends early", "{name: s, command: exit 3, ready: {log: x}}", "{name: c, command: 'true'}",
			"server: ended before it was ready: exit status 3"},
		{"the client fails", "{name: s, command: exec sleep 100000}", "{name: c, command: exit 4}",
			"client: exit status 4"},
		{"the client hangs", "{name: s, command: exec sleep 100000}",
			"{name: c, command: sleep 100000, timeout: 100ms}", "client: not done within 100ms"},
	} {
		rows := run(t, write(t, "servers: ["+c.server+"]\nclients: ["+c.client+"]\n"), Options{})
		if len(rows) != 1 || rows[0].Status != "failed" || rows[0].Error != c.say {
			t.Errorf("%s: %+v", c.name, rows)
		}
	}
}

// A server that ignores the signal is killed.
func TestUnwillingServer(t *testing.T) {
	path := write(t, `
servers: [{name: s, command: "trap '' TERM; echo up; while true; do sleep 0.05; done", ready: {log: up}, stop: {timeout: 200ms}}]
clients: [{name: c, command: cat block.txt}]
`)
	var log strings.Builder
	if rows := run(t, path, Options{Log: &log}); rows[0].Status != "ok" ||
		!strings.Contains(log.String(), "killed: it did not stop within 200ms") {
		t.Errorf("%+v\n%s", rows, log.String())
	}
}

// An interrupted combination is not recorded as done.
func TestInterrupted(t *testing.T) {
	path := write(t, "servers: [{name: s, command: exec sleep 100000}]\nclients: [{name: c, command: sleep 100000}]\n")
	m, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if rows, err := m.Run(ctx, Options{}); err == nil || len(rows) != 0 {
		t.Errorf("rows %+v, error %v", rows, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "m.out", "s+c", statusFile)); err == nil {
		t.Error("there is a status of what was interrupted")
	}
}

func TestParseErrors(t *testing.T) {
	const ok = "servers: [{name: s, command: x}]\nclients: [{name: c, command: x}]\n"
	for _, c := range []struct{ text, say string }{
		{"", "0 servers and 0 clients"},
		{ok + "colour: red\n", "colour"},
		{"servers: [{name: s/t, command: x}]\nclients: [{name: c, command: x}]\n", `servers[0].name is "s/t"`},
		{"servers: [{name: s, command: x}, {name: s, command: y}]\nclients: [{name: c, command: x}]\n",
			"appears twice"},
		{"servers: [{name: s}]\nclients: [{name: c, command: x}]\n", "servers[0] (s): command is missing"},
		{"servers: [{name: s, command: x, stop: {signal: KLL}}]\nclients: [{name: c, command: x}]\n", "stop.signal"},
		{"servers: [{name: s, command: x, ready: {log: '('}}]\nclients: [{name: c, command: x}]\n", "ready.log"},
		{"servers: [{name: s, command: x, ready: {timeout: soon}}]\nclients: [{name: c, command: x}]\n", "soon"},
		{ok + "repeat: -1\n", "repeat is -1"},
		{ok + "repeat: 1001\n", "repeat is 1001, expected 1 to 1000"},
		{"servers: [{name: s, command: x}]\n", "1 servers and 0 clients"},
		{"servers: [{name: s, command: x, ready: {timeout: -1s}}]\nclients: [{name: c, command: x}]\n",
			"servers[0] (s): timeouts must not be negative"},
		{"servers: [{name: s, command: x, stop: {timeout: -1s}}]\nclients: [{name: c, command: x}]\n",
			"servers[0] (s): timeouts must not be negative"},
	} {
		_, err := parse([]byte(c.text), "m.yaml")
		testutil.ExpectError(t, err, "m.yaml", c.say)
	}
}

// The ends of what is allowed, and a server and a client of one name.
func TestParseEnds(t *testing.T) {
	for _, text := range []string{
		"servers: [{name: s, command: x}]\nclients: [{name: s, command: x}]\nrepeat: 1\n",
		"servers: [{name: s, command: x, ready: {timeout: 0s}}]\nclients: [{name: c, command: x}]\nrepeat: 1000\n",
	} {
		if _, err := parse([]byte(text), "m.yaml"); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(twoByTwo))
	f.Add([]byte("servers: [{name: s, command: x, ready: {timeout: 1h, urls: [a]}}]\nclients: [{name: c, command: x}]\nrepeat: 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data, "dir/m.yaml")
		if err != nil {
			return
		}
		cs, err := m.combinations()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, c := range cs {
			if seen[c.Dir] {
				t.Fatalf("two combinations in %s", c.Dir)
			}
			seen[c.Dir] = true
		}
	})
}
