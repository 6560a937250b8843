package main

import (
	"context"
	"encoding/json"
	"sync"

	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/config/loader"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/flowcontrol"
	fwkfc "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/flowcontrol"
	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	fwkrc "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requestcontrol"
	fwk "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	attrlat "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/attribute/latency"
	extractormetrics "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	sourcemetrics "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/fairness"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/ordering"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/saturationdetector/concurrency"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/usagelimits"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requestcontrol/dataproducer/approximateprefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requestcontrol/requestdataproducer/inflightload"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/passthrough"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/filter/prefixcacheaffinity"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/filter/sloheadroomtier"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/picker"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/profile"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/kvcacheutilization"
	latencyscorer "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/latency"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/loraaffinity"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/prefix"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/queuedepth"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/runningrequests"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/tokenload"
)

// latencyGiven replaces the predicted-latency producer, whose models run elsewhere. It returns the
// predictions of the case.
type latencyGiven struct{ e *Engine }

func (latencyGiven) TypedName() fwkplugin.TypedName {
	return fwkplugin.TypedName{Type: "latency-given", Name: "latency-given"}
}
func (latencyGiven) Consumes() map[string]any { return nil }
func (latencyGiven) Produces() map[string]any {
	return map[string]any{attrlat.LatencyPredictionInfoKey: attrlat.LatencyPredictionInfo{}}
}
func (l latencyGiven) PrepareRequestData(_ context.Context, _ *fwk.LLMRequest, eps []fwk.Endpoint) error {
	for _, e := range eps {
		if g := l.e.latency[epName(e)]; g != nil {
			e.Put(attrlat.LatencyPredictionInfoKey, attrlat.NewLatencyPredictionInfoWithDispatch(
				g.TTFTHeadroom >= 0, g.TPOTHeadroom >= 0, g.TTFTHeadroom, g.TPOTHeadroom, g.TTFT, g.TPOT, g.Dispatched))
		}
	}
	return nil
}

var _ fwkrc.PrepareDataPlugin = latencyGiven{}

// recorded returns a function that registers a type of plugins. Plugins that run with a recorder are wrapped.
func recorded[P fwkplugin.Plugin](
	wrap func(P, *recorder) fwkplugin.Plugin,
) func(pluginType string, create fwkplugin.FactoryFunc) {
	return func(pluginType string, create fwkplugin.FactoryFunc) {
		recording := func(name string, p json.RawMessage, h fwkplugin.Handle) (fwkplugin.Plugin, error) {
			x, err := create(name, p, h)
			if rec := recFrom(h.Context()); err == nil && rec != nil {
				return wrap(x.(P), rec), nil
			}
			return x, err
		}
		fwkplugin.Register(pluginType, recording)
	}
}

var registerOnce = sync.OnceFunc(func() {
	scorer := recorded(func(x fwk.Scorer, rec *recorder) fwkplugin.Plugin { return recScorer{x, rec} })
	pick := recorded(func(x fwk.Picker, rec *recorder) fwkplugin.Plugin { return recPicker{x, rec} })
	filter := recorded(func(x fwk.Filter, rec *recorder) fwkplugin.Plugin {
		f := plainFilter{recFilter{x, rec}}
		if d, ok := x.(fwkfc.SaturationDetector); ok {
			return detector{f, d}
		}
		return f
	})
	scorer(prefix.PrefixCacheScorerPluginType, prefix.PrefixCachePluginFactory)
	scorer(kvcacheutilization.KvCacheUtilizationScorerType, kvcacheutilization.KvCacheUtilizationScorerFactory)
	scorer(queuedepth.QueueScorerType, queuedepth.QueueScorerFactory)
	scorer(runningrequests.RunningRequestsSizeScorerType, runningrequests.RunningRequestsSizeScorerFactory)
	scorer(loraaffinity.LoraAffinityScorerType, loraaffinity.LoraAffinityScorerFactory)
	scorer(tokenload.TokenLoadScorerType, tokenload.TokenLoadScorerFactory)
	scorer(latencyscorer.LatencyScorerType, latencyscorer.Factory)
	filter(prefixcacheaffinity.PluginType, prefixcacheaffinity.Factory)
	filter(sloheadroomtier.PluginType, sloheadroomtier.Factory)
	filter(concurrency.ConcurrencyDetectorType, concurrency.ConcurrencyDetectorFactory)
	filter(utilization.UtilizationDetectorType, utilization.UtilizationDetectorFactory)
	pick(picker.MaxScorePickerType, picker.MaxScorePickerFactory)
	pick(picker.RandomPickerType, picker.RandomPickerFactory)
	pick(picker.WeightedRandomPickerType, picker.WeightedRandomPickerFactory)
	fwkplugin.Register(profile.SingleProfileHandlerType, profile.SingleProfileHandlerFactory)
	fwkplugin.Register(fairness.GlobalStrictFairnessPolicyType, fairness.GlobalStrictFairnessPolicyFactory)
	fwkplugin.Register(fairness.RoundRobinFairnessPolicyType, fairness.RoundRobinFairnessPolicyFactory)
	fwkplugin.Register(ordering.FCFSOrderingPolicyType, ordering.FCFSOrderingPolicyFactory)
	fwkplugin.Register(ordering.EDFOrderingPolicyType, ordering.EDFOrderingPolicyFactory)
	fwkplugin.Register(ordering.SLODeadlineOrderingPolicyType, ordering.SLODeadlineOrderingPolicyFactory)
	fwkplugin.Register(usagelimits.StaticUsageLimitPolicyType, usagelimits.StaticPolicyFactory)
	fwkplugin.Register(approximateprefix.ApproxPrefixCachePluginType, approximateprefix.ApproxPrefixCacheFactory)
	fwkplugin.Register(inflightload.InFlightLoadProducerType, inflightload.InFlightLoadProducerFactory)
	fwkplugin.Register(sourcemetrics.MetricsDataSourceType, sourcemetrics.MetricsDataSourceFactory)
	fwkplugin.Register(extractormetrics.MetricsExtractorType, extractormetrics.CoreMetricsExtractorFactory)
	fwkplugin.Register(openai.OpenAIParserType, openai.OpenAIParserPluginFactory)
	fwkplugin.Register(passthrough.PassthroughParserType, passthrough.PassthroughParserPluginFactory)
	for _, g := range []string{
		datalayer.ExperimentalDatalayerFeatureGate, datalayer.EnableLegacyMetricsFeatureGate, flowcontrol.FeatureGate,
	} {
		loader.RegisterFeatureGate(g)
	}
})
