// Mutants measures the share of code changes that the tests detect. It samples places of a package
// where an operator can be exchanged for its neighbour (< for <=, && for ||, + for -, min for max,
// a condition for its opposite). It runs the tests with one exchange at a time, and lists the
// mutants that pass them.
//
//	go run ./mutants -n 30 ./router ./ilp
//	go run ./mutants -n 40 -seed 7 -tests ./sim,./sim/engine/sglang ./sim/engine ./router/books.go
//
// An argument is a package pattern or a single Go file, as seen from the root of the repository. The
// tests are those of the package itself. -tests names further packages, whose tests run if the package's
// own tests pass: many rules of sim/engine are tested by ./sim.
//
// Nothing is written into the tree: the compiler gets the changed file as an overlay. Each test
// binary is compiled once per mutant. The tests that have found most mutants run first, then all
// with -short, then all in full; the first failure ends the run. The same seed samples the same
// places of the same source, and seeds property tests (pgregory.net/rapid) alike. A mutant that
// does not compile is replaced by another one. A mutant that survives is either a missing test or
// equivalent to the original, which a person has to decide.
package main

import (
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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/lab/internal/repo"
)

type options struct {
	n       int
	seed    uint64
	timeout time.Duration
	tests   string // further packages, separated by commas
	args    string // further arguments of the test binaries
	json    bool
}

// report is the result for one package.
type report struct {
	Package   string   `json:"package"`
	Killed    int      `json:"killed"`
	Own       int      `json:"killed_by_own_tests"`
	Survived  int      `json:"survived"`
	Survivors []mutant `json:"survivors"`
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 30, "mutants to try per package")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample and of property tests")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute,
		"most time for one test binary; a mutant that needs more, or 10 times the processor time of the unchanged "+
			"code (at least 3s), counts as killed")
	flag.StringVar(&o.tests, "tests", "", "further packages whose tests each mutant is run against: PKG,PKG,...")
	flag.StringVar(&o.args, "args", "", "further arguments of the test binaries, separated by spaces")
	flag.BoolVar(&o.json, "json", false, "one JSON object per package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := repo.Root(ctx)
	if err == nil {
		err = os.Chdir(root)
	}
	if err == nil {
		err = run(ctx, o, flag.Args(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, patterns []string, w io.Writer) error {
	pkgs, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	further, err := list(ctx, strings.FieldsFunc(o.tests, func(c rune) bool { return c == ',' || c == ' ' }))
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, p := range pkgs {
		r, err := p.try(ctx, o, further, tmp)
		if r != nil && r.Killed+r.Survived > 0 { // else there is no operator to exchange, or none was tried
			err = errors.Join(err, r.write(w, o.json, len(further) > 0))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return nil
}

// write prints the report. own adds how many mutants the package's own tests killed.
func (r *report) write(w io.Writer, inJSON, own bool) error {
	if inJSON {
		return json.NewEncoder(w).Encode(r)
	}
	byOwn := ""
	if own {
		byOwn = fmt.Sprintf(", %d by its own tests", r.Own)
	}
	fmt.Fprintf(w, "%-40s %3d of %3d killed (%.0f %%)%s\n", r.Package, r.Killed, r.Killed+r.Survived,
		100*float64(r.Killed)/float64(r.Killed+r.Survived), byOwn)
	for _, m := range r.Survivors {
		fmt.Fprintf(w, "  survived  %s\n", m)
	}
	return nil
}

// try runs the tests on a sample of the package's mutants: its own tests first, then those of the further packages.
// If ctx ends, it returns what it has found until then, and an error.
func (p *pkg) try(ctx context.Context, o options, further []*pkg, tmp string) (*report, error) {
	all, err := p.mutants()
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.seed, 0x6d7574616e74))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	r := &report{Package: p.ImportPath, Survivors: []mutant{}}
	if len(all) == 0 {
		return r, nil
	}
	suites, err := newSuites(ctx, o, p, further, tmp)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if r.Killed+r.Survived == o.n {
			break
		}
		overlay, err := m.overlay(tmp)
		if err != nil {
			return nil, err
		}
		switch by, err := suites.kill(ctx, overlay); {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err != nil:
			return nil, err
		case by == nil:
			r.Survived++
			r.Survivors = append(r.Survivors, m)
		case by.broken:
		default:
			r.Killed++
			if by.pkg == p.ImportPath {
				r.Own++
			}
		}
	}
	return r, nil
}

// mutants returns the exchanges that the package's files allow.
func (p *pkg) mutants() (all []mutant, err error) {
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
	return all, nil
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

// MarshalJSON writes a mutant in its text form.
func (m mutant) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// apply returns the file's text with the exchange.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.at], []byte(m.to), src[m.at+len(m.from):])
}

// overlay writes the changed file, and returns the path of the overlay file for the compiler.
func (m mutant) overlay(tmp string) (string, error) {
	src, err := os.ReadFile(m.path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(tmp, "changed.go"), filepath.Join(tmp, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: changed}})
	return overlay, errors.Join(err, os.WriteFile(changed, m.apply(src), 0o600), os.WriteFile(overlay, text, 0o600))
}

// neighbours are pairs of operators that are easily confused.
var neighbours = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.EQL: "!=", token.NEQ: "==", token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
}

// mutants returns the exchanges that a file allows, in the order of its text.
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
