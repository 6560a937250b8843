package trace

import "fmt"

// Text is a part of prompts that other requests may repeat: a conversation that
// grows, a system prompt, a block of a trace that tells equal blocks by equal
// ids. Texts form trees: what comes before a text is the beginning of its
// parent. A prompt is the first tokens of a text, those of its parents before.
//
// Two prompts are equal as far as they are of the same texts, and differ from
// where their texts part.
type Text struct {
	Parent *Text // nil: the prompt begins with this text
	Start  int32 // tokens of the parent, and of its parents, before it
	Block  int32 // tokens of the text; 0: it goes on as long as a prompt does
	ID     int64 // what files call it
	other  *Text // see Texts
}

// Known is how many of the first n tokens of a prompt its text tells.
func (t *Text) Known(n int32) int32 {
	if t.Block > 0 {
		return min(n, t.Start+t.Block)
	}
	return n
}

// Common is the number of tokens that prompts of two texts have in common,
// when they are long enough.
func (t *Text) Common(u *Text) int32 {
	const all = 1<<31 - 1
	for seen, end := t, int32(all); seen != nil; seen, end = seen.Parent, min(end, seen.Start) {
		for other, limit := u, int32(all); other != nil; other, limit = other.Parent, min(limit, other.Start) {
			if other == seen {
				return min(end, limit)
			}
		}
	}
	return 0
}

// Hash tells the first n tokens of a text from others by what files call them: it
// is the same in every run.
func (t *Text) Hash(n int32) uint64 {
	for t.Start >= n && t.Parent != nil {
		t = t.Parent
	}
	h := uint64(0)
	for ; t != nil; t = t.Parent {
		h = (h ^ uint64(t.ID)<<32 ^ uint64(t.ID)>>32 ^ uint64(t.Start)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// Texts are the texts of a workload by what they are called; by other those of
// the same name after something else.
type Texts map[int64]*Text

// Of returns the text of a name that follows the first start tokens of another,
// nil for the beginning of a prompt: the same for the same arguments.
func (t Texts) Of(parent *Text, start int32, id int64) *Text {
	first := t[id]
	for x := first; x != nil; x = x.other {
		if x.Parent == parent && x.Start == start {
			return x
		}
	}
	x := &Text{Parent: parent, Start: start, ID: id, other: first}
	t[id] = x
	return x
}

// Blocks are the texts of prompts that consist of blocks told by ids, all of them
// of so many tokens but the last one of a prompt, which may be cut off. An id
// stands for its block after those before. It keeps every block: 32 bytes each.
type Blocks struct {
	Tokens int32

	first  []*Text // by id, of those below maxFirst: the one met first
	others Texts   // all others
	spare  []Text
}

// Text returns the text of a prompt of so many tokens: nil without ids.
func (b *Blocks) Text(ids []int64, prompt int32) (*Text, error) {
	if n := (int64(prompt) + int64(b.Tokens) - 1) / int64(b.Tokens); int64(len(ids)) > n {
		return nil, fmt.Errorf("%d ids for %d tokens, expected at most %d of %d tokens each", len(ids), prompt, n, b.Tokens)
	}
	var x *Text
	for i, id := range ids {
		x = b.next(x, int32(i)*b.Tokens, id)
	}
	return x, nil
}

// maxFirst bounds what one large id makes of Blocks.first.
const maxFirst = 1 << 20

// next is the block of an id after another one.
func (b *Blocks) next(parent *Text, start int32, id int64) *Text {
	if id < 0 || id >= maxFirst {
		return b.other(parent, start, id)
	}
	for int64(len(b.first)) <= id {
		b.first = append(b.first, nil)
	}
	switch x := b.first[id]; {
	case x == nil:
		if len(b.spare) == 0 {
			b.spare = make([]Text, 256)
		}
		x, b.spare = &b.spare[0], b.spare[1:]
		*x = Text{Parent: parent, Start: start, Block: b.Tokens, ID: id}
		b.first[id] = x
		return x
	case x.Parent == parent:
		return x
	}
	return b.other(parent, start, id)
}

func (b *Blocks) other(parent *Text, start int32, id int64) *Text {
	if b.others == nil {
		b.others = Texts{}
	}
	x := b.others.Of(parent, start, id)
	x.Block = b.Tokens
	return x
}

// IDs are the ids of a text that consists of blocks.
func (t *Text) IDs() []int64 {
	if t == nil || t.Block == 0 {
		return nil
	}
	ids := make([]int64, t.Start/t.Block+1)
	for ; t != nil; t = t.Parent {
		ids[t.Start/t.Block] = t.ID
	}
	return ids
}

// Lately finds out which prompts begin alike, of those that it has seen lately. The
// zero value has seen none.
type Lately struct{ now, before map[textKey]*Text }

type textKey struct {
	parent *Text
	start  int32
	id     int64
}

// lately is how many texts are remembered at least, and twice that at most.
const lately = 1 << 18

// Prompt returns the text of a prompt by hashes of its blocks of so many tokens.
func (l *Lately) Prompt(hashes []uint64, block int32) (x *Text) {
	for i, h := range hashes {
		k := textKey{x, int32(i) * block, int64(h)}
		if x = l.now[k]; x != nil {
			continue
		}
		if len(l.now) >= lately || l.now == nil {
			l.now, l.before = map[textKey]*Text{}, l.now
		}
		if x = l.before[k]; x == nil {
			x = &Text{Parent: k.parent, Start: k.start, Block: block, ID: k.id}
		}
		l.now[k] = x
	}
	return x
}
