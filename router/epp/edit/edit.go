// Package edit writes changed numbers into the text of an EndpointPickerConfig, in YAML or JSON. It replaces and
// inserts only those numbers. Comments, order, style and all other values stay as they are.
//
//	out, err := edit.Apply(text, "config.yaml", "", []epp.Change{{"queue-scorer", 1}})
package edit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"lorasim/internal/yamlerr"
	"lorasim/internal/yamlfile"
	"lorasim/router/epp"
)

// empty is what the loaders run for an empty document, written out.
const empty = `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
`

// errPlace is the error for a number that cannot be changed in place, for example because it is a YAML alias.
var errPlace = errors.New("the changes cannot be written in place")

// Apply returns the text of a configuration with some numbers changed. file is the file name for errors; dialect "" is
// that of apiVersion. Apply checks that the result parses to the configuration that [epp.Config.With] returns. An empty
// document becomes the loaders' default configuration, written out.
func Apply(text []byte, file string, d epp.Dialect, changes []epp.Change) ([]byte, error) {
	old, err := epp.Parse(text, file, d)
	if err != nil {
		return nil, err
	}
	want, err := old.With(changes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if root, err := yamlfile.Parse(text, file); err == nil && root == nil {
		text = []byte(empty)
	}
	for _, ch := range changes { // one by one: each changes the places of the others
		if text, err = change(text, file, d, ch); err != nil {
			return nil, err
		}
	}
	got, err := epp.Parse(text, file, d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPlace, err)
	}
	if !got.Same(want) {
		return nil, fmt.Errorf("%s: %w: use --policy epp:...,set=... or change them by hand", file, errPlace)
	}
	return text, nil
}

// change makes one change.
func change(text []byte, file string, d epp.Dialect, ch epp.Change) ([]byte, error) {
	c, err := epp.Parse(text, file, d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPlace, err)
	}
	root, err := yamlfile.Parse(text, file)
	if err != nil {
		return nil, err
	}
	w := &writer{text: text, root: root, value: epp.FormatNumber(ch.Value)}
	numbers := c.Numbers()
	i := slices.IndexFunc(numbers, func(n epp.Number) bool { return n.Name() == ch.Name })
	switch {
	case i < 0:
		w.addPlugin(ch.Name)
		w.addScorer(ch.Name, c.Members())
	case numbers[i].Key == "":
		w.setWeight(numbers[i].Plugin, c.Members())
	default:
		w.setParameter(numbers[i].Plugin, strings.Split(numbers[i].Key, "."))
	}
	if w.err != nil {
		return nil, fmt.Errorf("%s: %s: %w", file, ch.Name, w.err)
	}
	return w.done(), nil
}

// writer collects what to replace in a text.
type writer struct {
	text   []byte
	root   ast.Node
	value  string // of the change
	pieces []piece
	err    error
}

// piece replaces the bytes from one offset to another.
type piece struct {
	from, to int
	text     string
}

