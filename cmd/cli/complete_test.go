package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
	"lorasim/router"
	"lorasim/sim/profile"
)

// completions are what a shell offers for a command line.
func completions(t *testing.T, args ...string) []string {
	lines := strings.Split(strings.TrimSpace(lorasim(t, append([]string{"__completeNoDesc"}, args...)...)), "\n")
	return lines[:len(lines)-1] // the last is about files and spaces
}

func TestCompletion(t *testing.T) {
	got, own := completions(t, "sim", "--policy", ""), len(router.List())
	if !slices.Contains(got[:own], "plan-and-route") || !slices.Equal(got[own:], []string{"period_mig"}) {
		t.Errorf("--policy: %q", got)
	}
	if got := completions(t, "sim", "--profile", ""); !slices.Equal(got, append(profile.Names(), "analytic:")) {
		t.Errorf("--profile: %q", got)
	}
	for line, want := range map[string]string{
		"trace workload --trace-name bu":               "burstgpt",
		"sim --policy bounded-":                        "bounded-hash",
		"sim --policy bounded-hash:":                   "bounded-hash:c=",
		"sim --policy weighted-queue:weight=2,t":       "weighted-queue:weight=2,ties=",
		"sim --policy plan-and-route:mo":               "plan-and-route:move=",
		"sim --policy period_mig:mo":                   "period_mig:move=",
		"sim --policy plan-and-route:move=w":           "plan-and-route:move=waiting",
		"sim --policy route-":                          "route-to-holder route-only",
		"advise --baselines static,least-l":            "static,least-loaded",
		"sim --scheduler v":                            "vllm",
		"sim --max-new-tokens ex":                      "exact",
		"sim --engine-args max_lor":                    "max_loras_per_batch= max_loras= max_lora_rank=",
		"sim --engine-args page_size=8,head_of_line=b": "page_size=8,head_of_line=block",
		"sweep --policies static,p2":                   "static,p2c",
		"sweep --set num_w":                            "num_workers=",
		"sweep --set head_of_line=skip,b":              "head_of_line=skip,block",
		"compare --metrics mean_ttft_ms,mean_tpot":     "mean_ttft_ms,mean_tpot_ms",
		"profile show deepseek-v3-8xh200-sglang-t":     "deepseek-v3-8xh200-sglang-triton",
		"profile compute --gpu l4":                     "l40s",
		"profile fit kernels --backend c":              "csgmv",
		"bench --backend vllm-":                        "vllm-chat",
	} {
		if got := strings.Join(completions(t, strings.Split(line, " ")...), " "); got != want {
			t.Errorf("%s: %q, expected %q", line, got, want)
		}
	}
}

// What is offered is taken.
// In bash itself: what follows a comma is completed, and inserted without
// backslashes; words end at = and :.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	const harness = `
_init_completion() { words=(lorasim sweep --policies "$typed"); cword=3; cur=$typed; }
lorasim() { printf '%b' "$offered"; }
COMP_TYPE=9
__start_lorasim 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
`
	for _, c := range [][3]string{
		{"static,pla", `static,plan-and-route\tplans\n:4\n`, "static,plan-and-route"},
		{"static,pla", `static,plan-and-route\n:4\n`, "static,plan-and-route"},
		{"plan-and-route:interval=5,ma", `plan-and-route:interval=5,margin=\tshare\nplan-and-route:interval=5,look=\tahead\n:6\n`,
			"5,margin="},
		{"a,b", `a,b c\n:4\n`, `a,b\ c`},
		{"sta", `random\n:4\n`, ""},
	} {
		cmd := exec.Command(bash, "--norc", "-c", lorasim(t, "completion", "bash")+harness)
		cmd.Env = append(os.Environ(), "typed="+c[0], "offered="+c[1])
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != c[2] {
			t.Errorf("%s: %q, %v, expected %q", c[0], got, err, c[2])
		}
	}
}

func TestSuggestionsAreTaken(t *testing.T) {
	offered := 0
	for _, f := range scenario.Fields() {
		for _, v := range f.Suggest("") {
			v, _, _ = strings.Cut(v, "\t")
			if err := f.Check(v); err != nil && !strings.HasSuffix(v, ":") && !strings.HasSuffix(v, "=") {
				t.Errorf("%s: %v", f.Key, err)
			}
			offered++
		}
	}
	if offered < 100 {
		t.Errorf("%d values are offered", offered)
	}
	used := map[string]bool{}
	walk(Root(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { used[f.Name], used[cmd.Name()+" "+f.Name] = true, true })
	})
	for name := range suggestions {
		if !used[name] {
			t.Errorf("there is no flag %q", name)
		}
	}
}
