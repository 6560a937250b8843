package yamlfile

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// expansion counts the values of a document with every alias replaced by its anchor's value. A few hundred bytes of
// aliases of aliases can expand to more than fits in memory.
type expansion struct {
	sizes map[string]int // values below each anchor; -1: of one that is not complete
	at    ast.Node
	err   error
	tag   *ast.TagNode // the first one
}

// tags are those of YAML's core schema and its usual extensions.
var tags = []string{"!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!binary", "!!timestamp",
	"!!merge", "!!omap", "!!set"}

// expand computes the size of a document after expansion. It rejects an alias within its own anchor.
func expand(root ast.Node) *expansion {
	e := &expansion{sizes: map[string]int{}}
	e.count(root)
	return e
}

func (e *expansion) fail(at ast.Node, format string, a ...any) int {
	if e.err == nil {
		e.at, e.err = at, fmt.Errorf(format, a...)
	}
	return 0
}

// count returns the values below a node, itself included.
func (e *expansion) count(n ast.Node) (size int) {
	if e.err != nil || n == nil {
		return 0
	}
	size = 1
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			size += e.count(v)
		}
	case *ast.MappingValueNode:
		size += e.count(n.Key) + e.count(n.Value)
	case *ast.MappingKeyNode:
		size += e.count(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			size += e.count(v)
		}
	case *ast.TagNode:
		if !slices.Contains(tags, n.Start.Value) {
			return e.fail(n, "unknown tag %.40q", n.Start.Value)
		}
		if e.tag == nil {
			e.tag = n
		}
		size += e.count(n.Value)
	case *ast.AnchorNode:
		name := n.Name.String()
		e.sizes[name] = -1
		size += e.count(n.Value)
		e.sizes[name] = size
	case *ast.AliasNode:
		below, known := e.sizes[n.Value.String()]
		switch {
		case !known:
			return e.fail(n, "unknown alias *%.40s", n.Value)
		case below < 0:
			return e.fail(n, "alias *%.40s refers to a value that contains it", n.Value)
		}
		size += below
	}
	if size > maxValues {
		return e.fail(n, "aliases expand to more than %d values, the most that are read", maxValues)
	}
	return size
}
