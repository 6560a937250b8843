package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// engineNames are flags under which the engines know a setting that has another
// name here, so that the command line of a server can be taken over.
var engineNames = []struct{ engine, theirs, ours string }{
	// vllm/engine/arg_utils.py, EngineArgs.add_cli_args
	{"vLLM", "max-loras", "max-loras-per-batch"},
	{"vLLM", "max-cpu-loras", "max-loaded-loras"},
	{"vLLM", "max-num-seqs", "max-running-requests"},
	{"vLLM", "max-model-len", "context-length"},
	{"vLLM", "block-size", "page-size"},
	// sglang/srt/arg_groups/fields/{schedule,lora,device}.py
	{"sglang", "max-total-tokens", "kv-tokens"},
	{"sglang", "lora-eviction-policy", "adapter-eviction"},
	{"sglang", "random-seed", "seed"},
}

// ownName is the name here of a flag.
func ownName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	for _, n := range engineNames {
		if n.theirs == name {
			name = n.ours
			break
		}
	}
	return pflag.NormalizedName(name)
}

// engineNamesText is a paragraph of the help.
func engineNamesText() string {
	text := "The engines' own names of flags are taken, too:\n"
	for _, n := range engineNames {
		text += fmt.Sprintf("  %-24s (%s) is --%s\n", "--"+n.theirs, n.engine, n.ours)
	}
	return text
}
