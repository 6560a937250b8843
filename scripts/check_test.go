//go:build unix

// Package scripts has the tests of the shell scripts beside it.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckRepeatsSkips runs scripts/check with a go command, HiGHS and Slurm
// that only pretend: what they skip is said again at the end, once, with its
// reason, and nothing else.
func TestCheckRepeatsSkips(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("check")
	if err != nil {
		t.Fatal(err)
	}
	const fakeGo = `#!/bin/sh
case "$1" in
env) echo no-such-compiler ;;
test) cat "$FAKE" ;;
esac
`
	const output = `{"Action":"run","Package":"lorasim/a","Test":"TestData"}
{"Action":"output","Package":"lorasim/a","Test":"TestData","Output":"=== RUN   TestData\n"}
{"Action":"output","Package":"lorasim/a","Test":"TestData","Output":"    a_test.go:7: no \"shared\" data: <none>\n"}
{"Action":"output","Package":"lorasim/a","Test":"TestData","Output":"--- SKIP: TestData (0.00s)\n"}
{"Action":"skip","Package":"lorasim/a","Test":"TestData","Elapsed":0}
{"Action":"output","Package":"lorasim/a","Test":"TestGood","Output":"    a_test.go:9: chatter\n"}
{"Action":"pass","Package":"lorasim/a","Test":"TestGood","Elapsed":0}
{"Action":"output","Package":"lorasim/a","Output":"ok  \tlorasim/a\t0.1s\n"}
{"Action":"skip","Package":"lorasim/b","Elapsed":0}
`
	for name, text := range map[string]string{
		"scripts/check":      string(script),
		"scripts/highs":      "#!/bin/sh\nexit 1\n",
		"scripts/slurm-test": "#!/bin/sh\necho 'slurm-test: SKIPPED: munged is not installed'\n",
		"scripts/image":      "#!/bin/sh\n",
		"bin/go":             fakeGo,
		"bin/git":            "#!/bin/sh\n",
		"lab/go.mod":         "module m\n",
		"output":             output,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	check := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "scripts/check"), args...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
			"FAKE="+filepath.Join(dir, "output"), "LORASIM_REQUIRE_HIGHS=0")
		out, err := cmd.CombinedOutput()
		_, end, _ := strings.Cut(string(out), "\n== skipped, so not tested\n")
		return end, err
	}
	const test = "SKIPPED: lorasim/a TestData: no \"shared\" data: <none>\n"
	want := "SKIPPED: munged is not installed\nSKIPPED: the build with HiGHS, which could not be provided (see above)\nSKIPPED: the race detector needs a C compiler (no-such-compiler not found)\n"
	for _, c := range []struct {
		args []string
		want []string // lines, in any order
		last string
	}{
		{nil, strings.SplitAfter(want+test, "\n"), "\n== all good, but for what was skipped\n"},
		{[]string{"--fast"}, []string{test}, "\n== all good, but for what --fast leaves out\n"},
	} {
		end, err := check(c.args...)
		lines, tail, _ := strings.Cut(end, "\n\n")
		if err != nil || "\n"+tail != c.last {
			t.Errorf("%v: %v, ends with %q, expected %q", c.args, err, tail, c.last)
		}
		for _, w := range c.want {
			if strings.Count(lines+"\n", w) != 1 && w != "" {
				t.Errorf("%v: the end is %q, expected %q in it once", c.args, end, w)
			}
		}
		if n := strings.Count(lines, "SKIPPED"); n != strings.Count(strings.Join(c.want, ""), "SKIPPED") {
			t.Errorf("%v: %d lines of what was skipped: %q", c.args, n, lines)
		}
	}

	// nothing skipped, nothing said; a failure fails
	if err := os.WriteFile(filepath.Join(dir, "output"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if end, err := check("--fast"); end != "" || err != nil {
		t.Errorf("nothing is skipped: %q, %v", end, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/go"), []byte("#!/bin/sh\n[ \"$1\" != test ]\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := check("--fast"); err == nil {
		t.Error("a failure of the tests is no failure")
	}
}