// done is the text with all pieces.
func (w *writer) done() []byte {
	slices.SortStableFunc(w.pieces, func(a, b piece) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	at := 0
	for _, p := range w.pieces {
		out.Write(w.text[at:p.from])
		out.WriteString(p.text)
		at = p.to
	}
	out.Write(w.text[at:])
	return out.Bytes()
}

// setWeight sets the weight of a plugin wherever the first profile names it.
func (w *writer) setWeight(plugin string, members []string) {
	uses := sequence(at(w.profile(), "plugins"))
	if uses == nil {
		w.addProfile(members, map[string]string{plugin: w.value})
		return
	}
	for _, u := range uses.Values {
		if scalar(at(u, "pluginRef")) != plugin {
			continue
		}
		if p := pair(u, "weight"); p != nil {
			w.replace(p, w.value)
		} else {
			w.insert(u, []string{"pluginRef"}, "weight", w.value)
		}
	}
}

// setParameter sets a parameter of a plugin.
func (w *writer) setParameter(plugin string, path []string) {
	var node ast.Node
	if list := sequence(at(w.root, "plugins")); list != nil {
		for _, p := range list.Values {
			if scalar(at(p, "name")) == plugin || at(p, "name") == nil && scalar(at(p, "type")) == plugin {
				node = p
			}
		}
	}
	if node == nil {
		w.err = errPlace
		return
	}
	parameters := pair(node, "parameters")
	switch {
	case parameters == nil:
		w.insert(node, []string{"type", "name"}, "parameters", "{"+quote(path[0], w.json())+": "+w.value+"}")
		return
	case parameters.Value.Type() == ast.NullType:
		w.replace(parameters, "{"+quote(path[0], w.json())+": "+w.value+"}")
		return
	}
	node = parameters.Value
	for _, step := range path[:len(path)-1] {
		if list := sequence(node); list != nil {
			if i, err := strconv.Atoi(step); err == nil && i < len(list.Values) {
				node = list.Values[i]
				continue
			}
		}
		node = at(node, step)
	}
	last := path[len(path)-1]
	if p := pair(node, last); p != nil {
		w.replace(p, w.value)
		return
	}
	w.insert(node, nil, last, w.value)
}

// addPlugin adds a plugin of a type to the list.
func (w *writer) addPlugin(typ string) {
	list := sequence(at(w.root, "plugins"))
	if list == nil {
		w.err = errPlace
		return
	}
	w.appendTo(list, [][2]string{{"type", typ}})
}

// addScorer adds a scorer with its weight to the first profile.
func (w *writer) addScorer(plugin string, members []string) {
	if uses := sequence(at(w.profile(), "plugins")); uses != nil {
		w.appendTo(uses, [][2]string{{"pluginRef", plugin}, {"weight", w.value}})
		return
	}
	w.addProfile(append(members, plugin), map[string]string{plugin: w.value})
}

// profile is the first profile, nil if there is none.
func (w *writer) profile() ast.Node {
	if list := sequence(at(w.root, "schedulingProfiles")); list != nil && len(list.Values) > 0 {
		return list.Values[0]
	}
	return nil
}

// addProfile writes the profile that the loader makes for a document without any, with the weights that are not 1.
func (w *writer) addProfile(members []string, weights map[string]string) {
	if w.profile() != nil {
		w.err = errPlace // a profile without plugins
		return
	}
	if !w.json() {
		var b strings.Builder
		b.WriteString("schedulingProfiles:\n- name: default\n  plugins:\n")
		for _, m := range members {
			fmt.Fprintf(&b, "  - pluginRef: %s\n", quote(m, false))
			if weights[m] != "" {
				fmt.Fprintf(&b, "    weight: %s\n", weights[m])
			}
		}
		text := b.String()
		if n := len(w.text); n > 0 && w.text[n-1] != '\n' {
			text = "\n" + text
		}
		w.put(len(w.text), len(w.text), text)
		return
	}
	var parts []string
	for _, m := range members {
		part := `{"pluginRef": ` + quote(m, true)
		if weights[m] != "" {
			part += `, "weight": ` + weights[m]
		}
		parts = append(parts, part+"}")
	}
	w.beforeEnd(w.root, len(pairs(w.root)) > 0, `"schedulingProfiles": [{"name": "default", "plugins": [`+
		strings.Join(parts, ", ")+`]}]`)
}

// insert adds a key to a mapping: in flow style at its end, else on a line of its own below the last of the given keys
// that is there, or without keys above the first one.
func (w *writer) insert(node ast.Node, below []string, key, value string) {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		w.err = errPlace
		return
	}
	if m.IsFlowStyle {
		w.beforeEnd(m, len(m.Values) > 0, quote(key, w.json())+": "+value)
		return
	}
	if below == nil {
		at := m.Values[0].Key.GetToken().Position
		offset := w.offset(at.Line, at.Column)
		w.put(offset, offset, key+": "+value+w.newline(at.Line)+strings.Repeat(" ", at.Column-1))
		return
	}
	line, column := 0, 0
	for _, k := range below {
		if p := pair(node, k); p != nil {
			at := p.Key.GetToken().Position
			line, column = max(line, at.Line), at.Column
		}
	}
	w.putLines(line, column, []string{key + ": " + value})
}

// appendTo adds a mapping to the end of a list.
func (w *writer) appendTo(list *ast.SequenceNode, keys [][2]string) {
	if list.IsFlowStyle {
		var parts []string
		for i, k := range keys {
			value := k[1]
			if i == 0 {
				value = quote(value, w.json())
			}
			parts = append(parts, quote(k[0], w.json())+": "+value)
		}
		w.beforeEnd(list, len(list.Values) > 0, "{"+strings.Join(parts, ", ")+"}")
		return
	}
	lines := []string{"- " + keys[0][0] + ": " + quote(keys[0][1], false)}
	for _, k := range keys[1:] {
		lines = append(lines, "  "+k[0]+": "+k[1])
	}
	w.putLines(lastLine(list), list.Start.Position.Column, lines)
}

