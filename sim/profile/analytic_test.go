package profile

import (
	"math"
	"strings"
	"testing"
)

// The numbers of weights that the models are published with.
func TestParameters(t *testing.T) {
	published := map[string]float64{ // 10^9
		"llama-2-7b": 6.74, "llama-2-13b": 13.02, "llama-2-70b": 68.98, "llama-3-8b": 8.03, "llama-3.1-70b": 70.55,
		"qwen2.5-0.5b": 0.494, "qwen2.5-7b": 7.62, "qwen2.5-32b": 32.8, "qwen2.5-72b": 72.7,
		"qwen3-4b": 4.02, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5, "deepseek-v3": 671,
	}
	for _, m := range Architectures() {
		want, ok := published[m.Name]
		if ok && math.Abs(m.Parameters()/1e9/want-1) > 0.01 {
			t.Errorf("%s has %.2f billion weights, published are %.2f", m.Name, m.Parameters()/1e9, want)
		}
		delete(published, m.Name)
	}
	if len(published) > 0 {
		t.Errorf("models that are not there: %v", published)
	}
	active := map[string]float64{"deepseek-v3": 37, "qwen3-30b-a3b": 3.3}
	for _, m := range Architectures() {
		// published with the input embedding, of which a token reads one row
		got := (m.Active() + float64(m.Vocab*m.Hidden)) / 1e9
		if want := active[m.Name]; want > 0 && math.Abs(got/want-1) > 0.03 {
			t.Errorf("%s uses %.1f billion weights for a token, published are %.1f", m.Name, got, want)
		}
	}
}

// Sizes worked out by hand: 32 layers x 2 x 32 heads x 128 x 2 bytes of KV, and
// the 5.0 MB per rank of adapters on all linear layers of Llama-2-7B.
func TestAnalyticSizes(t *testing.T) {
	p, err := NewAnalytic("llama-2-7b", "rtx-4090").Profile()
	if err != nil {
		t.Fatal(err)
	}
	if p.Memory.KVBytesPerToken != 524288 || math.Abs(p.Adapters.BytesPerRank/5.0e6-1) > 0.01 {
		t.Errorf("KV %d bytes per token, adapters %.0f bytes per rank", p.Memory.KVBytesPerToken, p.Adapters.BytesPerRank)
	}
	if !p.Uncalibrated || !strings.Contains(p.Source, "never held against") {
		t.Error("an analytic profile is not marked as uncalibrated")
	}
	// 6.61e9 weights x 2 bytes (the input embedding is not read) / (0.85 x 1008e9) = 15.4 ms + 0.5
	if got := p.Latency.Decode.BaseMs; math.Abs(got-15.92) > 0.05 {
		t.Errorf("decode base is %v ms, expected 15.92", got)
	}
	// the pool holds what memory and weights leave: 24 x 0.88 - 12.55 GiB, and as much
	// as another GPU has; a latent cache lies on every GPU: 141 x 0.88 - 625/16 GiB
	for _, c := range []struct {
		a          Analytic
		want, near float64
	}{{analytic("llama-2-7b", "rtx-4090", 1, 0), 8.57, 0.05}, {analytic("llama-2-7b", "rtx-4090", 2, 0), 29.69, 0.05}, {analytic("deepseek-v3", "h200", 16, 0), 85.0, 0.5}} {
		if p, err = c.a.Profile(); err != nil || math.Abs(p.Memory.PoolGiB-c.want) > c.near {
			t.Errorf("%+v: a pool of %v GiB (%v), expected %v", c.a, p.Memory.PoolGiB, err, c.want)
		}
	}
}

func TestAnalyticEveryPair(t *testing.T) {
	for _, m := range Architectures() {
		for _, g := range GPUs() {
			p, err := NewAnalytic(m.Name, g.Name).Profile()
			if err != nil {
				t.Errorf("%s on %s: %v", m.Name, g.Name, err)
				continue
			}
			text, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(text, p.Name); err != nil {
				t.Errorf("%s does not read back: %v", p.Name, err)
			}
		}
	}
}

func analytic(model, gpu string, tp, bits int) Analytic {
	a := NewAnalytic(model, gpu)
	a.TP, a.Bits = tp, bits
	return a
}

func TestAnalyticFaults(t *testing.T) {
	for name, c := range map[string]struct {
		a    Analytic
		want string
	}{
		"model": {NewAnalytic("llama-2-8b", "h100"), "llama-2-7b"},
		"gpu":   {NewAnalytic("llama-2-7b", "h300"), "did you mean"},
		"small": {analytic("llama-2-70b", "rtx-4090", 1, 0), "too much for 1 x rtx-4090"},
		"bits":  {analytic("llama-2-7b", "h100", 0, 7), "7 bits"},
		"tp":    {analytic("llama-2-7b", "h100", 65, 0), "1 to 64"},
	} {
		if _, err := c.a.Profile(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
}

// The expected distinct experts of a batch, linear at the batch of reference.
func TestExpertsOfABatch(t *testing.T) {
	for bits, tflops := range map[int]float64{8: 1979e12, 16: 989e12} {
		p, err := analytic("deepseek-v3", "h200", 16, bits).Profile()
		if err != nil {
			t.Fatal(err)
		}
		m := Architectures()[len(Architectures())-1]
		distinct := 256 * (1 - math.Pow(1-8.0/256, 32)) // 163.3 of 256
		read := (m.fixed() + m.moeLayers()*distinct*m.expert()) * float64(bits) / 8
		bandwidth := 16 * 4800e9 * 0.85
		compute := 16 * tflops * 0.6
		want := 1000*read/bandwidth + 1000*32*2*m.Active()/compute + stepMs + 0.02*122
		got := p.Latency.Decode.BaseMs + 32*p.Latency.Decode.PerRequestMs
		if math.Abs(got/want-1) > 0.001 {
			t.Errorf("%d bits: a step of 32 requests takes %v ms, expected %v", bits, got, want)
		}
	}
}
