package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// adaptersKey is the key of the adapters in a schema's metadata, adapterColumn that
// of a row's.
const (
	adaptersKey   = "lorasim.adapters"
	adapterColumn = "adapter"
)

// maxAdapters bounds the number of adapters in a file, and so the memory that a file can make the reader take.
const maxAdapters = 1 << 20

// row is one row of a file.
type row struct {
	trace.Request
	text  table.Raw // the adapter in CSV and JSONL
	name  []byte    // of the adapter, where named; empty: base model
	named bool      // the adapter is a name, not an index
	rank  int32     // 0: not stated

	ids          []float64 // of blocks
	block        int32     // tokens of an id; 0: not stated
	of, parent   int64     // texts; -1: none
	start, reply int32
}

func (r *row) columns(adapter any, o WriteOptions) (columns []table.Column) {
	for _, c := range []struct {
		name     string
		value    any
		wanted   bool
		optional bool
	}{
		{"id", &r.ID, true, false},
		{"arrival_s", &r.Arrival, true, false},
		{adapterColumn, adapter, true, false},
		{"prompt_tokens", &r.Prompt, true, false},
		{"output_tokens", &r.Output, true, false},
		{"max_new_tokens", &r.MaxNew, o.MaxNew, true},
		{"rank", &r.rank, o.Ranks, true},
		{"hash_ids", &r.ids, o.Blocks, true},
		{"hash_block", &r.block, o.blockTokens, true},
		{"text", &r.of, o.Texts, true},
		{"text_start", &r.start, o.Texts, true},
		{"text_parent", &r.parent, o.Texts, true},
		{"reply", &r.reply, o.Texts, true},
	} {
		if c.wanted {
			columns = append(columns, table.Column{Name: c.name, Value: c.value, Optional: c.optional,
				Decimal: c.name == "arrival_s"})
		}
	}
	return columns
}

// names maps the adapters of a CSV or JSONL file, which are names or indices, to indices. Names may look like numbers:
// a file in which one adapter is a name holds names in all rows.
type names struct {
	adapters []trace.Adapter
	index    map[string]int32
	fixed    bool // all adapters are known

	named bool  // an adapter is a name
	most  int32 // the largest index, if all are indices
}

func newNames(adapters []trace.Adapter) *names {
	n := &names{adapters: adapters, index: make(map[string]int32, len(adapters)), most: -1}
	for i, a := range slices.Backward(adapters) {
		n.index[a.Name] = int32(i) // the first one of equal names
	}
	return n
}

// learn enters the adapter of a row, as a name and as an index: which of both it is shows at the end of the file.
func (n *names) learn(row *row) error {
	n.named = n.named || row.named && len(row.name) > 0
	if !row.named {
		n.most = max(n.most, row.Adapter)
	}
	if len(row.name) == 0 || !row.named && row.Adapter < 0 {
		return nil
	}
	i, ok := n.index[string(row.name)]
	if !ok {
		if len(n.adapters) == maxAdapters {
			return fmt.Errorf("more than %d different adapters", maxAdapters)
		}
		i = int32(len(n.adapters))
		n.index[string(row.name)] = i
		n.adapters = append(n.adapters, trace.Adapter{Name: string(row.name)})
	}
	a := &n.adapters[i]
	if a.Rank != 0 && row.rank != 0 && a.Rank != int(row.rank) {
		return fmt.Errorf("adapter %s has rank %d here and %d before", a.Name, row.rank, a.Rank)
	}
	a.Rank = max(a.Rank, int(row.rank))
	return nil
}

// learned returns the adapters of the file.
func (n *names) learned() (*names, error) {
	if n.named {
		out := newNames(n.adapters)
		out.named, out.fixed = true, true
		return out, nil
	}
	if n.most >= maxAdapters {
		return nil, fmt.Errorf("%d gives more than %d adapters", n.most, maxAdapters)
	}
	var adapters []trace.Adapter
	if n.most >= 0 {
		adapters = trace.Names(int(n.most)+1, nil)
	}
	for text, i := range n.index {
		if at, err := strconv.Atoi(text); err == nil && at >= 0 {
			adapters[at].Rank = max(adapters[at].Rank, n.adapters[i].Rank)
		}
	}
	out := newNames(adapters)
	out.fixed = true
	return out, nil
}

