// Package prefix implements the prefix caches of sglang (RadixCache) and vLLM (BlockPool). A prefix cache keeps
// computed prompts, so that later requests of the same adapter need not compute them again. Each simulated worker has a
// [Cache]. A router has one per worker if it estimates what the worker caches.
//
//	var hold prefix.Hold
//	cache := prefix.NewRadix(16)
//	cached := cache.Take(&hold, text, adapter, pages) // pages that need not be computed
//	cache.Add(&hold, text, adapter, pages)            // the request has computed the others
//	cache.Release(&hold)                              // they may be evicted
//
// The unit is the page. A cache always holds the first pages of a text, and those of the texts before it. It evicts the
// page that was released longest ago; of pages released together, the one deepest in the prompt. Run time and memory
// grow with the number of texts, not of pages.
package prefix

import "lorasim/trace"

// Cache is the prefix cache of one worker: [Blocks], a [Radix] or a [Tree].
type Cache interface {
	// Match looks up the first pages of a text for an adapter. match is the number of leading pages that are cached;
	// idle is the number of these cached pages that no request holds.
	Match(text *trace.Text, adapter, pages int32) (match, idle int32)
	// Peek returns the first result of Match, but does not count as a use of the pages.
	Peek(text *trace.Text, adapter, pages int32) int32
	// Take adds to a hold those of the first pages of a text that are cached, and returns their number. The hold must
	// be empty.
	Take(h *Hold, text *trace.Text, adapter, pages int32) int32
	// Add caches the first pages of a text and adds them to a hold, which already has the first ones of them.
	Add(h *Hold, text *trace.Text, adapter, pages int32)
	// Release empties a hold. Pages that no other request holds may now be evicted, after all pages released before.
	Release(h *Hold)
	// Keep adds pages that may be evicted but never match. They come after those of the hold, which may be empty.
	Keep(h *Hold, pages int32)
	// Evict drops the given number of pages, or all that no request holds, and returns the number of dropped pages.
	Evict(pages int64) int64
	// Unload makes the cached pages of an adapter useless, if the engine treats an adapter that is loaded again as a
	// new one. The pages stay until they are evicted.
	Unload(adapter int32)
	// Renew makes the cached pages of an adapter useless, because it now has the weights of another version.
	Renew(adapter int32)
	// Cached returns the number of pages that may be evicted.
	Cached() int64
	// Held returns the number of pages that requests hold. Shared pages count once.
	Held() int64
}

// Radix is sglang's cache (mem_cache/radix_cache.py), except that it evicts page by page. If two requests compute the
// same pages at the same time, one copy is cached.
type Radix struct {
	books
	entries map[*trace.Text]*entry // by entry.other those of other adapters
	oldest  run                    // of a ring: next is the run to evict first
	free    *entry                 // to be used again, by parent
	unused  *run                   // to be used again, by next
}

// books holds the state that all caches share.
type books struct {
	page   int32           // tokens
	cached int64           // pages that no request holds
	held   int64           // pages that requests hold, shared ones once
	epochs map[int32]int32 // adapters that were unloaded or renewed: how often
}

// Cached implements Cache.
func (b *books) Cached() int64 { return b.cached }

// Held implements Cache.
func (b *books) Held() int64 { return b.held }

// Unload implements Cache.
func (b *books) Unload(adapter int32) { b.epochs[adapter]++ }

// Renew implements Cache.
func (b *books) Renew(adapter int32) { b.epochs[adapter]++ }

type key struct {
	text    *trace.Text
	adapter int32
	epoch   int32
}

// entry holds the cached pages of a text, from first to end, counted from the beginning of the prompt. Its parent has
// the pages before first.
type entry struct {
	key
	other      *entry // of the same text
	parent     *entry // nil: there are no pages before first
	first, end int32
	holders    []holders // by page, descending: pages before holders[0].end are held
	deepest    *run      // the last pages that no request holds, then by run.up
	usual      [1]holders
}

// holders are n requests, or texts further down, that hold the pages up to end.
type holders struct{ end, n int32 }

// run is a number of pages that were released together.
type run struct {
	prev, next *run // by the time of release
	of         *entry
	up         *run // the run of the same entry before this one
	pages      int32
}

