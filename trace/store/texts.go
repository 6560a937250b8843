package store

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"lorasim/trace"
)

// defaultBlock is how many tokens an id of Mooncake's traces stands for. Files
// whose ids stand for other numbers say so.
const defaultBlock = 512

// texts are those of the prompts of a file.
type texts struct {
	blocks map[int32]*trace.Blocks // by the tokens of an id
	named  map[int64]*trace.Text
	block  int32 // tokens of an id where the row does not say
}

// set makes the text of a request's prompt of what its row says of it.
func (t *texts) set(r *row) (err error) {
	switch {
	case r.ids != nil:
		ids := make([]int64, len(r.ids))
		for i, x := range r.ids {
			if ids[i] = int64(x); float64(ids[i]) != x {
				return fmt.Errorf("%s: %v is no whole number", idsColumn, x)
			}
		}
		n := cmp.Or(r.block, t.block)
		if n < 1 {
			return fmt.Errorf("%s: %d, expected >= 1 token", blockColumn, n)
		}
		if t.blocks[n] == nil {
			t.blocks[n] = &trace.Blocks{Tokens: n}
		}
		if r.Text, err = t.blocks[n].Text(ids, r.Prompt); err != nil {
			return fmt.Errorf("%s: %w", idsColumn, err)
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
		if x := r.Text; x.Parent != parent || x.Start != r.start || x.Start < 0 || parent == nil && x.Start > 0 || parent != nil && x.Start < parent.Start {
			return fmt.Errorf("%s %d follows %d tokens of %s %d, expected the same as in the rows before, where its own begins", textColumn, r.of, r.start, parentColumn, r.parent)
		}
		if r.reply != 0 {
			r.Reply = r.Text
		}
	}
	return nil
}

// putText notes what a request's prompt is the beginning of for its row.
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

func isCSV(path string) bool {
	return strings.EqualFold(filepath.Ext(strings.TrimSuffix(path, ".gz")), ".csv")
}
