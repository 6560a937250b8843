// Package yamlfile reads YAML from untrusted sources. It is the only package that passes such bytes to the YAML
// library. First it limits the size, the nesting and the expansion of aliases, so that the library cannot take much
// memory or time. It turns a panic of the library into an error.
//
//	root, err := yamlfile.Parse(data, "sweep.yaml")
//	err := yamlfile.Unmarshal(data, "profile.yaml", &p) // unknown keys are errors
//
// Errors name file, line and key; see internal/yamlerr.
package yamlfile

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"lorasim/internal/yamlerr"
)

// Limits of a file. The library (goccy/go-yaml 1.19) takes memory that grows with the square of the depth, stack
// that grows with the keys of a mapping, and time that grows with the square of the entries. It copies a block of
// text (| or >) once for each empty line below it. At these limits it takes seconds at most (TestCost). Scenarios,
// sweeps, profiles and matrices have less than a tenth of each.
const (
	MaxBytes  = 512 << 10
	maxBlank  = 100 // empty lines in a row
	maxLines  = 10_000
	maxTokens = 50_000  // an entry of a list is 2, a key with its value 3
	maxDepth  = 64      // lists and mappings within each other
	maxValues = 100_000 // with every alias expanded
)

// Parse returns the root node of the single document in data, nil for an empty one. file is the name in errors.
func Parse(data []byte, file string) (ast.Node, error) {
	r := reader{file: file}
	err := r.guard(func() error { return r.parse(unmarked(data)) })
	return r.root, err
}

// Unmarshal decodes the single document in data into a value. Keys without a field in the value are errors.
func Unmarshal(data []byte, file string, into any) error {
	return unmarshal(data, file, into, yaml.Strict())
}

// UnmarshalPart is Unmarshal, except that it ignores keys without a field in the value.
func UnmarshalPart(data []byte, file string, into any) error { return unmarshal(data, file, into) }

func unmarshal(data []byte, file string, into any, options ...yaml.DecodeOption) error {
	r := reader{file: file}
	return r.guard(func() error {
		data := unmarked(data)
		if err := r.parse(data); err != nil {
			return err
		}
		return yamlerr.In(file, yaml.UnmarshalWithOptions(data, into, options...))
	})
}

// unmarked returns a file without the byte order mark that editors may put first and YAML allows.
func unmarked(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

// reader reads one document.
type reader struct {
	file string
	root ast.Node     // nil: empty, or not known yet
	tag  *ast.TagNode // the first one; nil: none
}

// guard turns a panic of the library into an error. Known panics come from tags: the library takes a tagged value
// for a list or a mapping without a check ("servers: !!str x").
func (r *reader) guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil && r.tag != nil {
			err = fmt.Errorf("%s:%d: tag %s is not allowed here", r.file, r.tag.Start.Position.Line, r.tag.Start.Value)
		} else if p != nil {
			err = fmt.Errorf("%s: this YAML cannot be read (%v)", r.file, p)
		}
	}()
	return f()
}

func (r *reader) parse(data []byte) error {
	file := r.file
	if len(data) > MaxBytes {
		return fmt.Errorf("%s: is larger than %d KiB, the most that is read", file, MaxBytes>>10)
	}
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return fmt.Errorf("%s: is UTF-16, expected UTF-8", file)
	}
	if at, err := checkLines(data); err != nil {
		return fmt.Errorf("%s:%d: %w", file, at, err)
	}
	tokens := lexer.Tokenize(string(data))
	if at, err := checkTokens(tokens); err != nil {
		return fmt.Errorf("%s:%d: %w", file, at.Position.Line, err)
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return yamlerr.In(file, err)
	}
	docs := f.Docs
	if len(docs) > 1 {
		return fmt.Errorf("%s: %d documents, expected one", file, len(docs))
	}
	if len(docs) == 0 || docs[0].Body == nil {
		return nil
	}
	e := expand(docs[0].Body)
	if r.tag = e.tag; e.err != nil {
		return fmt.Errorf("%s:%d: %w", file, e.at.GetToken().Position.Line, e.err)
	}
	r.root = docs[0].Body
	return nil
}

