package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

// Every short form has a mapping, and the scenario that holds it is the same to the byte.
func TestNestedEqualsShort(t *testing.T) {
	for _, c := range []struct{ key, short string }{
		{"routing.policy", "static"},
		{"routing.policy", "affinity-spill:threshold=4"},
		{"routing.policy", "k-shard:high=2,low=1,grow-every=0.5"},
		{"routing.policy", "explicit:map=0-7@0,8@0+1,rest@all"},
		{"routing.policy", "rank-aware:slo=none"},
		{"cluster.elastic", "min=1,max=8,rule=reactive,target=6"},
		{"cluster.elastic", "max=8,min=2,rule=schedule,times=600=8+1800=2"},
		{"workload.pattern", "on-off:10,5,0.5"},
		{"workload.pattern", "flash:200,120,15,1"},
		{"workload.popularity", "explicit:5,3,1"},
		{"workload.popularity", "zipf:0.9"},
		{"workload.arrivals", "total-gamma:4"},
		{"workload.locality", "0.5,8"},
		{"workload.sessions", "copy:m=2.1,p_new=0.4"},
		{"workload.conversations", "agents:turns=20,turns_sigma=0,system=8000"},
		{"workload.lengths", "lognormal:prompt_mean=100,prompt_sigma=1,output_mean=50,output_sigma=1"},
		{"workload.lengths", "copula:sharegpt-v3,rho=-0.3"},
		{"workload.lengths", "random:1024,128"},
		{"workload.max_new_tokens", "mix:256=1,1024=3"},
		{"workload.max_new_tokens", "uniform:256,2048"},
		{"workload.resample", "sessions:300"},
		{"routing.shed", "queue:20"},
		{"routing.rate_limit", "2.5,burst=20"},
	} {
		f, err := Find(c.key)
		if err != nil {
			t.Fatal(err)
		}
		nested, err := settings.Nested(f.option.Grammar.Forms(), c.short)
		if err != nil {
			t.Fatal(err)
		}
		expectEqual(t, f, nested, c.short)
	}
	for _, c := range []struct{ key, value, short string }{
		{"workload.pattern",
			"[{name: diurnal, period: 60, amplitude: 0.5}, {name: flash, at: 1, duration: 2, factor: 3}]",
			"diurnal:60,0.5+flash:1,2,3"},
		{"workload.pattern", `["diurnal:60,0.5", {name: constant}]`, "diurnal:60,0.5+constant"},
		{"workload.lora_ranks", "[8, 16, 64]", "8,16,64"},
		{"workload.lora_names", "[de, fr]", "de,fr"},
		{"workload.priorities", "[1, 0]", "1,0"},
		{"workload.arrivals", "{name: gamma, cv: [1, 2.5]}", "gamma:1,2.5"},
		{"workload.max_new_tokens", "1024", "1024"},
		{"workload.popularity", "{name: explicit, weights: [5, 3, 1]}", "explicit:5,3,1"},
		{"cluster.profile", "[h100, rtx-4090*2]", "h100,rtx-4090*2"},
		{"cluster.elastic", "{min: 1, max: 8, rule: schedule, times: {600: 8, 1800: 2}}",
			"min=1,max=8,rule=schedule,times=600=8+1800=2"},
		{"routing.policy", "{name: explicit, map: {0-7: 0, 8: [0, 1], rest: all}}",
			"explicit:map=0-7@0,8@0+1,rest@all"},
		{"routing.policy", "{name: explicit, map: \"0@0,rest@all\"}", "explicit:map=0@0,rest@all"},
		{"routing.policy", "{threshold: &n 4, name: affinity-spill}", "affinity-spill:threshold=4"},
		{"routing.shed", "[{name: ttft, ms: 500}, {name: queue, n: 20}]", "ttft:500+queue:20"},
		{"workload.max_new_tokens", "{name: mix, weights: {256: 1, 1024: 3}}", "mix:256=1,1024=3"},
	} {
		f, err := Find(c.key)
		if err != nil {
			t.Fatal(err)
		}
		expectEqual(t, f, c.value, c.short)
	}
}

