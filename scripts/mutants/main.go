// Mutants measures how much the tests notice. It samples places of a package
// where an operator can be exchanged for its neighbour (< for <=, && for ||,
// + for -, min for max, a condition for its opposite), runs the package's tests
// with one exchange at a time, and lists the mutants that they let pass.
//
//	go run ./scripts/mutants -n 30 ./router ./sim
//	go run ./scripts/mutants -n 50 -seed 7 -json ./ilp
//
// Nothing is written into the tree: the compiler is given the changed file as
// an overlay. The same seed samples the same places of the same source. A
// mutant that does not compile is drawn again. One that survives is either a
// missing test or equivalent to the original, which a person has to tell.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	n       int
	seed    uint64
	timeout time.Duration
	args    string // further arguments of go test
	json    bool
}

// report is the result for one package.
type report struct {
	Package   string   `json:"package"`
	Killed    int      `json:"killed"`
	Survived  int      `json:"survived"`
	Survivors []mutant `json:"survivors"`
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 30, "mutants to try per package")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Minute,
		"time for one run of the tests; a mutant that needs more counts as killed")
	flag.StringVar(&o.args, "args", "-failfast", "further arguments of go test, separated by spaces")
	flag.BoolVar(&o.json, "json", false, "one JSON object per package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, patterns []string, w io.Writer) error {
	pkgs, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, p := range pkgs {
		r, err := p.try(ctx, o, tmp)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		if r.Killed+r.Survived == 0 {
			continue // no code to exchange anything in
		}
		if o.json {
			if err := json.NewEncoder(w).Encode(r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%-40s %3d of %3d killed (%.0f %%)\n", r.Package, r.Killed, r.Killed+r.Survived,
			100*float64(r.Killed)/float64(r.Killed+r.Survived))
		for _, m := range r.Survivors {
			fmt.Fprintf(w, "  survived  %s\n", m)
		}
	}
	return nil
}

// pkg is a package as `go list` describes it.
type pkg struct {
	Dir        string
	ImportPath string
	GoFiles    []string
}

func list(ctx context.Context, patterns []string) (pkgs []pkg, err error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-f", "{{.Dir}}\t{{.ImportPath}}\t{{range .GoFiles}}{{.}} {{end}}"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(line, "\t", 3)
		pkgs = append(pkgs, pkg{f[0], f[1], strings.Fields(f[2])})
	}
	return pkgs, nil
}

// try runs the package's tests on a sample of its mutants.
func (p *pkg) try(ctx context.Context, o options, tmp string) (*report, error) {
	var all []mutant
	for _, f := range p.GoFiles {
		path := filepath.Join(p.Dir, f)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		ms, err := mutants(path, src)
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	rng := rand.New(rand.NewPCG(o.seed, 0x6d7574616e74))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	r := &report{Package: p.ImportPath, Survivors: []mutant{}}
	for _, m := range all {
		if r.Killed+r.Survived == o.n {
			break
		}
		compiles, survives, err := p.test(ctx, o, tmp, m)
		switch {
		case err != nil:
			return nil, err
		case survives:
			r.Survived++
			r.Survivors = append(r.Survivors, m)
		case compiles:
			r.Killed++
		}
	}
	return r, nil
}

// test runs the package's tests with one mutant in place. They may also run out
// of time.
func (p *pkg) test(ctx context.Context, o options, tmp string, m mutant) (compiles, survives bool, err error) {
	src, err := os.ReadFile(m.path)
	if err != nil {
		return false, false, err
	}
	changed, overlay := filepath.Join(tmp, "changed.go"), filepath.Join(tmp, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: changed}})
	err = errors.Join(err, os.WriteFile(changed, m.apply(src), 0o600), os.WriteFile(overlay, text, 0o600))
	if err != nil {
		return false, false, err
	}
	args := []string{"test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout", o.timeout.String()}
	args = append(append(args, strings.Fields(o.args)...), p.ImportPath)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	broken := bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]"))
	return !broken, err == nil, ctx.Err()
}

// mutant is one exchange in one file.
type mutant struct {
	path     string
	line     int
	at       int // byte offset of the text to exchange
	from, to string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s for %s", filepath.Base(m.path), m.line, m.to, m.from)
}

// MarshalJSON writes a mutant as people read it.
func (m mutant) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// apply is the file's text with the exchange made.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.at], []byte(m.to), src[m.at+len(m.from):])
}

// neighbours are the operators that are most easily written one for another.
var neighbours = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.EQL: "!=", token.NEQ: "==", token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
}

// mutants lists the exchanges that a file allows, in the order of its text.
func mutants(path string, src []byte) (ms []mutant, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		return nil, err
	}
	add := func(pos token.Pos, from, to string) {
		p := fset.Position(pos)
		ms = append(ms, mutant{path: path, line: p.Line, at: p.Offset, from: from, to: to})
	}
	opposite := map[string]string{"min": "max", "max": "min"}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if to, ok := neighbours[n.Op]; ok {
				add(n.OpPos, n.Op.String(), to)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && opposite[f.Name] != "" {
				add(f.Pos(), f.Name, opposite[f.Name])
			}
		case *ast.IfStmt:
			from := string(src[fset.Position(n.Cond.Pos()).Offset:fset.Position(n.Cond.End()).Offset])
			add(n.Cond.Pos(), from, "!("+from+")")
		}
		return true
	})
	return ms, nil
}
