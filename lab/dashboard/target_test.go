package dashboard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/extproc"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/metrics"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// target is a program that Prometheus scrapes.
type target struct {
	load    func() // sends some requests and waits for their ends
	metrics http.Handler
}

// scrape is a page of metrics and its content type, as Prometheus gets it.
func (to *target) scrape() ([]byte, string) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")
	rec := httptest.NewRecorder()
	to.metrics.ServeHTTP(rec, r)
	return rec.Body.Bytes(), rec.Header().Get("Content-Type")
}

// huge is an adapter whose load fails: its path states a rank that workers refuse.
const huge = "huge-r9999"

// adapters are known to the fleet; workers hold lora0 and lora1 of them.
var adapters = []string{"lora0", "lora1", "lora2", "lora3", huge}

// newFleet starts two emulated workers, and a fleet of them that is not started yet.
func newFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	p := profile.Default()
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 10}, Prefill: profile.Prefill{BaseMs: 10,
		FirstWaveFactor: 1}, LoRA: profile.LoRA{Backend: profile.BackendNone}}
	p.Memory.KVTokens, p.Name = 1<<20, "base"
	var urls []string
	for _, api := range []httpapi.Kind{httpapi.VLLM, httpapi.SGLang} {
		w, err := emulate.New(emulate.Config{ModelName: "base", Costs: p.Compile(), API: api, Speed: 20,
			Home: router.Disk, Adapters: []emulate.Adapter{{Name: adapters[0], Rank: 8}, {Name: adapters[1], Rank: 8}}})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(w)
		t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); w.Close() })
		urls = append(urls, srv.URL)
	}
	known := trace.Names(len(adapters), []int{8})
	for i := range known {
		known[i].Name = adapters[i]
	}
	rt, err := router.New("least-loaded", router.Env{Adapters: known, Seed: 1, Workers: router.Alike(len(urls),
		router.Spec{MaxRunning: 64, Slots: 8, Cost: profile.Model{Costs: p.Compile()}})})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: urls, Client: client}, Router: rt,
		Adapters: known})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); client.CloseIdleConnections() })
	return f
}

// start starts a fleet whose loads are counted from now on.
func start(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// rounds sends requests: for each adapter, an unknown model, and one whose adapter cannot be loaded. ask returns the
// status of a reply.
func rounds(t *testing.T, f *fleet.Fleet, ask func(body string) (int, error)) func() {
	round := 0
	return func() {
		evict(t, f, adapters[2+round%2]) // so that each round loads one
		round++
		var wg sync.WaitGroup
		for i, name := range append(adapters, "base", "nobody") {
			for range 3 {
				wg.Go(func() {
					body := fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":8,"stream":%t}`, name, i%2 == 0)
					status, err := ask(body)
					if good := name != huge && name != "nobody"; err != nil || good != (status == http.StatusOK) {
						t.Errorf("%s: status %d, %v", body, status, err)
					}
				})
			}
		}
		wg.Wait()
	}
}

// evict unloads an adapter from all workers.
func evict(t *testing.T, f *fleet.Fleet, name string) {
	for w := range f.Status() {
		_ = f.LoRAs.Unload(t.Context(), w, name) // an error: the worker does not hold it
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		held := slices.ContainsFunc(f.Workers(), func(s fleet.WorkerState) bool {
			return slices.Contains(s.Adapters, name)
		})
		if !held {
			return
		}
		if time.Now().After(end) {
			t.Errorf("after 20 s a worker still holds %s", name)
			return
		}
	}
}

// startGateway is a gateway before two workers.
func startGateway(t *testing.T) *target {
	t.Helper()
	f := newFleet(t)
	g, err := gateway.New(gateway.Config{Fleet: f, Retries: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	start(t, f)
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	return &target{metrics: g.Admin(), load: rounds(t, f, func(body string) (int, error) {
		resp, err := http.Post(srv.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	})}
}

// startEPP is an endpoint picker for two workers, asked as Envoy asks it: by Envoy's own types over gRPC.
func startEPP(t *testing.T) *target {
	t.Helper()
	f := newFleet(t)
	m := metrics.New(metrics.Config{Component: "epp", Fleet: f})
	begun := time.Now()
	picker := extproc.NewFleetPicker(extproc.FleetConfig{Fleet: f, Metrics: m,
		Now: func() float64 { return time.Since(begun).Seconds() }})
	start(t, f)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: extproc.New(extproc.Config{Picker: picker, Refused: picker.CountRefused})}
	extproc.Configure(srv)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := ext.NewExternalProcessorClient(conn)
	ask := func(body string) (int, error) { return exchange(c, body) }
	return &target{metrics: m.Handler(), load: rounds(t, f, ask)}
}

// exchange plays Envoy's part for one request: it asks for a worker, sends the request there, and passes the reply
// through the picker. It returns the status of the reply.
func exchange(c ext.ExternalProcessorClient, body string) (int, error) {
	s, err := c.Process(context.Background())
	if err != nil {
		return 0, err
	}
	defer s.CloseSend()
	send := func(r *ext.ProcessingRequest) (*ext.ProcessingResponse, error) {
		if err := s.Send(r); err != nil {
			return nil, err
		}
		return s.Recv()
	}
	err = s.Send(&ext.ProcessingRequest{Request: &ext.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false,
		":method", "POST", ":path", "/v1/completions", "content-type", "application/json")}})
	if err != nil {
		return 0, err
	}
	picked, err := send(&ext.ProcessingRequest{Request: &ext.ProcessingRequest_RequestBody{
		RequestBody: &ext.HttpBody{Body: []byte(body), EndOfStream: true}}})
	if err != nil {
		return 0, err
	}
	if no := picked.GetImmediateResponse(); no != nil {
		return int(no.GetStatus().GetCode()), nil
	}
	changed, err := s.Recv()
	if err != nil {
		return 0, err
	}
	var worker string
	for _, h := range picked.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			worker = string(h.GetHeader().GetRawValue()) + h.GetHeader().GetValue()
		}
	}
	sent := changed.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()
	resp, err := http.Post("http://"+worker+"/v1/completions", "application/json", strings.NewReader(string(sent)))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err = send(&ext.ProcessingRequest{Request: &ext.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: headers(false, ":status", fmt.Sprint(resp.StatusCode))}}); err != nil {
		return 0, err
	}
	for end := false; !end; {
		piece := make([]byte, 1<<10)
		n, err := resp.Body.Read(piece)
		if end = err == io.EOF; err != nil && !end {
			return 0, err
		}
		if _, err = send(&ext.ProcessingRequest{Request: &ext.ProcessingRequest_ResponseBody{
			ResponseBody: &ext.HttpBody{Body: piece[:n], EndOfStream: end}}}); err != nil {
			return 0, err
		}
	}
	_ = s.CloseSend()
	if _, err = s.Recv(); err != io.EOF { // the picker has counted the request
		return 0, fmt.Errorf("after the end: %v", err)
	}
	return resp.StatusCode, nil
}

// headers are a message of headers.
func headers(end bool, pairs ...string) *ext.HttpHeaders {
	m := &core.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &ext.HttpHeaders{Headers: m, EndOfStream: end}
}
