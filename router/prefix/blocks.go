package prefix

import (
	"slices"

	"lorasim/trace"
)

// Blocks is vLLM's cache (BlockPool in v1/core/block_pool.py). Requests that compute the same page at the same time
// keep a block each. A later request for the page finds the oldest block that is left.
type Blocks struct {
	books
	entries map[key]*blockEntry
	oldest  block         // of a ring: next is the block to evict first
	unused  *block        // to be used again, by next
	path    []segment     // of the text looked at, from the beginning
	spare   []*blockEntry // to be used again
}

// block is a page in the cache, or a number of pages that never match.
type block struct {
	prev, next *block // by the time of release, if no request holds it
	of         *blockEntry
	same       *block // entered later with the same tokens
	at         int32  // page of the prompt
	users      int32
	pages      int32
}

// blockEntry holds the cached blocks of a text: blocks[i] is page first+i.
type blockEntry struct {
	key
	first  int32
	n      int32 // blocks, those with the same tokens counted each
	blocks []*block
}

// segment is the pages of a prompt, from lo to hi, that end within one text.
type segment struct {
	text   *trace.Text
	lo, hi int32
}

// NewBlocks returns an empty cache. A page has the given number of tokens.
func NewBlocks(page int32) *Blocks {
	c := &Blocks{books: books{page: page, epochs: map[int32]int32{}}, entries: map[key]*blockEntry{}}
	c.oldest.prev, c.oldest.next = &c.oldest, &c.oldest
	return c
}

// Unload implements Cache. It changes nothing: vLLM identifies adapters by their names.
func (c *Blocks) Unload(int32) {}

// split finds the texts of the first pages of a text.
func (c *Blocks) split(t *trace.Text, pages int32) []segment {
	c.path = c.path[:0]
	for hi := pages; t != nil && hi > 0; t = t.Parent {
		if lo := t.Start / c.page; lo < hi {
			c.path = append(c.path, segment{t, lo, hi})
			hi = lo
		}
	}
	slices.Reverse(c.path)
	return c.path
}

// find calls f with the cached blocks of the first pages of a text.
func (c *Blocks) find(text *trace.Text, adapter, pages int32, f func(*block)) (match int32) {
	k := key{adapter: adapter, epoch: c.epochs[adapter]}
	for _, s := range c.split(text, pages) {
		k.text = s.text
		e := c.entries[k]
		for i := s.lo; i < s.hi; i++ {
			if e == nil || int(i-e.first) >= len(e.blocks) || e.blocks[i-e.first] == nil {
				return i
			}
			f(e.blocks[i-e.first])
		}
	}
	return pages
}

// Match implements Cache.
func (c *Blocks) Match(text *trace.Text, adapter, pages int32) (match, idle int32) {
	match = c.find(text, adapter, pages, func(b *block) {
		if b.users == 0 {
			idle++
		}
	})
	return match, idle
}

// Peek implements Cache.
func (c *Blocks) Peek(text *trace.Text, adapter, pages int32) int32 {
	return c.find(text, adapter, pages, func(*block) {})
}

// Take implements Cache.
func (c *Blocks) Take(h *Hold, text *trace.Text, adapter, pages int32) int32 {
	return c.find(text, adapter, pages, func(b *block) {
		if b.users++; b.users == 1 {
			b.prev.next, b.next.prev = b.next, b.prev
			b.prev, b.next = nil, nil
			c.cached--
			c.held++
		}
		h.blocks = append(h.blocks, b)
	})
}

// Add implements Cache. Pages that are cached already are cached twice.
func (c *Blocks) Add(h *Hold, text *trace.Text, adapter, pages int32) {
	k := key{adapter: adapter, epoch: c.epochs[adapter]}
	for _, s := range c.split(text, pages) {
		lo := max(s.lo, int32(len(h.blocks)))
		if lo >= s.hi {
			continue
		}
		k.text = s.text
		e := c.entry(k, s.text.Start/c.page)
		for int(s.hi-e.first) > len(e.blocks) {
			e.blocks = append(e.blocks, nil)
		}
		for i := lo; i < s.hi; i++ {
			b := c.newBlock()
			*b = block{of: e, at: i, users: 1, pages: 1}
			last := &e.blocks[i-e.first]
			for *last != nil {
				last = &(*last).same
			}
			*last = b
			e.n++
			h.blocks = append(h.blocks, b)
		}
		c.held += int64(s.hi - lo)
	}
}

// Release implements Cache.
func (c *Blocks) Release(h *Hold) {
	for i := len(h.blocks) - 1; i >= 0; i-- {
		b := h.blocks[i]
		if b.users--; b.users == 0 {
			c.held--
			c.push(b)
		}
	}
	h.blocks = h.blocks[:0]
}

// Keep implements Cache.
func (c *Blocks) Keep(_ *Hold, pages int32) {
	if pages > 0 {
		b := c.newBlock()
		*b = block{pages: pages}
		c.push(b)
	}
}

// push makes a block the one released last.
func (c *Blocks) push(b *block) {
	last := c.oldest.prev
	b.prev, b.next = last, &c.oldest
	last.next, c.oldest.prev = b, b
	c.cached += int64(b.pages)
}

// Evict implements Cache.
func (c *Blocks) Evict(pages int64) int64 {
	pages = min(pages, c.cached)
	for left := pages; left > 0; {
		b := c.oldest.next
		n := int32(min(left, int64(b.pages)))
		left -= int64(n)
		if b.pages -= n; b.pages == 0 {
			c.drop(b)
		}
	}
	c.cached -= pages
	return pages
}

// drop removes a block that no request holds.
func (c *Blocks) drop(b *block) {
	b.prev.next, b.next.prev = b.next, b.prev
	if e := b.of; e != nil {
		at := &e.blocks[b.at-e.first]
		for *at != b {
			at = &(*at).same
		}
		*at = b.same
		if e.n--; e.n == 0 {
			delete(c.entries, e.key)
			e.blocks, e.text = e.blocks[:0], nil
			c.spare = append(c.spare, e)
		}
	}
	*b = block{next: c.unused}
	c.unused = b
}

func (c *Blocks) newBlock() *block {
	b := c.unused
	if b == nil {
		return new(block)
	}
	c.unused = b.next
	return b
}

// entry returns that of a text, a new one if need be.
func (c *Blocks) entry(k key, first int32) *blockEntry {
	e := c.entries[k]
	if e == nil {
		if n := len(c.spare); n > 0 {
			e, c.spare = c.spare[n-1], c.spare[:n-1]
			clear(e.blocks[:cap(e.blocks)])
		} else {
			e = new(blockEntry)
		}
		e.key, e.first, e.n = k, first, 0
		c.entries[k] = e
	}
	return e
}
