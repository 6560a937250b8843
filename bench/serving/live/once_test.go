package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
)

// dropping is a worker that executes requests, and closes the connections of some
// without a reply: those whose id, of the given number of them, is below drops.
type dropping struct {
	drops, of int
	mu        *sync.Mutex
	executed  map[string]int // by prompt
}

// counts returns the executions of each prompt.
func (d *dropping) counts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.executed)
}

func (d *dropping) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/generate" {
		io.WriteString(rw, "{}")
		return
	}
	var q struct {
		IDs      []int32 `json:"input_ids"`
		Sampling struct {
			Max int `json:"max_new_tokens"`
		} `json:"sampling_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		panic(err)
	}
	d.mu.Lock()
	key := fmt.Sprint(q.IDs)
	d.executed[key]++
	drop := len(d.executed)%d.of < d.drops
	d.mu.Unlock()
	if drop {
		nc, _, _ := rw.(http.Hijacker).Hijack()
		if len(key)%2 == 0 {
			nc.(*net.TCPConn).SetLinger(0)
		}
		nc.Close()
		return
	}
	ids := strings.TrimSuffix(strings.Repeat("5,", q.Sampling.Max), ",")
	fmt.Fprintf(rw, "data: {\"text\":\"a\",\"output_ids\":[%s],\"meta_info\":{\"completion_tokens\":%d,\"finish_reason\":{\"type\":\"length\"}}}\n\ndata: [DONE]\n\n", ids, q.Sampling.Max)
}

// Workers read and execute requests and drop three of ten: without retries none is
// executed twice; with retries, none more than twice, and each repeat is counted.
func TestAtMostOnce(t *testing.T) {
	for _, retries := range []int{0, 1, 5} {
		for _, failover := range []bool{true, false} {
			d := &dropping{drops: 3, of: 10, mu: new(sync.Mutex), executed: map[string]int{}}
			var urls []string
			for range 3 {
				s := httptest.NewServer(d)
				defer s.Close()
				urls = append(urls, s.URL)
			}
			wl := workload(200, 0, 0.001)
			out := liveRun{cluster: &cluster{urls: urls}, wl: wl,
				set:      func(c *Config) { c.Retries, c.NoFailover = retries, !failover },
				setFleet: func(c *fleet.Config) { c.API = httpapi.SGLang }}.run(context.Background(), t)
			most, repeats := 1, 0
			if retries > 0 && failover {
				most = fleet.MaxLost
			}
			for prompt, n := range d.counts() {
				if repeats += n - 1; n > most {
					t.Errorf("%d retries, failover %v: request %.40s was executed %d times", retries, failover, prompt,
						n)
				}
			}
			s := out.stats
			if int(s.MaybeExecuted) != repeats || s.Retries < s.MaybeExecuted || (repeats > 0) != (most > 1) {
				t.Errorf("%d retries, failover %v: %d executed again, %+v", retries, failover, repeats, s)
			}
		}
	}
}

// A request that brings workers down reaches two of four.
func TestPoison(t *testing.T) {
	d := &dropping{drops: 1, of: 1, mu: new(sync.Mutex), executed: map[string]int{}}
	var urls []string
	for range 4 {
		s := httptest.NewServer(d)
		defer s.Close()
		urls = append(urls, s.URL)
	}
	out := liveRun{cluster: &cluster{urls: urls}, wl: workload(1, 0, 0), set: func(c *Config) { c.Retries = 10 },
		setFleet: func(c *fleet.Config) { c.API = httpapi.SGLang }}.run(context.Background(), t)
	for _, n := range d.counts() {
		if n != fleet.MaxLost {
			t.Errorf("executed %d times, expected %d", n, fleet.MaxLost)
		}
	}
	if out.stats.MaybeExecuted != 1 || out.recs[0].Error == "" {
		t.Errorf("%+v, %+v", out.stats, out.recs[0])
	}
}
