package fleet

import (
	"strings"
	"testing"

	"lorasim/bench/serving/httpapi"
)

// A worker is warned of by its engine, its version and what it is started with.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		in   Info
		want []string // parts of the warnings, in order
	}{
		{Info{API: httpapi.VLLM, Version: "0.32.0", LoRA: On, RunTime: On}, []string{"vllm#54839"}},
		{Info{API: httpapi.VLLM, Version: "0.33.1+cpu", LoRA: On}, []string{"vllm#54839"}},
		{Info{API: httpapi.VLLM, Version: "0.22.1", LoRA: On, RunTime: On}, []string{"vllm#54839", "vllm#47724"}},
		{Info{API: httpapi.VLLM, LoRA: On, RunTime: On}, []string{"vllm#54839", "vllm#47724"}}, // an unknown version
		{Info{API: httpapi.VLLM, Version: "0.22.1", LoRA: On, RunTime: Off}, nil},
		{Info{API: httpapi.VLLM, Version: "0.22.1", LoRA: Off}, nil},
		{Info{API: httpapi.SGLang, Version: "0.5.23", Model: "a:b", LoRA: On}, []string{"sglang#31908"}},
		{Info{API: httpapi.SGLang, Version: "0.5.9", Model: "a:b", LoRA: On}, []string{"sglang#31908", "sglang#12745"}},
		{Info{API: httpapi.SGLang, Version: "0.5.9", Model: "a", LoRA: On}, []string{"sglang#31908"}},
		{Info{API: httpapi.SGLang, Version: "0.5.9", Model: "a:b", LoRA: Off}, []string{"sglang#31908"}},
	} {
		got := KnownFaults(&c.in)
		if len(got) != len(c.want) {
			t.Errorf("%+v: %q, expected %q", c.in, got, c.want)
			continue
		}
		for i, part := range c.want {
			if !strings.Contains(got[i], part) {
				t.Errorf("%+v: warning %d is %q, expected %q", c.in, i, got[i], part)
			}
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version, least string
		want           bool
	}{
		{"0.32.0", "0.32.0", true}, {"0.32", "0.32.0", false}, {"0.32.1", "0.32.0", true}, {"1.0", "0.32.0", true},
		{"0.5.23", "0.5.9", true}, {"0.5.9", "0.5.23", false}, {"0.33.0rc1.dev5+g12", "0.32.0", true},
		{"emulated", "0.1", false}, {"", "0.1", false}, {"0.32.0", "", false},
	} {
		if got := atLeast(c.version, c.least); got != c.want {
			t.Errorf("%q at least %q: %v", c.version, c.least, got)
		}
	}
}
