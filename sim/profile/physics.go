package profile

import (
	"regexp"
	"strings"
)

// A Floor gives the least times that the hardware of a worker allows, for any engine and any kernels. They
// are bytes read over the peak bandwidth of the GPUs, and floating-point operations over their peak rate.
type Floor struct {
	GPU   *GPU
	Count int           // GPUs of the worker, each with an equal part of the work
	Model *Architecture // nil: unknown; then only reading the KV cache has a floor
	Bits  int           // bits per weight

	kvBytes float64 // per token
}

// Floor returns the floor of a profile. It returns false if the profile's gpu names no GPU of hardware.yaml.
// For a name without the size of the memory, such as "H100", it uses the GPU of hardware.yaml with that name.
func (p *Profile) Floor() (Floor, bool) {
	f := Floor{GPU: gpuOf(p.GPU), Count: p.GPUs(), Model: architectureOf(p.Model), Bits: bitsOf(p.Model)}
	f.kvBytes = float64(p.Memory.KVBytesPerToken)
	return f, f.GPU != nil
}

// bandwidth returns the peak bandwidth of all GPUs, bytes/s.
func (f *Floor) bandwidth() float64 { return float64(f.Count) * f.GPU.GBPerS * 1e9 }

// PerKVTokenUs returns the time to read one token of the KV cache, us.
func (f *Floor) PerKVTokenUs() float64 { return f.kvBytes / f.bandwidth() * 1e6 }

// weightsMs returns the time in ms to read once the weights that a step of any size reads: all without the
// input embedding, and only the experts of one token. 0: the model is unknown.
func (f *Floor) weightsMs() float64 {
	if f.Model == nil {
		return 0
	}
	m := f.Model
	return m.bytes(m.fixed(), m.Active()-m.fixed(), f.Bits) / f.bandwidth() * 1000
}

// PerTokenUs returns the time to compute one token of a prompt, us: two operations for each weight, without
// the output layer, which only the last token of a prompt passes. 0: the model is unknown.
func (f *Floor) PerTokenUs() float64 {
	if f.Model == nil {
		return 0
	}
	return 2 * f.Model.body() / (float64(f.Count) * flops(f.GPU, f.Bits)) * 1e6
}

// LeastPerTokenUs returns the time to compute one token of a prompt at the rate that products of matrices reach on the
// GPUs of a profile, us; 0: the GPU or the model is unknown.
func (p *Profile) LeastPerTokenUs() float64 {
	f, ok := p.Floor()
	if !ok {
		return 0
	}
	gemm, _ := f.GPU.gemm(f.Bits)
	return f.PerTokenUs() / gemm.Compute
}

// adapterMs returns the time to read the weights of adapters whose ranks add up to ranks, ms.
func (f *Floor) adapterMs(bytesPerRank float64, ranks int) float64 {
	return bytesPerRank * float64(ranks) / f.bandwidth() * 1000
}

// Least returns the least value that the hardware allows for a coefficient, by its name in profiles and in
// its unit; 0 for other names. It bounds each coefficient of an additive law separately. That is stricter
// than physics: only the whole step must take at least the longer of reading and computing.
func (f *Floor) Least(name string) float64 {
	switch name {
	case "decode.per_kv_token_us", "adapters.per_kv_token_us":
		return f.PerKVTokenUs()
	case "decode.base_ms", "prefill.base_ms", "adapters.base_ms":
		return f.weightsMs()
	case "prefill.per_token_us", "adapters.per_token_us":
		return f.PerTokenUs()
	}
	return 0
}

// sizeOfMemory is a size with a space before its unit.
var sizeOfMemory = regexp.MustCompile(`(\d) gb\b`)

// words returns the words of a name in lower case, with a space before and after each, and sizes of memory as
// one word: " h100 64gb ".
func words(name string) string {
	name = strings.NewReplacer("-", " ", ",", " ").Replace(strings.ToLower(name))
	name = sizeOfMemory.ReplaceAllString(name, "${1}gb")
	return " " + strings.Join(strings.Fields(name), " ") + " "
}

// gpuOf returns the GPU that a profile's text names, the longest name if several match; nil: none.
func gpuOf(text string) (best *GPU) {
	text = words(text)
	all := GPUs()
	for i := range all {
		if g := &all[i]; strings.Contains(text, words(g.Name)) && (best == nil || len(g.Name) > len(best.Name)) {
			best = g
		}
	}
	return best
}

// architectureOf returns the model that a profile's text begins with, the longest name if several match; nil:
// none. It ignores an owner before a slash.
func architectureOf(text string) (best *Architecture) {
	name, _, _ := strings.Cut(strings.ToLower(text), " ")
	name = name[strings.LastIndex(name, "/")+1:]
	all := Architectures()
	for i := range all {
		m := &all[i]
		rest, ok := strings.CutPrefix(name, m.Name)
		if ok && (rest == "" || strings.ContainsAny(rest[:1], "-_,")) && (best == nil || len(m.Name) > len(best.Name)) {
			best = m
		}
	}
	return best
}

// bitsOf returns the bits per weight that a profile's text names, else 16.
func bitsOf(text string) int {
	text = strings.ToLower(text)
	for _, c := range []struct {
		bits  int
		names []string
	}{{4, []string{"4-bit", "int4", "fp4", "awq", "gptq", "w4"}}, {8, []string{"8-bit", "int8", "fp8", "w8"}}} {
		for _, n := range c.names {
			if strings.Contains(text, n) {
				return c.bits
			}
		}
	}
	return 16
}