// resolve sets the adapter index of a row.
func (n *names) resolve(row *row) error {
	switch {
	case len(row.name) == 0, !row.named && row.Adapter == trace.BaseModel:
		row.Adapter = trace.BaseModel
	default:
		i, ok := n.index[string(row.name)]
		switch {
		case ok:
			row.Adapter = i
		case row.named || n.named:
			return n.unknown(string(row.name))
		}
	}
	return nil
}

func (n *names) unknown(name string) error {
	if len(n.adapters) == 0 || len(n.adapters) > 20 {
		return fmt.Errorf("%q is none of the %d adapters", name, len(n.adapters))
	}
	known := make([]string, len(n.adapters))
	for i, a := range n.adapters {
		known[i] = a.Name
	}
	return suggest.Unknown("adapter", name, known)
}

// setAdapter sets the adapter of a row to the name or the index that a CSV or JSONL file states. A number without
// quotes may be either, so both are set; a CSV file quotes with an apostrophe, as spreadsheets do.
func (r *row) setAdapter(isJSON bool) (err error) {
	if isJSON && r.text[0] == '"' {
		r.named = true
		r.name, err = textfile.Text(r.text)
		return err
	}
	if r.name = r.text; !isJSON && !isIndex(r.text) {
		quoted, isQuoted := bytes.CutPrefix(r.text, []byte("'"))
		if r.name, r.named = table.Unquoted(r.text), true; isQuoted && isIndex(quoted) {
			r.name = quoted
		}
		return nil
	}
	i, err := textfile.Int(r.text)
	if err != nil {
		return err
	}
	r.Adapter = int32(i)
	if i < int64(trace.BaseModel) || int64(r.Adapter) != i {
		return errors.New(string(r.text) + " is out of range, expected -1 (base model) or an index")
	}
	return nil
}

// isIndex reports whether an adapter is a whole number rather than a name.
func isIndex(b []byte) bool {
	digits := bytes.TrimPrefix(b, []byte("-"))
	return len(digits) > 0 && textfile.Digits(digits)
}

// defaultBlock is the number of tokens of a block in Mooncake's traces. Files with another number hold it in
// hash_block.
const defaultBlock = 512

// texts holds the texts of the prompts of a file.
type texts struct {
	blocks map[int32]*trace.Blocks // by the tokens of an id
	named  map[int64]*trace.Text
	block  int32 // tokens of an id where the row does not say
}

// set sets the text of a request's prompt from the columns of its row.
func (t *texts) set(r *row) (err error) {
	switch {
	case r.ids != nil:
		ids := make([]int64, len(r.ids))
		for i, x := range r.ids {
			if ids[i] = int64(x); float64(ids[i]) != x {
				return fmt.Errorf("hash_ids: %v is not a whole number", x)
			}
		}
		n := cmp.Or(r.block, t.block)
		if n < 1 {
			return fmt.Errorf("hash_block: %d, expected >= 1 token", n)
		}
		if t.blocks[n] == nil {
			t.blocks[n] = &trace.Blocks{Tokens: n}
		}
		if r.Text, err = t.blocks[n].Text(ids, r.Prompt); err != nil {
			return fmt.Errorf("hash_ids: %w", err)
		}
	case r.of >= 0:
		parent := t.named[r.parent]
		if r.parent >= 0 && parent == nil {
			parent = &trace.Text{ID: r.parent}
			t.named[r.parent] = parent
		}
		if r.Text = t.named[r.of]; r.Text == nil {
			r.Text = &trace.Text{Parent: parent, Start: r.start, ID: r.of}
			t.named[r.of] = r.Text
		}
		if x := r.Text; x.Parent != parent || x.Start != r.start || x.Start < 0 || parent == nil && x.Start > 0 ||
			parent != nil && x.Start < parent.Start {
			return fmt.Errorf(
				"text %d follows %d tokens of text_parent %d, unlike in earlier rows or before the start of its parent", r.of, r.start, r.parent)
		}
		if r.reply != 0 {
			r.Reply = r.Text
		}
	}
	return nil
}

// putText sets the columns of a row from the text of its request's prompt.
func (r *row) putText() {
	r.ids, r.block, r.of, r.parent, r.start, r.reply = nil, 0, -1, -1, 0, 0
	t := r.Text
	if t == nil {
		return
	}
	for _, id := range t.IDs() {
		r.ids = append(r.ids, float64(id))
	}
	if r.block = t.Block; t.Block > 0 {
		return
	}
	r.of, r.start = t.ID, t.Start
	if t.Parent != nil {
		r.parent = t.Parent.ID
	}
	if r.Reply == t {
		r.reply = 1
	}
}