// putLines inserts lines below a line, from a column on.
func (w *writer) putLines(line, column int, lines []string) {
	end, newline := w.offset(line+1, 1), w.newline(line)
	indent := strings.Repeat(" ", column-1)
	text := indent + strings.Join(lines, newline+indent) + newline
	if end > 0 && w.text[end-1] != '\n' { // the last line has no end
		text = newline + strings.TrimSuffix(text, newline)
	}
	w.put(end, end, text)
}

// beforeEnd inserts into a mapping or list in flow style, before its bracket and the space in front of it.
func (w *writer) beforeEnd(node ast.Node, comma bool, text string) {
	end := endOf(node)
	if end == nil {
		w.err = errPlace
		return
	}
	at := w.offset(end.Line, end.Column)
	at = len(bytes.TrimRight(w.text[:at], " \t\r\n"))
	if comma {
		text = ", " + text
	}
	w.put(at, at, text)
}

// replace writes a new value.
func (w *writer) replace(p *ast.MappingValueNode, value string) {
	t := p.Value.GetToken()
	at := w.offset(t.Position.Line, t.Position.Column)
	if bytes.HasPrefix(w.text[at:], []byte(t.Value)) && t.Value != "" {
		w.put(at, at+len(t.Value), value)
		return
	}
	if p.Value.Type() != ast.NullType {
		w.err = errPlace
		return
	}
	at = w.offset(p.Start.Position.Line, p.Start.Position.Column) + 1 // behind the colon
	w.put(at, at, " "+value)
}

func (w *writer) put(from, to int, text string) { w.pieces = append(w.pieces, piece{from, to, text}) }

// json says whether the document is in flow style as a whole.
func (w *writer) json() bool {
	m, ok := w.root.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}

// offset is the byte at a line and a column, both from 1; columns count characters. Beyond the text it is its end.
func (w *writer) offset(line, column int) int {
	at := 0
	for range line - 1 {
		i := bytes.IndexByte(w.text[at:], '\n')
		if i < 0 {
			return len(w.text)
		}
		at += i + 1
	}
	for i := range string(w.text[at:]) {
		if column--; column == 0 {
			return at + i
		}
	}
	return len(w.text)
}

// newline is how a line ends.
func (w *writer) newline(line int) string {
	if end := w.offset(line+1, 1); end > 1 && w.text[end-1] == '\n' && w.text[end-2] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// quote is a text as a YAML or JSON value.
func quote(text string, json bool) string {
	plain := func(r rune) bool {
		return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("._-", r)
	}
	if !json && text != "" && text[0] >= 'A' && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return strconv.Quote(text)
}

// pairs are the keys and values of a mapping.
func pairs(n ast.Node) []*ast.MappingValueNode {
	list, _ := yamlerr.Pairs(n)
	return list
}

// pair is a key of a mapping with its value, nil if it is not there.
func pair(n ast.Node, key string) *ast.MappingValueNode {
	if n == nil {
		return nil
	}
	for _, p := range pairs(n) {
		if p.Key.GetToken().Value == key {
			return p
		}
	}
	return nil
}

// at is the value of a key, nil if it is not there.
func at(n ast.Node, key string) ast.Node {
	if p := pair(n, key); p != nil {
		return p.Value
	}
	return nil
}

// sequence is a list, nil if the node is none.
func sequence(n ast.Node) *ast.SequenceNode {
	list, _ := n.(*ast.SequenceNode)
	return list
}

// scalar is the text of a single value, "" if the node is none.
func scalar(n ast.Node) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return ""
}

// lastLine is the last line of a node.
func lastLine(n ast.Node) int {
	v := lines{}
	ast.Walk(&v, n)
	return v.last
}

type lines struct{ last int }

// Visit implements ast.Visitor.
func (v *lines) Visit(n ast.Node) ast.Visitor {
	v.last = max(v.last, n.GetToken().Position.Line)
	if end := endOf(n); end != nil {
		v.last = max(v.last, end.Line)
	}
	return v
}

// endOf is the place of the bracket that ends a mapping or list in flow style, nil for other nodes.
func endOf(n ast.Node) *token.Position {
	var end *token.Token
	switch n := n.(type) {
	case *ast.MappingNode:
		end = n.End
	case *ast.SequenceNode:
		end = n.End
	}
	if end == nil {
		return nil
	}
	return end.Position
}

// Comment inserts comment lines above a configuration. JSON has no comments, and is returned unchanged.
func Comment(text []byte, lines ...string) []byte {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		return text
	}
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString("# " + strings.ReplaceAll(l, "\n", " ") + "\n")
	}
	b.Write(text)
	return b.Bytes()
}
