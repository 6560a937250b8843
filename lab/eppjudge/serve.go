package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/go-logr/logr"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/datalayer"
	fwkdl "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	extractormetrics "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	sourcemetrics "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
)

// serve answers Envoy as the endpoint picker does, without Kubernetes. The endpoints are fixed, and
// the real data layer reads their metrics every 50 ms.
func serve(config, listen, endpoints string) error {
	y, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	e, err := newEngine(y, 0, false, false)
	if err != nil {
		return err
	}
	rt := datalayer.NewRuntime(50 * time.Millisecond)
	if err := rt.Configure(e.Config.DataConfig, true, "", logr.Discard()); err != nil {
		return err
	}
	for i, a := range strings.Split(endpoints, ",") {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return err
		}
		e.eps = append(e.eps, rt.NewEndpoint(context.Background(), &fwkdl.EndpointMetadata{
			NamespacedName: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("pod-%d", i)},
			Address:        host, Port: port, MetricsHost: a,
			Labels: map[string]string{"inference.networking.k8s.io/engine-type": "vllm"},
		}, nil))
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	extproc.RegisterExternalProcessorServer(s, e.server)
	healthpb.RegisterHealthServer(s, health.NewServer())
	fmt.Fprintln(os.Stderr, "listening on", l.Addr())
	return s.Serve(l)
}

// metricsCmd prints the values that the metrics extractor reads from a scrape.
func metricsCmd(engine string) error {
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(os.Stdin)
	if err != nil {
		return err
	}
	x, err := extractormetrics.CoreMetricsExtractorFactory("x", nil, nil)
	if err != nil {
		return err
	}
	meta := &fwkdl.EndpointMetadata{Labels: map[string]string{}}
	if engine != "" {
		meta.Labels["inference.networking.k8s.io/engine-type"] = engine
	}
	ep := fwkdl.NewEndpoint(meta, nil)
	err = x.(fwkdl.Extractor).Extract(context.Background(), sourcemetrics.PrometheusMetricMap(families), ep)
	m := ep.GetMetrics()
	keys := func(m map[string]int) (k []string) {
		for n := range m {
			k = append(k, n)
		}
		slices.Sort(k)
		return k
	}
	out := map[string]any{
		"waiting_requests": m.WaitingQueueSize, "running_requests": m.RunningRequestsSize,
		"kv_usage":         m.KVCacheUsagePercent,
		"running_adapters": keys(m.ActiveModels), "waiting_adapters": keys(m.WaitingModels),
		"max_lora":   m.MaxActiveModels,
		"block_size": m.CacheBlockSize, "num_blocks": m.CacheNumBlocks, "updated": !m.UpdateTime.IsZero()}
	if err != nil {
		out["errors"] = strings.Split(err.Error(), "\n")
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
