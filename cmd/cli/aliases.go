package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// An alias is a flag of an engine or of its benchmark client that sets a flag with another name here.
type alias struct {
	client, theirs, ours string
	// value converts the value; nil: it is the same. given holds the values of all aliases in use, by name.
	value func(text string, given map[string]string) (string, error)
	help  string // how the value is converted
}

// engineNames are the engines' names of flags.
var engineNames = []alias{
	{client: "sglang", theirs: "random-seed", ours: "seed"},
}

// clientNames are the flag names of the engines' benchmark clients.
var clientNames = []alias{
	// vllm/benchmarks/serve.py, add_cli_args
	{client: "vLLM", theirs: "burstiness", ours: "arrivals", value: vllmArrivals, help: "vllm:BURSTINESS"},
	{client: "vLLM", theirs: "lora-assignment", ours: "lora-request-distribution"},
	{client: "vLLM", theirs: "lora-modules", ours: "lora-names"},
	// sglang/benchmark/serving.py
	{client: "sglang", theirs: "lora-name", ours: "lora-names"},
	{client: "sglang", theirs: "disable-stream", ours: "no-stream"},
	{client: "sglang", theirs: "random-input", ours: "random-input-len"},
	{client: "sglang", theirs: "random-output", ours: "random-output-len"},
	{client: "sglang", theirs: "mooncake-slowdown-factor", ours: "rate-scale", value: inverse, help: "1/FACTOR"},
	// bench_serving.py of the reference, a fork of sglang's
	{client: "dLoRA", theirs: "trace-arrival-distribution", ours: "arrivals", value: traceArrivals,
		help: "DISTRIBUTION:CV"},
	{client: "dLoRA", theirs: "trace-cv", ours: "arrivals", value: traceArrivals, help: "DISTRIBUTION:CV"},
}

// ownNames are further names of flags of lorasim.
var ownNames = []alias{
	{client: "lorasim", theirs: "push-every", ours: "push-interval"},
}

// workerNames are names of the flag for workers.
var workerNames = []alias{
	// vllm/benchmarks/serve.py, sglang/benchmark/serving.py
	{client: "vLLM, sglang", theirs: "base-url", ours: "worker-urls"},
}

func vllmArrivals(text string, _ map[string]string) (string, error) { return "vllm:" + text, nil }

// inverse returns 1 / a factor.
func inverse(text string, _ map[string]string) (string, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) {
		return "", fmt.Errorf("%q is not a number > 0", text)
	}
	return strconv.FormatFloat(1/x, 'g', -1, 64), nil
}

// traceArrivals returns the arrivals of --trace-arrival-distribution and --trace-cv, gamma and 1 by default.
func traceArrivals(_ string, given map[string]string) (string, error) {
	dist, ok := given["trace-arrival-distribution"]
	if !ok {
		dist = "gamma"
	}
	cv, ok := given["trace-cv"]
	if !ok || dist == "exponential" { // whose CV is 1
		return dist, nil
	}
	return dist + ":" + cv, nil
}

// aliasesIn annotates a command with the aliases that its help describes.
func aliasesIn(lists ...[]alias) map[string]string {
	text := "\nNames of the engines and their clients for the same flags:\n"
	for _, a := range slices.Concat(lists...) {
		text += fmt.Sprintf("  --%-28s (%s) is --%s\n", a.theirs, a.client, strings.TrimSpace(a.ours+" "+a.help))
	}
	return map[string]string{aliasesKey: text}
}

// addAliases adds a hidden flag for each alias of a flag of the command.
func addAliases(cmd *cobra.Command) {
	for _, a := range slices.Concat(engineNames, clientNames, workerNames, ownNames) {
		target := cmd.Flags().Lookup(a.ours)
		if target == nil || cmd.Flags().Lookup(a.theirs) != nil {
			continue
		}
		f := cmd.Flags().VarPF(&aliasValue{alias: a, target: target}, a.theirs, "", "alias of --"+a.ours)
		f.Hidden = true
		if a.value == nil {
			f.NoOptDefVal = target.NoOptDefVal
		}
	}
}

// aliasValue is the value of an alias. applyAliases sets the target once all flags are known.
type aliasValue struct {
	alias
	target *pflag.Flag
	texts  []string // of each use
}

func (v *aliasValue) String() string { return strings.Join(v.texts, ",") }
func (v *aliasValue) Type() string   { return "string" }

func (v *aliasValue) Set(text string) error {
	value, err := v.convert(text, map[string]string{v.theirs: text})
	if err != nil {
		return err
	}
	if setting, ok := v.target.Value.(*settingValue); ok {
		if err := setting.field.Check(value); err != nil {
			return err
		}
	}
	v.texts = append(v.texts, text)
	return nil
}

func (v *aliasValue) convert(text string, given map[string]string) (string, error) {
	if v.value == nil {
		return text, nil
	}
	return v.value(text, given)
}

// spelledKey is the annotation of a flag with the alias that the user gave in its place.
const spelledKey = "spelled"

// applyAliases sets the flags of the given aliases. It returns an error if a flag and its aliases
// contradict each other.
func applyAliases(cmd *cobra.Command) (err error) {
	given := map[string]string{}
	var values []*aliasValue
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*aliasValue); ok {
			given[v.theirs] = v.texts[len(v.texts)-1]
			values = append(values, v)
		}
	})
	by := map[string]string{} // the spelling that set a flag, with its value
	for _, v := range values {
		f := v.target
		if _, list := f.Value.(pflag.SliceValue); list {
			for _, text := range v.texts {
				if err := cmd.Flags().Set(f.Name, text); err != nil {
					return flagError(cmd, err)
				}
			}
			continue
		}
		text := given[v.theirs]
		value, err := v.convert(text, given)
		if err != nil {
			return fmt.Errorf("--%s: %w", v.theirs, err)
		}
		if f.Changed && f.Value.String() != value {
			other := by[f.Name]
			if other == "" {
				other = "--" + f.Name + " " + f.Value.String()
			}
			return fmt.Errorf("--%s %s is --%s %s, but %s is given, too: give one of the two", v.theirs, text, f.Name,
				value, other)
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			return flagError(cmd, err)
		}
		by[f.Name] = "--" + v.theirs + " " + text
		annotate(f, spelledKey, v.theirs)
	}
	return nil
}

// spelled returns the flag that the user gave for f, which may be an alias.
func spelled(f *pflag.Flag) string {
	if by := f.Annotations[spelledKey]; len(by) > 0 {
		return "--" + by[0]
	}
	return "--" + f.Name
}
