package fleet

import (
	"fmt"
	"strconv"
	"strings"

	"lorasim/bench/serving/httpapi"
)

// A knownFault is a fault of some versions of an engine that an operator should know before adapters are loaded and
// unloaded at run time.
type knownFault struct {
	api   httpapi.Kind
	fixed string // first version known to be without it; "": none
	// applies reports whether the fault can matter on a worker; nil: always.
	applies func(*Info) bool
	text    string
	issue   string // where it is reported
}

func lora(in *Info) bool    { return in.LoRA != Off }
func runTime(in *Info) bool { return in.LoRA != Off && in.RunTime != Off }

// knownFaults are checked against vLLM 0.32.0 and sglang 0.5.23 (lab/docs/real-engines.md).
var knownFaults = []knownFault{
	{httpapi.VLLM, "", runTime, "an unload only removes the name: the weights keep their GPU slot and their place in host memory until others " +
		"evict them", "vllm-project/vllm#54839"},
	{httpapi.VLLM, "0.32.0", runTime, "a load may evict the adapter of a running request, which then continues with the weights of another adapter",
		"vllm-project/vllm#47724"},
	{httpapi.SGLang, "", nil, "a prompt with a token id beyond the vocabulary ends the server",
		"sgl-project/sglang#31908"},
	{httpapi.SGLang, "0.5.23", func(in *Info) bool { return lora(in) && strings.Contains(in.Model, ":") },
		"the part of the model's name after the colon is taken for an adapter", "sgl-project/sglang#12745"},
}

// KnownFaults returns the known faults of a worker's version.
func KnownFaults(in *Info) []string {
	found := []string{}
	for _, f := range knownFaults {
		if f.api == in.API && !atLeast(in.Version, f.fixed) && (f.applies == nil || f.applies(in)) {
			found = append(found, fmt.Sprintf("%s (%s)", f.text, f.issue))
		}
	}
	return found
}

// atLeast reports whether a version such as 0.32.0rc1 is the given one or a later one. An unknown version is not.
func atLeast(version, least string) bool {
	if least == "" {
		return false
	}
	v, l := numbers(version), numbers(least)
	for i := range l {
		switch {
		case i >= len(v) || v[i] < l[i]:
			return false
		case v[i] > l[i]:
			return true
		}
	}
	return true
}

// numbers returns the leading numbers of a version: 0.32.0rc1 is 0, 32, 0.
func numbers(version string) (ns []int) {
	for part := range strings.SplitSeq(version, ".") {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(part)
		}
		n, err := strconv.Atoi(part[:end])
		if err != nil {
			return ns
		}
		ns = append(ns, n)
		if end < len(part) {
			return ns
		}
	}
	return ns
}