// Hold is the pages that a request holds in a cache: the first pages of a text. The zero value is empty.
type Hold struct {
	at     *entry
	pages  int32
	blocks []*block // of [Blocks]
	node   *node    // of a [Tree]
}

// Pages returns the number of held pages.
func (h *Hold) Pages() int32 {
	if h.node != nil {
		return h.node.hi
	}
	return h.pages + int32(len(h.blocks))
}

// NewRadix returns an empty cache. A page has the given number of tokens.
func NewRadix(page int32) *Radix {
	c := &Radix{books: books{page: page, epochs: map[int32]int32{}}, entries: map[*trace.Text]*entry{}}
	c.oldest.prev, c.oldest.next = &c.oldest, &c.oldest
	return c
}

// Match implements Cache.
func (c *Radix) Match(text *trace.Text, adapter, pages int32) (match, idle int32) {
	_, match, idle = c.match(text, adapter, pages)
	return match, idle
}

// entry returns that of a text, nil if there is none.
func (c *Radix) entry(k key) *entry {
	e := c.entries[k.text]
	for e != nil && e.key != k {
		e = e.other
	}
	return e
}

// Peek implements Cache.
func (c *Radix) Peek(text *trace.Text, adapter, pages int32) int32 {
	_, match, _ := c.match(text, adapter, pages)
	return match
}

// match also returns the entry of the last page found.
func (c *Radix) match(text *trace.Text, adapter, pages int32) (at *entry, match, idle int32) {
	k := key{adapter: adapter, epoch: c.epochs[adapter]}
	for t, hi := text, pages; t != nil && hi > 0; t = t.Parent {
		lo := t.Start / c.page
		if hi <= lo {
			continue
		}
		k.text = t
		if e := c.entry(k); e != nil && e.end > lo {
			at, match = e, min(e.end, hi)
			break
		}
		hi = lo
	}
	for e, hi := at, match; e != nil; e, hi = e.parent, e.first {
		held := min(e.heldTo(), hi)
		idle += hi - held
		if held > e.first {
			break
		}
	}
	return at, match, idle
}

// Take implements Cache.
func (c *Radix) Take(h *Hold, text *trace.Text, adapter, pages int32) int32 {
	h.at, h.pages, _ = c.match(text, adapter, pages)
	if h.at != nil {
		c.hold(h.at, h.pages)
	}
	return h.pages
}

// Add implements Cache.
func (c *Radix) Add(h *Hold, text *trace.Text, adapter, pages int32) {
	if pages <= h.pages {
		return
	}
	e := c.grow(text, key{adapter: adapter, epoch: c.epochs[adapter]}, pages)
	c.hold(e, pages)
	old := *h
	h.at, h.pages = e, pages
	if old.at != nil {
		c.drop(old.at, old.pages)
	}
}

// grow caches the first pages of a text and returns the entry with the last one.
func (c *Radix) grow(t *trace.Text, k key, pages int32) *entry {
	lo := t.Start / c.page
	for ; pages <= lo; lo = t.Start / c.page {
		t = t.Parent
	}
	k.text = t
	e := c.entry(k)
	if e == nil {
		e = c.newEntry()
		e.key, e.first, e.end = k, lo, lo
		if lo > 0 {
			e.parent = c.grow(t.Parent, k, lo)
		}
		e.other = c.entries[t]
		c.entries[t] = e
	}
	if pages > e.end {
		// The pages in between are held before anyone can evict them, see Add.
		c.release(e, e.end, pages)
		e.end = pages
	}
	return e
}

// Release implements Cache.
func (c *Radix) Release(h *Hold) {
	if h.at != nil {
		c.drop(h.at, h.pages)
	}
	*h = Hold{}
}

// Keep implements Cache.
func (c *Radix) Keep(_ *Hold, pages int32) {
	if pages <= 0 {
		return
	}
	if last := c.oldest.prev; last.of == nil && last != &c.oldest {
		last.pages += pages
	} else {
		c.push(nil, pages)
	}
	c.cached += int64(pages)
}

