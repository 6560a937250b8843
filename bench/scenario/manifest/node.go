package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/yamlfile"
)

// A Place is a line of a file.
type Place struct {
	File string
	Line int
}

// MarshalText writes FILE:LINE.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// A node is a value of a manifest with its place. A nil node is an absent value: all methods accept it.
type node struct {
	place  Place
	offset int    // of a scalar: bytes before its token in the file; -1: unknown
	raw    string // of a scalar: its token as it stands in the file
	text   string // of a scalar
	keys   []string
	fields map[string]*node
	items  []*node
	scalar bool
}

// documents reads the YAML documents of a file.
func documents(data []byte, file string) (docs []*node, err error) {
	if i := bytes.Index(data, []byte("{{")); i >= 0 {
		line := 1 + bytes.Count(data[:i], []byte("\n"))
		return nil, fmt.Errorf("%s:%d: this is a template: give what it becomes (helm template), or its values file",
			file, line)
	}
	lines := lineStarts(data)
	for start := 0; start < len(data); {
		end := next(data, start)
		// The lines before the document stay as comments, so that errors name lines of the file.
		padded := slices.Concat(bytes.Repeat([]byte("#\n"), bytes.Count(data[:start], []byte("\n"))), data[start:end])
		root, err := yamlfile.Parse(padded, file)
		if err != nil {
			return nil, err
		}
		if root != nil {
			b := builder{file: file, anchors: map[string]*node{}, data: data, lines: lines}
			docs = append(docs, b.node(root))
		}
		if start = end; start < len(data) {
			start += len("---")
		}
	}
	return docs, nil
}

// next returns where the document that begins at start ends: before a line that begins with ---, or at the end.
func next(data []byte, start int) int {
	for at := start; at < len(data); {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
		if rest := data[at:]; bytes.HasPrefix(rest, []byte("---")) && (len(rest) == 3 ||
			strings.ContainsRune(" \t\r\n", rune(rest[3]))) {
			return at
		}
	}
	return len(data)
}

// builder turns a document of the YAML library into nodes.
type builder struct {
	file    string
	data    []byte
	lines   []int // where each line of data begins
	anchors map[string]*node
}

func (b *builder) node(n ast.Node) *node {
	if n == nil {
		return nil
	}
	at := &node{place: Place{b.file, n.GetToken().Position.Line}, offset: -1}
	switch n := n.(type) {
	case *ast.MappingNode:
		at.fields = map[string]*node{}
		for _, v := range n.Values {
			b.pair(at, v)
		}
	case *ast.MappingValueNode:
		at.fields = map[string]*node{}
		b.pair(at, n)
	case *ast.SequenceNode:
		at.items = []*node{}
		for _, v := range n.Values {
			at.items = append(at.items, b.node(v))
		}
	case *ast.AnchorNode:
		value := b.node(n.Value)
		b.anchors[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return b.anchors[n.Value.GetToken().Value]
	case *ast.TagNode:
		return b.node(n.Value)
	case *ast.NullNode:
		return nil
	case *ast.LiteralNode:
		at.scalar, at.text = true, n.Value.Value
	default:
		b.scalar(at, n)
	}
	return at
}

// scalar fills a node from a token, and finds the token's bytes in the file: a patch replaces them.
func (b *builder) scalar(at *node, n ast.Node) {
	t := n.GetToken()
	at.scalar, at.text = true, t.Value
	if t.Position.Line > len(b.lines) {
		return
	}
	if j := b.lines[t.Position.Line-1] + t.Position.Column - 1; j <= len(b.data) {
		if raw := strings.TrimSpace(t.Origin); bytes.HasPrefix(b.data[j:], []byte(raw)) {
			at.offset, at.raw = j, raw
		}
	}
}

// lineStarts returns where each line begins.
func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func (b *builder) pair(to *node, v *ast.MappingValueNode) {
	if v.Key.IsMergeKey() {
		if from := b.node(v.Value); from != nil {
			for _, k := range from.keys {
				if to.fields[k] == nil {
					to.keys, to.fields[k] = append(to.keys, k), from.fields[k]
				}
			}
		}
		return
	}
	key := v.Key.GetToken().Value
	value := b.node(v.Value)
	if _, twice := to.fields[key]; !twice {
		to.keys = append(to.keys, key)
	}
	to.fields[key] = value
}

// get returns the value at a path of keys.
func (n *node) get(path ...string) *node {
	for _, k := range path {
		if n == nil {
			return nil
		}
		n = n.fields[k]
	}
	return n
}

// str returns the text of a scalar; "" for anything else.
func (n *node) str(path ...string) string {
	if n = n.get(path...); n == nil || !n.scalar {
		return ""
	}
	return n.text
}

// list returns the items of a list.
func (n *node) list(path ...string) []*node {
	if n = n.get(path...); n == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.items), func(n *node) bool { return n == nil })
}

// is reports whether a scalar means true.
func (n *node) is(path ...string) bool {
	switch strings.ToLower(n.str(path...)) {
	case "true", "1", "yes", "on":
		return true
	}
	return false
}

// count returns a whole number of at least 0. ok is false if the value is absent or not such a number.
func (n *node) count(path ...string) (v int, ok bool) {
	v, err := strconv.Atoi(strings.TrimSpace(n.str(path...)))
	return v, err == nil && v >= 0
}

// texts returns a mapping of scalars.
func (n *node) texts(path ...string) map[string]string {
	m := map[string]string{}
	if n = n.get(path...); n != nil {
		for k, v := range n.fields {
			m[k] = v.str()
		}
	}
	return m
}
