package httpapi

import (
	"testing"

	"lorasim/internal/testutil"
)

func TestParse(t *testing.T) {
	for _, k := range []Kind{Auto, SGLang, VLLM} {
		if got, err := Parse(string(k), Auto, SGLang, VLLM); err != nil || got != k {
			t.Errorf("%s: %s, %v", k, got, err)
		}
	}
	for _, name := range []string{"vlm", "auto"} {
		_, err := Parse(name, SGLang, VLLM)
		testutil.ExpectError(t, err, "vllm")
	}
}