// Evict implements Cache.
func (c *Radix) Evict(pages int64) int64 {
	pages = min(pages, c.cached)
	for left := pages; left > 0; {
		r := c.oldest.next
		n := int32(min(left, int64(r.pages)))
		left -= int64(n)
		if r.pages -= n; r.of != nil {
			r.of.end -= n
		}
		if r.pages == 0 {
			e := r.of
			c.remove(r)
			if e != nil && e.end == e.first {
				c.forget(e)
			}
		}
	}
	c.cached -= pages
	return pages
}

// heldTo is the page up to which someone holds an entry.
func (e *entry) heldTo() int32 {
	if len(e.holders) == 0 {
		return e.first
	}
	return e.holders[0].end
}

// hold adds a holder of the pages of an entry up to end, and of all before.
func (c *Radix) hold(e *entry, end int32) {
	for ; e != nil; e, end = e.parent, e.first {
		held := e.heldTo()
		i := 0
		for i < len(e.holders) && e.holders[i].end > end {
			i++
		}
		if i < len(e.holders) && e.holders[i].end == end {
			e.holders[i].n++
		} else {
			e.holders = append(e.holders, holders{})
			copy(e.holders[i+1:], e.holders[i:])
			e.holders[i] = holders{end, 1}
		}
		if end > held {
			c.take(e, held, end)
		}
		if held > e.first {
			return // this entry holds those before already
		}
	}
}

// drop takes a holder of the pages of an entry up to end away.
func (c *Radix) drop(e *entry, end int32) {
	for ; e != nil; e, end = e.parent, e.first {
		i := 0
		for e.holders[i].end != end {
			i++
		}
		if e.holders[i].n--; e.holders[i].n == 0 {
			e.holders = append(e.holders[:i], e.holders[i+1:]...)
		}
		held := e.heldTo()
		if end > held {
			c.held -= int64(end - held)
			c.release(e, held, end)
		}
		if held > e.first {
			return
		}
	}
}

// release makes the pages of an entry from held to end those released last.
// Pages beyond end were released before.
func (c *Radix) release(e *entry, held, end int32) {
	r := c.push(e, end-held)
	at := &e.deepest
	for *at != nil {
		at = &(*at).up
	}
	*at = r
	c.cached += int64(end - held)
}

// take makes the pages of an entry from held to end held ones. No request held them: they are the first of its runs.
func (c *Radix) take(e *entry, held, end int32) {
	c.cached -= int64(end - held)
	c.held += int64(end - held)
	top := e.end // first page of the run looked at, and of all deeper ones
	at := &e.deepest
	for *at != nil && top-(*at).pages >= end {
		top -= (*at).pages
		at = &(*at).up
	}
	if r := *at; r != nil && top > end { // the run that end lies in
		r.pages = top - end
		at = &r.up
	}
	for r := *at; r != nil; r = *at {
		c.remove(r)
	}
}

// push makes a run the one released last.
func (c *Radix) push(e *entry, pages int32) *run {
	r := c.unused
	if r == nil {
		r = new(run)
	} else {
		c.unused = r.next
	}
	last := c.oldest.prev
	*r = run{prev: last, next: &c.oldest, of: e, pages: pages}
	last.next, c.oldest.prev = r, r
	return r
}

// remove takes a run out of the order and out of its entry.
func (c *Radix) remove(r *run) {
	r.prev.next, r.next.prev = r.next, r.prev
	if r.of != nil {
		at := &r.of.deepest
		for *at != r {
			at = &(*at).up
		}
		*at = r.up
	}
	*r = run{next: c.unused}
	c.unused = r
}

func (c *Radix) newEntry() *entry {
	e := c.free
	if e == nil {
		e = new(entry)
		e.holders = e.usual[:0]
		return e
	}
	c.free = e.parent
	*e = entry{holders: e.holders[:0]}
	return e
}

// forget removes an entry that has no pages left.
func (c *Radix) forget(e *entry) {
	if first := c.entries[e.text]; first != e {
		for first.other != e {
			first = first.other
		}
		first.other = e.other
	} else if e.other != nil {
		c.entries[e.text] = e.other
	} else {
		delete(c.entries, e.text)
	}
	*e = entry{parent: c.free, holders: e.holders[:0]}
	c.free = e
}
