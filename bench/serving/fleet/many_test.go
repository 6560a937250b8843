package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/router"
	"lorasim/trace"
)

// manyAdapters is a fleet of workers that list so many adapters, which it takes in.
func manyAdapters(t testing.TB, workers, adapters int) (f *Fleet, lines *[]string) {
	var list strings.Builder
	list.WriteString(`{"data":[{"id":"base"}`)
	for a := range adapters {
		fmt.Fprintf(&list, `,{"id":"adapter%d","object":"model","owned_by":"sglang","root":"/adapters/adapter%d","parent":"base"}`, a, a)
	}
	list.WriteString("]}")
	text := []byte(list.String())
	net := memnet.New()
	lines = new([]string)
	cfg := Config{Connection: Connection{API: httpapi.SGLang, Client: &http.Client{Transport: net.Transport()}},
		Log:     func(format string, args ...any) { *lines = append(*lines, fmt.Sprintf(format, args...)) },
		Now:     func() float64 { return 0 },
		Timeout: 5 * time.Minute} // the lists are long, and the machine may be busy
	cfg.Extend = func([]Info, []trace.Adapter) (*router.Router, []Limits, error) {
		return &router.Router{Policy: &fixed{}, Placement: make([][]int32, workers)}, nil, nil
	}
	cfg.Router, _, _ = cfg.Extend(nil, nil)
	for w := range workers {
		host := net.Serve(fmt.Sprintf("host%d", w), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/models":
				rw.Write(text)
			case "/server_info", "/v1/loads":
				fmt.Fprint(rw, "{}")
			default:
				http.NotFound(rw, r)
			}
		}))
		t.Cleanup(host.Kill)
		cfg.URLs = append(cfg.URLs, host.URL)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); cfg.Client.CloseIdleConnections() })
	if err := f.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return f, lines
}

// Adapters beyond what can be known are left alone, which is said once, and so is a
// list that is too long to read.
func TestTooManyAdapters(t *testing.T) {
	f, lines := manyAdapters(t, 2, maxAdapters+7)
	f.prober.probe(context.Background(), f.workers[0])
	if n := len(f.Adapters()); n != maxAdapters || f.Up() != 2 {
		t.Errorf("%d adapters, %d workers are up", n, f.Up())
	}
	text := strings.Join(*lines, "\n")
	if n := strings.Count(text, "holds more than 100000 adapters; the others are ignored"); n != 2 {
		t.Errorf("%d lines on adapters left alone, expected one for each worker", n)
	}
	if !strings.Contains(text, "holds adapter adapter9") || !strings.Contains(text, "holds 99990 more adapters") ||
		len(*lines) != 13 {
		t.Errorf("%d lines: %.1000s", len(*lines), text)
	}
	if a := f.Lookup("adapter99999"); a != 99999 || f.Lookup("adapter100000") >= 0 {
		t.Errorf("adapter %d", a)
	}
}

// A list that is too long to read is logged once; the worker serves what is loaded from
// here.
func TestListTooLong(t *testing.T) {
	f, lines := manyAdapters(t, 1, 180_000)
	f.prober.probe(context.Background(), f.workers[0])
	if len(f.Adapters()) > 0 || f.Up() != 1 || len(*lines) != 1 ||
		!strings.HasSuffix((*lines)[0], "GET /v1/models: the answer is too long: more than 16777216 bytes: its adapters are unknown, except those loaded by this process") {
		t.Errorf("%d adapters, %d up, %q", len(f.Adapters()), f.Up(), *lines)
	}
}

// Neither a request nor a look at a worker costs more than its part with many adapters.
func BenchmarkManyAdapters(b *testing.B) {
	f, _ := manyAdapters(b, 4, 20_000)
	b.Run("Lookup", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Lookup("adapter19999")
		}
	})
	b.Run("Up", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Up()
		}
	})
	b.Run("Status", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Status()
		}
	})
	b.Run("Workers", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Workers()
		}
	})
	b.Run("Probe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.prober.probe(context.Background(), f.workers[0])
		}
	})
	b.Run("Request", func(b *testing.B) {
		b.ReportAllocs()
		n := int64(0)
		for b.Loop() {
			n++
			r := &Request{Request: router.Request{ID: n, Adapter: int32(n % 20_000)}}
			f.Requests.Route(r)
			f.LoRAs.Ensure(context.Background(), 0, r.Adapter)
			f.Requests.Tokens(r, 1, true)
			f.Requests.Left(r)
		}
	})
}
