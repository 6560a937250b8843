// Command eppjudge runs the endpoint picker of the Gateway API Inference Extension v1.5.0 in
// process: its config loader, plugins, scheduler, director and ext_proc handler. Endpoints and
// metrics come from a case instead of Kubernetes and model servers. lorasim does not import this
// module.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sigs.k8s.io/gateway-api-inference-extension/apix/v1alpha2"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config/loader"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/datalayer"
	fwkdl "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requestcontrol/dataproducer/approximateprefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/handlers"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/requestcontrol"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/scheduling"
)

// An Engine is an endpoint picker with fresh state.
type Engine struct {
	rec     *recorder
	eps     []fwkdl.Endpoint
	latency map[string]*Latency
	objs    map[string]int
	rewr    map[string]string

	Effective string // configuration after the loader's defaults
	Config    *config.Config
	handle    fwkplugin.Handle
	server    *handlers.StreamingServer
	open      map[string]*stream
	cancel    context.CancelFunc
}

func NewEngine(yaml []byte, seed uint64, givenLatency bool) (*Engine, error) {
	return newEngine(yaml, seed, givenLatency, true)
}

// newEngine returns an engine. Without recording, all plugins are the real ones.
func newEngine(yaml []byte, seed uint64, givenLatency, recording bool) (*Engine, error) {
	registerOnce()
	e := &Engine{rec: &recorder{}, open: map[string]*stream{}}
	if seed != 0 {
		e.rec.rng = rand.New(rand.NewPCG(seed, 1))
	}
	ctx, cancel := context.WithCancel(context.Background())
	if recording {
		ctx = context.WithValue(ctx, recKey{}, e.rec)
	}
	e.cancel = cancel
	ctx = log.IntoContext(ctx, logr.Discard())
	raw, _, err := loader.LoadRawConfig(yaml, logr.Discard())
	if err != nil {
		return nil, err
	}
	e.handle = fwkplugin.NewEppHandle(ctx, func() (names []types.NamespacedName) {
		for _, p := range e.eps {
			names = append(names, p.GetMetadata().NamespacedName)
		}
		return names
	})
	if e.Config, err = loader.InstantiateAndConfigure(raw, e.handle, logr.Discard()); err != nil {
		return nil, err
	}
	e.Effective = raw.String()
	if givenLatency {
		e.handle.AddPlugin("latency-given", latencyGiven{e})
	}
	rc := requestcontrol.NewConfig()
	rc.AddPlugins(e.handle.GetAllPlugins()...)
	order, err := datalayer.ValidateAndOrderDataDependencies(e.handle.GetAllPlugins())
	if err != nil {
		return nil, err
	}
	rc.OrderPrepareDataPlugins(order)
	candidates := requestcontrol.NewDatastoreEndpointCandidates(e)
	parser := handlers.NewParser(e.Config.ParserConfig)
	director := requestcontrol.NewDirectorWithConfig(e, scheduling.NewSchedulerWithConfig(e.Config.SchedulerConfig),
		requestcontrol.NewLegacyAdmissionController(e.Config.SaturationDetector, candidates), parser, candidates, rc)
	e.server = handlers.NewStreamingServer(e, director, parser)
	return e, nil
}

func (e *Engine) Close() { e.cancel() }

// The datastore of the director.

func (e *Engine) PoolGet() (*datalayer.EndpointPool, error) {
	return datalayer.NewEndpointPool("default", "pool"), nil
}
func (e *Engine) ObjectiveGet(name string) *v1alpha2.InferenceObjective {
	p, ok := e.objs[name]
	if !ok {
		return nil
	}
	return &v1alpha2.InferenceObjective{Spec: v1alpha2.InferenceObjectiveSpec{Priority: &p}}
}
func (e *Engine) PodList(pred func(fwkdl.Endpoint) bool) (out []fwkdl.Endpoint) {
	for _, p := range e.eps {
		if pred(p) {
			out = append(out, p)
		}
	}
	return out
}
func (e *Engine) ModelRewriteGet(model string) (*v1alpha2.InferenceModelRewriteRule, string) {
	to, ok := e.rewr[model]
	if !ok {
		return nil, ""
	}
	targets := []v1alpha2.TargetModel{{ModelRewrite: to, Weight: 1}}
	return &v1alpha2.InferenceModelRewriteRule{Targets: targets}, "rewrite"
}

// SetEndpoints sets the endpoints of the engine. Endpoints that stay keep their attributes.
func (e *Engine) SetEndpoints(eps []Endpoint) {
	known := map[string]fwkdl.Endpoint{}
	for _, p := range e.eps {
		known[p.GetMetadata().NamespacedName.Name] = p
	}
	e.eps, e.latency = nil, map[string]*Latency{}
	for _, s := range eps {
		m := fwkdl.NewMetrics()
		for _, a := range s.Active {
			m.ActiveModels[a] = 0
		}
		for _, a := range s.Waiting {
			m.WaitingModels[a] = 0
		}
		m.MaxActiveModels, m.RunningRequestsSize, m.WaitingQueueSize = s.MaxActive, s.Running, s.Queue
		m.KVCacheUsagePercent, m.CacheBlockSize, m.CacheNumBlocks = s.KV, s.BlockSize, s.NumBlocks
		m.UpdateTime = time.Now().Add(time.Hour) // fresh, whatever the length of a step
		if s.Stale {
			m.UpdateTime = time.Now().Add(-time.Hour)
		}
		p := known[s.Name]
		if p == nil {
			host, port, _ := strings.Cut(s.Address, ":")
			p = fwkdl.NewEndpoint(&fwkdl.EndpointMetadata{
				NamespacedName: types.NamespacedName{Namespace: "default", Name: s.Name},
				PodName:        s.Name, Address: host, Port: port, MetricsHost: s.Address, Labels: s.Labels,
			}, nil)
		}
		p.UpdateMetrics(m)
		if s.Latency != nil {
			e.latency[s.Name] = s.Latency
		}
		e.eps = append(e.eps, p)
	}
}