func expectEqual(t *testing.T, f Field, nested, short string) {
	t.Helper()
	want := Default()
	if err := f.Set(&want, short); err != nil {
		t.Error(err)
		return
	}
	got, err := Parse([]byte(f.Section+":\n  "+f.Leaf()+": "+nested+"\n"), "s.yaml")
	if err != nil || mustYAML(t, &got) != mustYAML(t, &want) {
		t.Errorf("%s: %s is %q, %v; expected %q", f.Key, nested, f.Get(&got), err, short)
	}
}

func TestNestedErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"routing:\n  policy: {name: affinity-spil}",
			`s.yaml:2: routing.policy.name: unknown name "affinity-spil", did you mean "affinity-spill"?`},
		{"routing:\n  policy:\n    threshold: 4",
			"s.yaml:3: routing.policy: name is missing, expected one of static"},
		{"routing:\n  policy:\n    name: affinity-spill\n    threshold: 0",
			`s.yaml:4: routing.policy.threshold: "0" is not a whole number >= 1`},
		{"routing: {policy: {name: hash, c: 2}}", `s.yaml:1: routing.policy.c: unknown key "c", expected none`},
		{"routing: {policy: [static]}", "s.yaml:1: routing.policy: a list, expected one value"},
		{"cluster:\n  elastic:\n    max: 8\n    min: 9\n    target: 6",
			"s.yaml:3: cluster.elastic: min is 9, above max 8"},
		{"cluster:\n  elastic: {max: 8}", "s.yaml:2: cluster.elastic: target is missing"},
		{"cluster:\n  elastic: {max: 8, targt: 6}",
			`s.yaml:2: cluster.elastic.targt: unknown key "targt", did you mean "target"?`},
		{"workload:\n  pattern:\n  - {name: constant}\n  - {name: flash}",
			"s.yaml:4: workload.pattern: at is missing"},
		{"workload:\n  pattern: []", "s.yaml:2: workload.pattern: an empty list"},
		{"workload:\n  lora_ranks: [8, 0]", "s.yaml:2: workload.lora_ranks: "},
		{`workload: {lora_names: ["a,b"]}`, `s.yaml:1: workload.lora_names: "a,b" holds a ","`},
		{"workload:\n  lengths:\n    name: table", "s.yaml:3: workload.lengths: file is missing"},
		{"workload:\n  request_rate: {a: 1}", "s.yaml:2: workload.request_rate: keys and values"},
		{"workload: {lengths: \"copula:x.csv,roh=1\"}",
			`s.yaml:1: workload.lengths: lengths copula: unknown option "roh", did you mean "rho"?`},
	} {
		_, err := Parse([]byte(c.text), "s.yaml")
		testutil.ExpectError(t, err, c.want)
	}
}

// Files that options name are looked for in the scenario's folder, whichever form names them.
func TestNestedPaths(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"workload: {lengths: {name: copula, file: h.csv, rho: 0.3}}": "lengths: copula:" + dir + "/h.csv,rho=0.3",
		"workload: {lengths: \"copula: h.csv , rho=0.3\"}":           "lengths: copula:" + dir + "/h.csv,rho=0.3",
		"workload: {lengths: {name: copula, file: sharegpt-v3}}":     "lengths: copula:sharegpt-v3",
		"workload: {lengths: {name: table, file: sub/t.csv}}":        "lengths: table:" + dir + "/sub/t.csv",
		"routing: {policy: {name: explicit, file: map.txt}}":         "policy: explicit:file=" + dir + "/map.txt",
		"routing: {policy: \"explicit: file = map.txt\"}":            "policy: explicit:file=" + dir + "/map.txt",
	} {
		file := filepath.Join(dir, "s.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sc, err := Load(t.Context(), file)
		if err != nil || !strings.Contains(mustYAML(t, &sc), "  "+want+"\n") {
			t.Errorf("%s: %v, expected %s in\n%s", text, err, want, mustYAML(t, &sc))
		}
	}
}
