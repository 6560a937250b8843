package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
)

// A policy that fails is reported once, and its requests are served.
func TestPolicyFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.star")
	program := "def route(request, workers):\n    return workers[request.id]\n"
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newTestFleet(t, 3, 2)
	defer f.Close()
	env := router.Env{Workers: router.Alike(3, router.Spec{}), Adapters: f.Adapters()}
	rt, err := router.New("script:file="+path, env)
	if err != nil {
		t.Fatal(err)
	}
	f.router = rt
	var log []string
	f.cfg.Log = func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	for id := range int64(6) {
		w := f.Requests.Route(&Request{Request: router.Request{ID: id, Prompt: 10, MaxNew: 20}})
		if want := int(id) % 3; w != want {
			t.Errorf("request %d: worker %d, expected %d", id, w, want)
		}
	}
	testutil.ExpectError(t, f.Requests.Fault(), "policy script:", path+":2:", "out of range")
	if len(log) != 1 || !strings.Contains(log[0], "goes to the least loaded worker") {
		t.Errorf("log: %q", log)
	}
}
