package scripts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lifecycle is the only file that changes the state of a request in an engine.
const lifecycle = "sim/engine/lifecycle.go"

// TestArchitectureStates holds the drawing of a request's states in docs/architecture.md against package engine: the
// drawing has all states, the functions that it names exist, and [lifecycle] assigns exactly the states that arrows
// lead to.
func TestArchitectureStates(t *testing.T) {
	drawing := regexp.MustCompile("(?s)```mermaid\nstateDiagram-v2\n(.*?)```").FindStringSubmatch(page(t))
	if drawing == nil {
		t.Fatal("no drawing of states")
	}
	code := namesOf(t)
	drawn, reached := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\S+) --> (\S+): (.*)$`).FindAllStringSubmatch(drawing[1], -1) {
		for _, state := range m[1:3] {
			if state != "[*]" {
				drawn[state] = true
			}
		}
		if m[2] == "[*]" {
			continue // the words say what ends the request
		}
		reached[m[2]] = true
		for _, name := range regexp.MustCompile(`\b(?:[A-Z]\w*\.)?[A-Za-z]\w*\b`).FindAllString(m[3], 1) {
			if !code.symbols["engine."+name] && !code.symbols["engine.Engine."+name] {
				t.Errorf("%s --> %s: package engine has no %s", m[1], m[2], name)
			}
		}
	}
	states, assigned := statesOf(t)
	if !maps.Equal(drawn, states) {
		t.Errorf("drawn %v, expected %v", sorted(drawn), sorted(states))
	}
	if !maps.Equal(reached, assigned) {
		t.Errorf("arrows lead to %v, the code assigns %v", sorted(reached), sorted(assigned))
	}
}

// statesOf are the constants of engine.State, and those that functions assign to a request.
func statesOf(t *testing.T) (states, assigned map[string]bool) {
	t.Helper()
	states, assigned = map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob("../sim/engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				constants(n, "State", states)
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == "state" {
						if assigned[bareName(n.Rhs[i])] = true; filepath.Base(file) != filepath.Base(lifecycle) {
							t.Errorf("%s changes the state of a request, expected %s alone", file, lifecycle)
						}
					}
				}
			}
			return true
		})
	}
	return states, assigned
}

// constants notes the names of a block of constants that begins with one of the type.
func constants(d *ast.GenDecl, of string, names map[string]bool) {
	if d.Tok != token.CONST {
		return
	}
	first, ok := d.Specs[0].(*ast.ValueSpec)
	if !ok || first.Type == nil || bareName(first.Type) != of {
		return
	}
	for _, s := range d.Specs {
		for _, id := range s.(*ast.ValueSpec).Names {
			names[id.Name] = true
		}
	}
}

// TestArchitectureMessages holds the drawing of a request's way against the code: a participant that is a type has the
// methods that its messages name.
func TestArchitectureMessages(t *testing.T) {
	drawing := regexp.MustCompile("(?s)```mermaid\nsequenceDiagram\n(.*?)```").FindStringSubmatch(page(t))
	if drawing == nil {
		t.Fatal("no drawing of messages")
	}
	participants := map[string]string{}
	for _, m := range regexp.MustCompile(`participant (\w+) as (\S+)`).FindAllStringSubmatch(drawing[1], -1) {
		participants[m[1]] = m[2]
	}
	code := namesOf(t)
	checked := 0
	for _, m := range regexp.MustCompile(`\w+->>(\w+): (.*)`).FindAllStringSubmatch(drawing[1], -1) {
		for _, name := range regexp.MustCompile(`(?:^|[\s,])([A-Z]\w*)`).FindAllStringSubmatch(m[2], -1) {
			if to := participants[m[1]]; strings.Contains(to, ".") {
				if checked++; !code.symbols[to+"."+name[1]] {
					t.Errorf("%q: %s has no method %s", m[0], to, name[1])
				}
			}
		}
	}
	if checked < 8 {
		t.Errorf("%d methods checked", checked)
	}
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
