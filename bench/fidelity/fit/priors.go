package fit

// figurePriors are the standard deviations of the logarithms of coefficients of law roofline about the values of a
// computed profile, for fits to the figures of runs. Each is the spread between computed and measured values on other
// servers than the one that is fitted (lab/docs/computed-profiles.md), rounded. Runs at low rates do not determine
// every coefficient. Such a coefficient stays near its computed value, instead of taking up the errors of others.
var figurePriors = map[string]float64{
	// Computed over published steps of one request, models from 7 to 72 billion weights: 0.85 to 1.14.
	"decode.base_ms": 0.1,
	// Four servers: 128, 154, 156 and 308 times the hidden state of a request.
	"decode.per_request_ms": 0.4,
	// Five servers: 0.895, 0.896, 0.907, 1 and 1 of the bandwidth.
	"decode.per_kv_token_us": 0.06,
	// Three servers: 0.68, 0.79 and 0.84 of the largest matrix product.
	"prefill.per_token_us": 0.1,
	// FlashAttention-3 by the length of the prompt: 0.43 to 0.62 of the FLOP/s.
	"prefill.per_token_ctx_ns": 0.2,
	// No other measurement: a factor of 2 up or down.
	"prefill.mixed_ms": 0.7, "prefill.mixed_per_request_ms": 0.7,
	// Engines with an API in front: 4 to 12 ms, outliers to 52.
	"request_overhead_ms": 0.7,
}

// withPriors sets the priors of the knobs of law roofline.
func withPriors(knobs []knob) []knob {
	for i := range knobs {
		knobs[i].Prior = figurePriors[knobs[i].Name]
	}
	return knobs
}
