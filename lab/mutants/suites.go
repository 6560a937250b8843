package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pkg is a package as `go list` describes it.
type pkg struct {
	Dir        string
	ImportPath string
	GoFiles    []string
	tests      bool // whether the package has tests
	rapid      bool // whether some of them are property tests
}

// list describes the packages of the patterns. For a file, the package has only that file.
func list(ctx context.Context, patterns []string) (pkgs []*pkg, err error) {
	for _, pattern := range patterns {
		file := ""
		if strings.HasSuffix(pattern, ".go") {
			pattern, file = filepath.Split(pattern)
			pattern = "./" + strings.TrimPrefix(pattern, "./")
		}
		const format = "{{.Dir}}\t{{.ImportPath}}\t{{range .GoFiles}}{{.}} {{end}}\t" +
			"{{range .TestGoFiles}}{{.}} {{end}}{{range .XTestGoFiles}}{{.}} {{end}}\t" +
			"{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}"
		cmd := exec.CommandContext(ctx, "go", "list", "-f", format, pattern)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 5)
			p := &pkg{Dir: f[0], ImportPath: f[1], GoFiles: strings.Fields(f[2]), tests: strings.TrimSpace(f[3]) != ""}
			p.rapid = slices.Contains(strings.Fields(f[4]), "pgregory.net/rapid")
			if file != "" {
				if !slices.Contains(p.GoFiles, file) {
					return nil, fmt.Errorf("%s has no file %s", p.ImportPath, file)
				}
				p.GoFiles = []string{file}
			}
			pkgs = append(pkgs, p)
		}
	}
	return pkgs, nil
}

// suite is the tests of one package.
type suite struct {
	pkg     *pkg
	binary  string
	args    []string
	timeout time.Duration  // limit of wall-clock time
	cpu     time.Duration  // limit of processor time
	killers map[string]int // number of mutants found, by the test that failed first
}

type suites []*suite

// verdict is the test that killed a mutant.
type verdict struct {
	pkg    string
	broken bool // the mutant does not compile
}

// newSuites measures the processor time of the unchanged tests. These must pass.
func newSuites(ctx context.Context, o options, p *pkg, further []*pkg, tmp string) (all suites, err error) {
	for k, q := range append([]*pkg{p}, further...) {
		if !q.tests || k > 0 && q.ImportPath == p.ImportPath {
			continue
		}
		s := &suite{pkg: q, binary: filepath.Join(tmp, strconv.Itoa(k)+".test"), timeout: o.timeout, cpu: o.timeout,
			args: []string{"-test.failfast"}, killers: map[string]int{}}
		if q.rapid { // no minimizing of examples, no files of failures
			s.args = append(s.args, "-rapid.seed="+strconv.FormatUint(o.seed+1, 10), "-rapid.nofailfile",
				"-rapid.shrinktime=1ms")
		}
		s.args = append(s.args, strings.Fields(o.args)...)
		if out, err := s.compile(ctx, ""); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", q.ImportPath, err, out)
		}
		failed, out, used := s.test(ctx)
		if failed {
			return nil, fmt.Errorf("the tests of %s fail without a mutant:\n%s", q.ImportPath, out)
		}
		s.cpu = max(10*used, 3*time.Second) // independent of the load of the machine
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.New("no tests; name packages that have some with -tests")
	}
	return all, nil
}

// kill runs the suites until a test fails; nil: none fails. Each suite runs the likeliest tests
// first, then all in short mode. If all pass, all run in full.
func (all suites) kill(ctx context.Context, overlay string) (*verdict, error) {
	for _, s := range all {
		if _, err := s.compile(ctx, overlay); err != nil {
			return &verdict{broken: true}, ctx.Err()
		}
		if likely := s.likely(); likely != "" && s.fails(ctx, "-test.run="+likely) || s.fails(ctx, "-test.short") {
			return &verdict{pkg: s.pkg.ImportPath}, ctx.Err()
		}
	}
	for _, s := range all {
		if s.fails(ctx) {
			return &verdict{pkg: s.pkg.ImportPath}, ctx.Err()
		}
	}
	return nil, ctx.Err()
}

// fails reports whether a test fails, and counts the mutant for that test.
func (s *suite) fails(ctx context.Context, args ...string) bool {
	failed, out, _ := s.test(ctx, args...)
	if failed {
		s.note(out)
	}
	return failed
}

// compile builds the test binary, with the files of the overlay, if any.
func (s *suite) compile(ctx context.Context, overlay string) ([]byte, error) {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", s.binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return exec.CommandContext(ctx, "go", append(args, s.pkg.ImportPath)...).CombinedOutput()
}

// memory is the limit of a test binary's virtual memory, KiB: a mutant may allocate without end.
const memory = 16 << 20

// test runs the test binary with further arguments. It has a time limit, as a mutant may not end.
func (s *suite) test(ctx context.Context, args ...string) (failed bool, out []byte, used time.Duration) {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	limits := fmt.Sprintf(`ulimit -v %d; ulimit -t %d; exec "$0" "$@"`, memory, int(s.cpu.Seconds())+1)
	args = slices.Concat([]string{"-c", limits, s.binary}, s.args, args)
	cmd := exec.CommandContext(limited, "sh", args...)
	cmd.Dir = s.pkg.Dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return err != nil, out, used
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: ((?:Test|Fuzz|Example)\w+)`)

// note counts the mutant for the test that failed first. A run that timed out names none.
func (s *suite) note(out []byte) {
	if m := failure.FindSubmatch(out); m != nil {
		s.killers[string(m[1])]++
	}
}

// likely returns a pattern for -test.run of the three tests that have found most mutants.
func (s *suite) likely() string {
	var names []string
	for name := range s.killers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.killers[b], s.killers[a]), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names[:min(3, len(names))], "|") + ")$"
}
