package lengths

// preset is a fitted log-normal: mean after capping and cap in tokens.
type preset struct {
	mean, sigma float64
	cap         int32
}

func (p preset) tokens() Tokens {
	t, err := FromMean(p.mean, p.sigma, p.cap)
	if err != nil {
		panic("lengths: bad preset: " + err.Error()) // the presets are constants
	}
	return t
}

// fitted are the presets fitted to traces. The mean is the trace's. Sigma, in
// steps of 0.01, minimises the sum of the squared log errors of median and 95th
// percentile at that mean. The cap is the largest length of the trace, but for
// the prompts of the conversation trace its 99th percentile: only 1 % lie
// above, up to 14050, while many lie just below.
//
// Lengths of the conversation trace are far from log-normal (they pile up near
// 4100 and 450 tokens), so that its quantiles are missed by a fifth to a third;
// use the trace itself where that matters. Target and outcome, tokens:
//
//	                       mean            p50          p95
//	azure-conv  prompts    1155  1155.0    1020   820   4083  3632
//	            outputs     211   211.0     129   166    451   526
//	azure-code  prompts    2048  2048.0    1469  1382   7303  7042
//	            outputs      28    28.0      13    13     90    99
//	sharegpt    prompts    2340  2340.0    1730  1769   6563  6597
//	            outputs   438.7   438.7     415   392    920   907
//
// Sources: Azure LLM inference traces 2023 (Splitwise, ISCA'24); ShareGPT
// conversations with their history, tokenised for Llama 2, at most 8k tokens.
func fitted(name string) (LogNormal, bool) {
	var prompt, output preset
	switch name {
	case "azure-conv":
		prompt, output = preset{1155, 0.91, 4142}, preset{211, 0.70, 1000}
	case "azure-code":
		prompt, output = preset{2048, 0.99, 7437}, preset{28, 1.21, 1899}
	case "sharegpt":
		prompt, output = preset{2340, 0.80, 8141}, preset{438.7, 0.51, 1024}
	default:
		return LogNormal{}, false
	}
	return LogNormal{prompt.tokens(), output.tokens()}, true
}
