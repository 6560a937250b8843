package scenario

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMapPaths(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bare"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ key, value, want string }{
		{"workload.file", "", ""},
		{"workload.file", "w.csv", dir + "/w.csv"},
		{"workload.file", "/a/w.csv", "/a/w.csv"},
		{"trace_path", "../x", filepath.Dir(dir) + "/x"},
		{"trace_histogram", "1,2;3,4", "1,2;3,4"},
		{"trace_histogram", "h.json", dir + "/h.json"},
		{"lengths", "auto", "auto"},
		{"lengths", "table:t.csv", "table:" + dir + "/t.csv"},
		{"lengths", "copula:h.json", "copula:" + dir + "/h.json"},
		{"lengths", "copula:h.json,rho=0.3,eos=0.01", "copula:" + dir + "/h.json,rho=0.3,eos=0.01"},
		{"lengths", "copula:sharegpt-v3,rho=0.3", "copula:sharegpt-v3,rho=0.3"}, // built in
		{"lengths", "copula:/abs/h.json", "copula:/abs/h.json"},
		{"profile", "llama-2-7b-rtx-4090-sglang-0.5", "llama-2-7b-rtx-4090-sglang-0.5"},
		{"profile", "llama2-7b-24g", "llama2-7b-24g"}, // a slip, no file
		{"profile", "bare", dir + "/bare"},
		{"profile", "p.yaml, qwen3-14b-h100,q/p", dir + "/p.yaml,qwen3-14b-h100," + dir + "/q/p"},
		{"policy", "static", "static"},
		{"policy", "explicit:map=0@1", "explicit:map=0@1"},
		{"policy", "explicit:file=f", "explicit:file=" + dir + "/f"},
		{"policy", "plan-and-route:interval=3", "plan-and-route:interval=3"},
		{"policy", "script:file=a.star,ties=first", "script:file=" + dir + "/a.star,ties=first"},
		{"arrivals", "gamma:4", "gamma:4"},
	} {
		f, err := Find(c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.MapPaths(c.value, In(dir)); got != c.want {
			t.Errorf("%s %s: %s, expected %s", c.key, c.value, got, c.want)
		}
		sc := Default()
		if err := sc.Set(c.key, c.value); err != nil {
			t.Fatal(err)
		}
		if sc.MapPaths(In(dir)); f.Get(&sc) != c.want {
			t.Errorf("%s %s: the scenario has %s, expected %s", c.key, c.value, f.Get(&sc), c.want)
		}
	}
}
