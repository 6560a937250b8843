package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/gateway"
)

// Long bodies that break off, arrive too slowly, or name another adapter late: the
// client gets an error of its own, and no worker counts as failing.
func TestBrokenLongBody(t *testing.T) {
	begin := `{"model": "a", "prompt": "` + strings.Repeat("x", 1200<<10)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for _, c := range []struct {
		name, rest string // of the body, in chunks
		status     int
	}{
		{"bad chunk", "zz\r\n", http.StatusBadRequest},
		{"too slow", "", http.StatusRequestTimeout},
		{"another model", chunk(`", "model": "b"}`) + "0\r\n\r\n", http.StatusBadRequest},
		{"another adapter", chunk(`", "lora_p\u0061th": "b"}`) + "0\r\n\r\n", http.StatusBadRequest},
		{"sound", chunk(`", "x": {"model": "b"}, "y": ["model"], "z": "\"model\":" , "modelx": 1}`) + "0\r\n\r\n",
			http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				srv, _ := faulty(t, "least-loaded", 3, faultworker.Rule{},
					func(g *gateway.Config) { g.ClientTimeout = 2 * time.Second })
				for range 20 {
					conn := dial(t, srv.URL, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(begin)+c.rest)
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(resp.Body)
					conn.Close()
					if resp.StatusCode != c.status {
						t.Fatalf("status %d, expected %d: %s", resp.StatusCode, c.status, text)
					}
				}
				if _, text := get(t, srv.URL+"/admin/workers"); strings.Contains(text, `"ejected":true`) ||
					strings.Count(text, `"consecutive_failures":0`) != 3 {
					t.Errorf("workers are blamed: %s", text)
				}
			})
		})
	}
}