// stream is Envoy's side of one ext_proc stream.
type stream struct {
	grpc.ServerStream
	ctx  context.Context
	in   chan *extproc.ProcessingRequest
	out  chan *extproc.ProcessingResponse
	done chan error
}

func (s *stream) Context() context.Context { return s.ctx }
func (s *stream) Send(r *extproc.ProcessingResponse) error {
	s.out <- r
	return nil
}
func (s *stream) Recv() (*extproc.ProcessingRequest, error) {
	r, ok := <-s.in
	if !ok {
		return nil, io.EOF
	}
	return r, nil
}

// Request sends a request through the engine and returns the outcome.
func (e *Engine) Request(q Request) (Outcome, error) {
	e.rec.reset()
	ctx := log.IntoContext(context.Background(), logr.Discard())
	s := newStream(ctx, 8)
	go func() { s.done <- e.server.Process(s); close(s.out) }()

	hdr := &corev3.HeaderMap{}
	add := func(k, v string) {
		hdr.Headers = append(hdr.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(v)})
	}
	add(":method", "POST")
	add(":path", q.Path)
	add("x-request-id", q.ID)
	for _, k := range slices.Sorted(maps.Keys(q.Headers)) {
		add(k, q.Headers[k])
	}
	var md *corev3.Metadata
	if q.Subset != nil {
		l := make([]any, len(*q.Subset))
		for i, x := range *q.Subset {
			l[i] = x
		}
		st, err := structpb.NewStruct(map[string]any{"x-gateway-destination-endpoint-subset": l})
		if err != nil {
			return Outcome{}, err
		}
		md = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": st}}
	}
	head := requestHeaders(&extproc.HttpHeaders{Headers: hdr})
	head.MetadataContext = md
	s.in <- head
	request := requestBody(q.Body, true)
	request.MetadataContext = md
	s.in <- request

	var o Outcome
	var body []byte
	for r := range s.out {
		if im := r.GetImmediateResponse(); im != nil {
			o.Status, o.Error = int(im.Status.Code), string(im.Body)
			break
		}
		if h := r.GetRequestHeaders(); h != nil {
			o.Status = 200
			o.Header = map[string]string{}
			for _, x := range h.Response.HeaderMutation.SetHeaders {
				if k := strings.ToLower(x.Header.Key); k == "x-gateway-destination-endpoint" || k == "content-length" {
					o.Header[k] = string(x.Header.RawValue)
				}
			}
			if b, err := protojson.Marshal(r.DynamicMetadata); err == nil {
				o.Metadata = canonical(b)
			}
		}
		if b := r.GetRequestBody(); b != nil {
			st := b.Response.BodyMutation.GetStreamedResponse()
			body = append(body, st.Body...)
			if st.EndOfStream {
				break
			}
		}
	}
	if body != nil {
		o.Body = body
	}
	e.settle()
	r := e.rec
	o.Filters, o.Scores, o.Totals, o.Best = r.filters, r.scores, r.totals, r.best
	o.Picked, o.Picker, o.Prefix, o.InFlight = r.picked, r.picker, r.prefixes, r.inflight
	if o.Status == 200 {
		e.open[q.ID] = s
	} else {
		close(s.in)
		for range s.out {
		}
		<-s.done
	}
	return o, nil
}

// Finish ends the response of a routed request. id is the ID of the request.
func (e *Engine) Finish(id string) {
	s := e.open[id]
	if s == nil {
		return
	}
	delete(e.open, id)
	h := headers(":status", "200", "content-type", "application/json")
	s.in <- responseHeaders(&extproc.HttpHeaders{Headers: h})
	s.in <- responseBody([]byte(`{"usage":{}}`), true)
	close(s.in)
	for range s.out {
	}
	<-s.done
}

// settle waits until the prefix index, which is filled asynchronously, has its entries.
func (e *Engine) settle() {
	for _, p := range e.handle.GetAllPlugins() {
		if p.TypedName().Type != approximateprefix.ApproxPrefixCachePluginType {
			continue
		}
		if f := reflect.ValueOf(p).Elem().FieldByName("wg"); f.IsValid() {
			(*sync.WaitGroup)(unsafe.Pointer(f.UnsafeAddr())).Wait()
		}
	}
}

func canonical(b []byte) json.RawMessage {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return nil
	}
	b, _ = json.Marshal(v)
	return b
}

// RunCase runs a case with fresh state and sets its outcomes. configs reads a configuration by its
// file name.
func RunCase(configs func(string) ([]byte, error), c *Case) error {
	y, err := configs(c.Config)
	if err != nil {
		return err
	}
	given := false
	for _, s := range c.Steps {
		for _, p := range s.Endpoints {
			given = given || p.Latency != nil
		}
	}
	e, err := NewEngine(y, c.Seed, given)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Config, err)
	}
	defer e.Close()
	e.objs, e.rewr = c.Objectives, c.Rewrites
	for i := range c.Steps {
		s := &c.Steps[i]
		if s.Endpoints != nil {
			e.SetEndpoints(s.Endpoints)
		}
		for _, id := range s.Finished {
			e.Finish(id)
		}
		if s.Expect, err = e.Request(s.Request); err != nil {
			return err
		}
	}
	for id := range maps.Clone(e.open) {
		e.Finish(id)
	}
	return nil
}
