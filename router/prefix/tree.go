package prefix

import "lorasim/trace"

// Tree is sglang's cache with its eviction (UnifiedTreeCore in mem_cache/unified_cache/unified_tree_core.py). It is a
// tree of nodes. A node has the pages of one insertion, and is split where prompts differ or a match ends. Eviction
// drops whole nodes, so it may drop more pages than necessary. Each look at a prompt counts as a use of it, and of what
// it splits off. A [Radix] evicts page by page and takes no time per node.
type Tree struct {
	books
	roots  map[root]*node
	oldest node // of a ring: next is the node used longest ago
}

type root struct{ adapter, epoch int32 }

// node is the pages from lo to hi of a text.
type node struct {
	prev, next *node // by the time of use, no child after its parent
	parent     *node
	children   map[*trace.Text]*node // by the text that their first page ends in
	text       *trace.Text           // nil: pages that never match
	lo, hi     int32
	users      int32
}

// NewTree returns an empty cache. A page has the given number of tokens.
func NewTree(page int32) *Tree {
	c := &Tree{books: books{page: page, epochs: map[int32]int32{}}, roots: map[root]*node{}}
	c.oldest.prev, c.oldest.next = &c.oldest, &c.oldest
	return c
}

// owner is the text that a page of a prompt ends in.
func (c *Tree) owner(t *trace.Text, page int32) *trace.Text {
	for t.Start/c.page > page {
		t = t.Parent
	}
	return t
}

// walk finds the node that ends with the last page kept of a text's first pages,
// the root if there is none, splits it there, and counts all on the way as used.
func (c *Tree) walk(text *trace.Text, adapter, pages int32) *node {
	k := root{adapter, c.epochs[adapter]}
	n := c.roots[k]
	if n == nil {
		n = &node{}
		c.roots[k] = n
	}
	for n.hi < pages {
		child := n.children[c.owner(text, n.hi)]
		if child == nil {
			break
		}
		same := min(child.hi, pages, text.Common(child.text)/c.page)
		if same < child.hi {
			child = c.split(child, same)
		}
		n = child
	}
	c.touch(n)
	return n
}

// touch makes a node, and those before it, the ones used last.
func (c *Tree) touch(n *node) {
	for ; n != nil && n.parent != nil; n = n.parent {
		n.unlink()
		c.append(n)
	}
}

// split cuts a node in two and returns the first part. The second part counts as used (_split_node).
func (c *Tree) split(n *node, at int32) *node {
	first := &node{parent: n.parent, text: n.text, lo: n.lo, hi: at, users: n.users}
	first.parent.children[c.owner(n.text, n.lo)] = first
	n.parent, n.lo = first, at
	first.children = map[*trace.Text]*node{c.owner(n.text, at): n}
	n.unlink()
	c.append(n)
	c.append(first)
	return first
}

// Match implements Cache.
func (c *Tree) Match(text *trace.Text, adapter, pages int32) (match, idle int32) {
	n := c.walk(text, adapter, pages)
	for x := n; x.parent != nil && x.users == 0; x = x.parent {
		idle += x.hi - x.lo
	}
	return n.hi, idle
}

// Peek implements Cache.
func (c *Tree) Peek(text *trace.Text, adapter, pages int32) (match int32) {
	for n := c.roots[root{adapter, c.epochs[adapter]}]; n != nil && match == n.hi && match < pages; {
		if n = n.children[c.owner(text, match)]; n != nil {
			match = min(n.hi, pages, text.Common(n.text)/c.page)
		}
	}
	return match
}

// Take implements Cache.
func (c *Tree) Take(h *Hold, text *trace.Text, adapter, pages int32) int32 {
	h.node = c.walk(text, adapter, pages)
	c.lock(h.node)
	return h.node.hi
}

// Add implements Cache.
func (c *Tree) Add(h *Hold, text *trace.Text, adapter, pages int32) {
	n := c.walk(text, adapter, pages)
	if n.hi < pages {
		child := &node{parent: n, text: text, lo: n.hi, hi: pages}
		if n.children == nil {
			n.children = map[*trace.Text]*node{}
		}
		n.children[c.owner(text, n.hi)] = child
		c.appendTo(n, child)
		c.cached += int64(child.hi - child.lo)
		n = child
	}
	c.lock(n)
	c.unlock(h.node)
	h.node = n
}

func (c *Tree) lock(n *node) {
	for ; n.parent != nil; n = n.parent {
		if n.users++; n.users == 1 {
			c.cached -= int64(n.hi - n.lo)
			c.held += int64(n.hi - n.lo)
		}
	}
}

func (c *Tree) unlock(n *node) {
	for ; n != nil && n.parent != nil; n = n.parent {
		if n.users--; n.users == 0 {
			c.cached += int64(n.hi - n.lo)
			c.held -= int64(n.hi - n.lo)
		}
	}
}

// Release implements Cache. It does not count as a use (UnifiedTreeCore.dec_lock_ref); Add does.
func (c *Tree) Release(h *Hold) {
	c.unlock(h.node)
	*h = Hold{}
}

// Keep implements Cache. The pages are a node below those of the hold.
func (c *Tree) Keep(h *Hold, pages int32) {
	if pages > 0 {
		c.appendTo(h.node, &node{hi: pages})
		c.cached += int64(pages)
	}
}

// Evict implements Cache. It drops whole nodes, so the result may be larger than pages.
func (c *Tree) Evict(pages int64) (evicted int64) {
	for n := c.oldest.next; evicted < pages && n != &c.oldest; {
		next := n.next
		if n.users == 0 { // the oldest that nobody holds has no children: they are older
			n.unlink()
			if n.text != nil {
				delete(n.parent.children, c.owner(n.text, n.lo))
			}
			evicted += int64(n.hi - n.lo)
		}
		n = next
	}
	c.cached -= evicted
	return evicted
}

func (n *node) unlink() { n.prev.next, n.next.prev = n.next, n.prev }

// appendTo makes a new node the one used last but for its parent, which has just been used, and those before it.
func (c *Tree) appendTo(parent, n *node) {
	if parent == nil || parent.parent == nil {
		c.append(n)
		return
	}
	n.prev, n.next = parent.prev, parent
	parent.prev.next, parent.prev = n, n
}

// append makes a node the one used last.
func (c *Tree) append(n *node) {
	last := c.oldest.prev
	n.prev, n.next = last, &c.oldest
	last.next, c.oldest.prev = n, n
}
