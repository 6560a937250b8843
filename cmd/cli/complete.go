package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/study/advise"
	"lorasim/sim/profile"
)

// suggestions are the beginnings of the values of flags that are not settings. The key is the
// flag's name, or the command and the flag. A value continues after a final = or :.
var suggestions = map[string]func(typed string) []string{
	"access-log":      words("- none"),
	"api":             words("sglang vllm"),
	"baseline":        valuesOf("policy"),
	"bench backend":   words("sglang sglang-oai sglang-oai-chat vllm vllm-chat"),
	"kernels backend": words("csgmv triton"),
	"baselines":       commas(valuesOf("policy")),
	"export":          words("aiperf: guidellm: inference-perf:"),
	"compare format":  commas(words("text markdown junit")),
	"format":          words("workload azure_v1 azure_v2"),
	"goodput":         words("ttft: tpot: e2e:"),
	"gpu": func(string) (list []string) {
		for _, g := range profile.GPUs() {
			list = append(list, g.Name)
		}
		return list
	},
	"layout": words("sglang-0.5.4 sglang-0.5.6 lora sglang"),
	"metrics": commas(func(string) (list []string) {
		for _, name := range result.KnownValues() {
			list = append(list, name+"\t"+result.MetricOf(name).Title)
		}
		return list
	}),
	"model": func(string) (list []string) {
		for _, m := range profile.Architectures() {
			list = append(list, m.Name)
		}
		return list
	},
	"objective":   func(string) []string { return advise.Objectives() },
	"policies":    commas(valuesOf("policy")),
	"profile":     valuesOf("profile"),
	"engine-args": suggestEngineArgs,
	"set":         suggestAxis,
	"solver":      words("embedded highs"),
	"use":         words("calibration validation held"),
	"worker-api":  words("auto sglang vllm"),
}

func words(list string) func(string) []string {
	return func(string) []string { return strings.Fields(list) }
}

// valuesOf returns the function that completes the values of a setting of the scenario.
func valuesOf(key string) func(string) []string {
	return func(typed string) []string {
		f, err := scenario.Find(key)
		if err != nil {
			return nil
		}
		return f.Suggest(typed)
	}
}

// commas completes the last item of a list.
func commas(item func(string) []string) func(string) []string {
	return func(typed string) (list []string) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		for _, v := range item(typed[len(before):]) {
			list = append(list, before+v)
		}
		return list
	}
}

// suggestEngineArgs completes KEY=VALUE,....
func suggestEngineArgs(typed string) []string {
	return commas(func(typed string) (list []string) {
		key, value, ok := strings.Cut(typed, "=")
		for _, f := range scenario.EngineFields() {
			for _, name := range f.Names() {
				switch {
				case !ok:
					list = append(list, name+"=\t"+f.Help)
				case name == key:
					for _, v := range f.Suggest(value) {
						list = append(list, key+"="+v)
					}
				}
			}
		}
		return list
	})(typed)
}

// suggestAxis completes KEY=VALUES of a sweep.
func suggestAxis(typed string) (list []string) {
	key, values, ok := strings.Cut(typed, "=")
	if !ok {
		for _, f := range scenario.Fields() {
			list = append(list, f.Leaf()+"=\t"+f.Help)
		}
		return list
	}
	for _, v := range commas(valuesOf(key))(values) {
		list = append(list, key+"="+v)
	}
	return list
}

// completeValues makes a command and its subcommands complete the values of their flags. The shell
// completes files; numbers have no completion.
func completeValues(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		values := suggestions[cmd.Name()+" "+f.Name]
		if values == nil {
			values = suggestions[f.Name]
		}
		if _, setting := f.Value.(*settingValue); setting {
			if values = valuesOf(f.Name); f.Value.Type() == "string" && values("") == nil {
				return // probably a path
			}
		} else if kind := f.Value.Type(); values == nil && kind == "string" || kind == "bool" {
			return
		} else if values == nil {
			values = words("")
		}
		err := cmd.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, typed string) ([]string,
			cobra.ShellCompDirective) {
			directive := cobra.ShellCompDirectiveNoFileComp
			list := beginning(values(typed), typed)
			for _, v := range list {
				if v, _, _ = strings.Cut(v, "\t"); strings.TrimRight(v, ":=") != v {
					directive |= cobra.ShellCompDirectiveNoSpace
				}
			}
			return list, directive
		})
		if err != nil {
			panic(err) // a programming error
		}
	})
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// completeInBash replaces the command that prints the script for bash. Cobra's script has two
// faults. It quotes commas outside of braces, where they need no quotes, so that it completes
// nothing after the first comma of a list. It also repeats the text between a colon and an equals sign.
func completeInBash(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil {
		panic(err) // a programming error
	}
	bash.Parent().Args = nil
	withUsageErrors(bash.Parent())
	bash.RunE = func(cmd *cobra.Command, _ []string) error {
		bare, err := cmd.Flags().GetBool("no-descriptions")
		var script strings.Builder
		if err = cmp.Or(err, root.GenBashCompletionV2(&script, !bare)); err != nil {
			return err
		}
		const trim = "\n    __lorasim_handle_special_char \"$cur\" :"
		_, err = strings.NewReplacer(`[[ $comp == "$cur"* ]]`, `[[ ${comp//\\,/,} == "$cur"* ]]`, trim,
			"\n    COMPREPLY=(\"${COMPREPLY[@]//\\\\,/,}\")"+
				trim+"\n    [[ $COMP_WORDBREAKS == *:* ]] && cur=${cur##*:}").WriteString(cmd.OutOrStdout(),
			script.String())
		return err
	}
}

// beginning returns the items of a list that begin with typed.
func beginning(list []string, typed string) []string {
	return slices.DeleteFunc(list, func(v string) bool { return !strings.HasPrefix(v, typed) })
}

// completeProfiles completes arguments that are profiles.
func completeProfiles(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return beginning(valuesOf("profile")(""), typed), cobra.ShellCompDirectiveDefault // or a file
}
