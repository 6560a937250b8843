package scripts

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What runs in a browser has no library for Parquet or Arrow and no system calls of Unix.
func TestBrowserDependencies(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "lorasim/bench/scenario", "lorasim/bench/study/compare",
		"lorasim/bench/replay")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	for _, p := range list {
		for _, heavy := range []string{"apache/arrow", "parquet", "flatbuffers", "brotli", "klauspost/compress",
			"golang.org/x/sys/unix", "golang.org/x/term", "net/http"} {
			if strings.Contains(p, heavy) {
				t.Errorf("%s is needed, expected no %s", p, heavy)
			}
		}
	}
	if len(list) < 100 {
		t.Errorf("%d packages, expected hundreds", len(list))
	}
}
