//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// traffic is the clients, and the results of their requests.
//
// A reply is whole if it has all its tokens. A stream is cut when its worker dies after the first
// token: the gateway does not have the token IDs to continue it. Any other reply that is not whole
// is lost, including an unstreamed reply whose worker died.
type traffic struct {
	url     string
	cluster *cluster
	client  *http.Client

	whole, gone, cut, lost, wrong atomic.Int64
	next                          atomic.Int64 // request id

	mu    sync.Mutex
	first string // first lost request
}

func newTraffic(url string, c *cluster) *traffic {
	return &traffic{url: url, cluster: c, client: &http.Client{Timeout: 2 * time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
}

// begin starts clients that each send one request after the other until ctx ends. wait waits for
// the last ones.
func (t *traffic) begin(ctx context.Context, clients int) (wait func()) {
	var wg sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(t.cluster.seed, uint64(c+1)))
		wg.Go(func() {
			for ctx.Err() == nil {
				t.one(rng)
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(50*time.Millisecond)))
			}
		})
	}
	return wg.Wait
}

// request is one request.
type request struct {
	adapter string
	tokens  int
	stream  bool
	leaves  bool // whether the client disconnects in the middle
}

func (t *traffic) one(rng *rand.Rand) {
	r := request{[]string{baseNames[0], "lora0", "lora1", "lora2", "lora3"}[rng.IntN(5)], 5 + rng.IntN(100),
		rng.IntN(3) > 0,
		rng.IntN(20) == 0}
	begun := time.Now()
	events, err := t.ask(r)
	switch {
	case errors.Is(err, errLeft):
		t.gone.Add(1)
	case err == nil:
		t.whole.Add(1)
	case errors.Is(err, errWrong):
		t.wrong.Add(1)
		t.note(fmt.Sprintf("%+v: %v", r, err))
	case r.stream && events > 0 && t.cluster.died(begun, time.Now()):
		t.cut.Add(1)
	default:
		t.lost.Add(1)
		t.note(fmt.Sprintf("%+v after %.2f s and %d events: %v", r, time.Since(begun).Seconds(), events, err))
	}
}

// note keeps the first example of a fault.
func (t *traffic) note(example string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == "" {
		t.first = example
	}
}

var (
	errLeft  = errors.New("the client left")
	errWrong = errors.New("another model or adapter served the request")
)

// judge returns errWrong if a worker served a request as MODEL:ADAPTER with another adapter than was asked for. Either
// base model may serve, as each is an alias of the other.
func judge(r request, served string) error {
	model, adapter, _ := strings.Cut(served, ":")
	if want := r.adapter; !slices.Contains(baseNames[:], model) ||
		adapter != want && (adapter != "" || !slices.Contains(baseNames[:], want)) {
		return fmt.Errorf("%w: %q", errWrong, served)
	}
	return nil
}

// ask sends a request. It returns the number of events of the reply, and an error if the reply is
// not whole.
func (t *traffic) ask(r request) (events int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body, err := json.Marshal(map[string]any{"model": r.adapter, "prompt": []int{1, 2, 3, r.tokens}, "stream": r.stream,
		"max_tokens": r.tokens, "ignore_eos": true})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", fmt.Sprint("r", t.next.Add(1)))
	if r.leaves && !r.stream {
		time.AfterFunc(20*time.Millisecond, cancel)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, leftOr(ctx, err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	part := make([]byte, 4096)
	for err == nil {
		var n int
		n, err = resp.Body.Read(part)
		text.Write(part[:n])
		if events = bytes.Count(text.Bytes(), []byte("data: ")); r.leaves && events > 2 {
			cancel()
			return events, errLeft
		}
	}
	if !errors.Is(err, io.EOF) {
		return events, leftOr(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := judge(r, resp.Header.Get("X-Served")); err != nil {
			return events, err
		}
	}
	return events, complete(r, resp.StatusCode, text.Bytes())
}

func leftOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errLeft
	}
	return err
}

// tokenPattern is a token of an emulated worker.
var tokenPattern = regexp.MustCompile(` t\d+`)

// complete returns an error if a reply is not complete.
func complete(r request, status int, text []byte) error {
	short := text[max(0, len(text)-300):]
	switch {
	case status != http.StatusOK:
		return fmt.Errorf("status %d: %s", status, short)
	case bytes.Contains(text, []byte(`"error"`)):
		return fmt.Errorf("an error event: %s", short)
	case !r.stream:
		var whole struct {
			Usage struct {
				Tokens int `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal(text, &whole); err != nil || whole.Usage.Tokens != r.tokens {
			return fmt.Errorf("%d of %d tokens: %s", whole.Usage.Tokens, r.tokens, short)
		}
	case !bytes.Contains(short, []byte("[DONE]")) || len(tokenPattern.FindAll(text, -1)) != r.tokens:
		return fmt.Errorf("the stream is not whole: %s", short)
	}
	return nil
}

func (t *traffic) counts() string {
	return fmt.Sprintf("%9d %6d %6d %6d", t.whole.Load(), t.gone.Load(), t.cut.Load(), t.lost.Load())
}

func (t *traffic) summary() string {
	return fmt.Sprintf("requests: %d whole, %d whose clients left, %d streams cut by the end of their worker, %d lost, "+
		"%d served by another model or adapter", t.whole.Load(), t.gone.Load(), t.cut.Load(), t.lost.Load(),
		t.wrong.Load())
}

func (t *traffic) example() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}
