package fit

import (
	"strings"

	"lorasim/sim/profile"
)

// loraSpread is the standard deviation of the logarithm of a coefficient of LoRA about its start, in fits to figures.
// Measured times of LoRA kernels are 1.4 to 10.3 times the roofline ([profile.LoRAFactorLow],
// [profile.LoRAFactorHigh]), a factor of 2.7 up or down of the computed 4.
const loraSpread = 1

// loraCoefficients returns the coefficients of the LoRA backend of a profile.
func loraCoefficients(l *profile.Latency) []string {
	switch l.LoRA.Backend {
	case profile.BackendCSGMV:
		return []string{"lora.csgmv_us", "lora.prefill_factor"}
	case profile.BackendTriton:
		return []string{"lora.triton_us", "lora.prefill_factor"}
	case profile.BackendRoofline:
		return []string{"lora.launch_ms", "lora.rank_us", "lora.token_rank_ns"}
	case profile.BackendMBGMV:
		return []string{"lora.launch_ms", "lora.rank_us", "lora.request_rank_us", "lora.token_rank_ns"}
	}
	return nil
}

// loosen gives the coefficients of LoRA a wide distance from their start.
func loosen(knobs []knob) {
	for i := range knobs {
		if strings.HasPrefix(knobs[i].Name, "lora.") {
			knobs[i].Loose = loraSpread
		}
	}
}

// adapted reports whether a fitted request of a run has an adapter.
func (run *replay) adapted() bool {
	for i := range run.Measured[:run.fitted] {
		if run.Measured[i].Adapter >= 0 {
			return true
		}
	}
	return false
}