// checkLines limits the number of lines, which end in \n, \r or \r\n, and of consecutive empty lines. at is the
// first line beyond a limit.
func checkLines(data []byte) (at int, err error) {
	line, blank := 1, 0
	for i, c := range data {
		switch {
		case c == '\n' && i > 0 && data[i-1] == '\r', c == ' ', c == '\t':
			continue
		case c != '\n' && c != '\r':
			blank = 0
			continue
		}
		line++
		if blank++; blank > maxBlank {
			return line, fmt.Errorf("more than %d empty lines in a row", maxBlank)
		}
		if line > maxLines {
			return line, fmt.Errorf("more than %d lines, the most that are read", maxLines)
		}
	}
	return line, nil
}

// checkTokens limits the number and the nesting of tokens. at is the first token beyond a limit.
func checkTokens(tokens token.Tokens) (at *token.Token, err error) {
	var n nesting
	documents := 0
	for i, t := range tokens {
		if i == maxTokens {
			return t, fmt.Errorf("more than %d keys, values and marks, the most that are read", maxTokens)
		}
		switch t.Type {
		case token.DocumentHeaderType, token.DocumentEndType:
			if documents++; documents > 8 { // the parser's stack grows with them
				return t, fmt.Errorf("more than one document, expected one")
			}
		case token.CommentType:
			continue
		}
		if n.take(t); len(n.open) > maxDepth {
			return t, fmt.Errorf("nested deeper than %d levels, the most that are read", maxDepth)
		}
	}
	return nil, nil
}

// nesting is an upper bound of the depth at which the parser works, computed without recursion. It tracks open
// lists, mappings, tags and anchors. In flow style ([], {}) their bracket or a comma closes them; in block style a
// line that begins to the left does.
type nesting struct {
	open    []level
	flow    int          // open brackets
	line    int          // of the last token
	pending bool         // the last token waits for a value
	prev    *token.Token // the last token
}

type level struct {
	kind   token.Type
	column int // in block style; 0: in flow style
}

func (n *nesting) take(t *token.Token) {
	defer func() { n.prev, n.line = t, t.Position.Line }()
	kind := t.Type
	opens := kind == token.SequenceEntryType || kind == token.MappingValueType || kind == token.MappingKeyType ||
		kind == token.TagType || kind == token.AnchorType
	switch kind {
	case token.SequenceStartType, token.MappingStartType:
		n.dedent(t)
		n.open = append(n.open, level{kind: kind})
		n.flow++
		n.pending = true
		return
	case token.SequenceEndType, token.MappingEndType:
		if n.flow > 0 {
			n.comma()
			n.open = n.open[:len(n.open)-1]
			n.flow--
		}
		n.pending = false
		return
	case token.CollectEntryType:
		if n.flow > 0 {
			n.comma()
		}
		n.pending = true
		return
	}
	n.dedent(t)
	if opens {
		column := 0
		if n.flow == 0 {
			column = t.Position.Column
			if kind == token.MappingValueType && n.prev != nil { // a mapping begins where its key does
				column = min(column, n.prev.Position.Column)
			}
		}
		n.open = append(n.open, level{kind, column})
	}
	n.pending = opens
}

// comma closes what is open within the innermost bracket.
func (n *nesting) comma() {
	for n.open[len(n.open)-1].kind != token.SequenceStartType && n.open[len(n.open)-1].kind != token.MappingStartType {
		n.open = n.open[:len(n.open)-1]
	}
}

// dedent closes the levels of block style that a token at the beginning of a line ends: all
// that begin to its right, and its siblings. A level in its own column is no sibling if it
// still waits for its value: goccy/go-yaml reads "-\na:\n-\na:" as four levels.
func (n *nesting) dedent(t *token.Token) {
	if n.flow > 0 || t.Position.Line == n.line {
		return
	}
	column := t.Position.Column
	for len(n.open) > 0 && n.open[len(n.open)-1].column > column {
		n.open = n.open[:len(n.open)-1]
	}
	isEntry := t.Type == token.SequenceEntryType
	for len(n.open) > 0 && n.open[len(n.open)-1].column == column {
		last := n.open[len(n.open)-1]
		n.open = n.open[:len(n.open)-1]
		if n.pending && (last.kind == token.SequenceEntryType) != isEntry {
			n.open = append(n.open, last)
			return
		}
		if isEntry && last.kind == token.SequenceEntryType {
			return // what lies below in this column is the mapping that has the list
		}
	}
}
