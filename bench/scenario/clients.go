package scenario

import (
	"errors"
	"fmt"
	"slices"

	"lorasim/trace/synth"
)

// Settings that the serving benchmarks' clients know by the same names, with
// their meaning.

// paced says whether requests come as such a client sends them.
func (w *Workload) paced() bool {
	return w.Burstiness != 0 || w.RampUpStrategy != "" || w.usesTrace() && !w.UseTraceTimestamps
}

// llmTrace says whether the source is an LLM trace.
func (w *Workload) llmTrace() bool {
	return w.usesTrace() && slices.Contains([]string{"azure_llm", "burstgpt", "mooncake"}, w.traceName())
}

// checkClients finds contradictions among these settings.
func (w *Workload) checkClients() error {
	def := Default().Workload
	generated := w.File == "" && w.TraceHistogram == "" && !w.usesTrace() && w.Compat == ""
	switch {
	case w.RampUpStrategy == "" && (w.RampUpStartRPS != 0 || w.RampUpEndRPS != 0):
		return errors.New("ramp_up_start_rps and ramp_up_end_rps need ramp_up_strategy: linear or exponential")
	case w.RampUpStrategy != "" && !(w.RampUpStartRPS > 0 && w.RampUpEndRPS >= w.RampUpStartRPS):
		return fmt.Errorf("ramp_up_strategy needs a ramp_up_start_rps above 0 and a ramp_up_end_rps that is no less, not %v and %v", w.RampUpStartRPS, w.RampUpEndRPS)
	case (w.paced() || w.LoraRequestDist != "") && !generated && !w.llmTrace():
		return errors.New("burstiness, ramp_up, lora_request_distribution and use_trace_timestamps=false are for generated requests and for LLM traces")
	case w.paced() && generated && (w.Arrivals != def.Arrivals || w.Pattern != def.Pattern || w.Drift != 0 || w.Sessions != ""):
		return errors.New("burstiness and ramp_up say when all requests come: they leave no room for arrivals, pattern, drift and sessions")
	case w.paced() && w.llmTrace() && w.UseTraceTimestamps:
		return errors.New("burstiness and ramp_up replace the trace's times: give use_trace_timestamps=false")
	case (w.Burstiness != 0 || w.RampUpStrategy != "") && w.NumPrompts == 0 && (w.Window > 0 || w.usesTrace()):
		return errors.New("burstiness and ramp_up need num_prompts: the times depend on it")
	case w.LoraRequestDist != "" && w.Sessions != "":
		return errors.New("lora_request_distribution chooses the adapters: it leaves no room for sessions")
	case (w.LoraRequestDist == synth.DistinctAdapters || w.LoraRequestDist == synth.SkewedAdapters) && w.NumAdapters == 1:
		return fmt.Errorf("lora_request_distribution %s needs more than one adapter", w.LoraRequestDist)
	}
	return nil
}

// asClients gives the requests the times and adapters that a benchmark's client
// would give them, where that is asked for.
func (s *Scenario) asClients(in *Input) error {
	w := &s.Workload
	var err error
	if w.LoraRequestDist != "" {
		if in.Source, err = synth.Assigned(in.Source, w.LoraRequestDist, w.LoraZipfAlpha, s.Seed); err != nil {
			return fmt.Errorf("lora_request_distribution: %w", err)
		}
	}
	if !w.paced() {
		return nil
	}
	p := synth.Pace{Rate: w.RequestRate, Burstiness: w.Burstiness,
		Ramp: synth.Ramp{Strategy: w.RampUpStrategy, Start: w.RampUpStartRPS, End: w.RampUpEndRPS}}
	if p.Burstiness == 0 {
		p.Burstiness, p.FromZero = 1, w.RampUpStrategy == ""
	}
	n := w.NumPrompts
	if !w.usesTrace() {
		n = w.generated()
	}
	in.Source, err = synth.Paced(in.Source, p, n, s.Seed)
	return err
}
