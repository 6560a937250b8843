package lengths

import (
	"fmt"
	"math"
	"strings"

	"lorasim/internal/suggest"
)

// parseMeasured reads the changes to the preset measured-stride:
// output_mean=M, output_sigma=S, output_cap=C and the same for prompt.
func parseMeasured(args string) (Sampler, error) {
	m, _ := measured("measured-stride")
	known := []string{"prompt_mean", "prompt_sigma", "prompt_cap", "output_mean", "output_sigma", "output_cap"}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(args, ",") {
		key, text, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", part)
		}
		if seen[key] {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		x, err := number(key, text)
		if err != nil {
			return nil, err
		}
		switch key {
		case "prompt_mean":
			m.prompt.mean = x
		case "prompt_sigma":
			m.prompt.sigma = x
		case "output_mean":
			m.output.mean = x
		case "output_sigma":
			m.output.sigma = x
		case "prompt_cap", "output_cap":
			if x != math.Trunc(x) || x < 1 || x > math.MaxInt32 {
				return nil, fmt.Errorf("%s is %q, expected a whole number of tokens >= 1", key, text)
			}
			if key == "prompt_cap" {
				m.prompt.cap = int32(x)
			} else {
				m.output.cap = int32(x)
			}
		default:
			return nil, suggest.Unknown("option", key, known)
		}
	}
	for _, p := range []preset{m.prompt, m.output} {
		if err := checkTokens("mean", p.mean, p.sigma, p.cap); err != nil {
			return nil, err
		}
	}
	m.lengths = LogNormal{m.prompt.tokens(), m.output.tokens()}
	return m, nil
}
