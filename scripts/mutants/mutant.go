package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
)

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
	out := append([]byte{}, src[:m.at]...)
	out = append(out, m.to...)
	return append(out, src[m.at+len(m.from):]...)
}

// neighbours are the operators that are most easily written one for another.
var neighbours = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.EQL: "!=", token.NEQ: "==", token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*",
}

// mutants lists the exchanges that a file allows, in the order of its text.
func mutants(path string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		return nil, err
	}
	var ms []mutant
	add := func(pos token.Pos, from, to string) {
		p := fset.Position(pos)
		ms = append(ms, mutant{path: path, line: p.Line, at: p.Offset, from: from, to: to})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if to, ok := neighbours[n.Op]; ok {
				add(n.OpPos, n.Op.String(), to)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "min" {
				add(f.Pos(), "min", "max")
			} else if ok && f.Name == "max" {
				add(f.Pos(), "max", "min")
			}
		case *ast.IfStmt:
			from := string(src[fset.Position(n.Cond.Pos()).Offset:fset.Position(n.Cond.End()).Offset])
			add(n.Cond.Pos(), from, "!("+from+")")
		}
		return true
	})
	return ms, nil
}
