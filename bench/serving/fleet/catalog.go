package fleet

import (
	"sync"

	"lorasim/trace"
)

// A catalog has the adapters that the fleet knows: their names, paths and base models. It has a lock of its own, so
// that a request can be read while others are routed.
type catalog struct {
	pathOf func(trace.Adapter) string // path of an adapter that no worker has told; constant

	mu sync.RWMutex
	// adapters never shrinks, and its elements never change: an adapter's index is its place in the list. A slice of it
	// stays valid without the lock.
	adapters []trace.Adapter
	index    map[string]int32  // by name; of two adapters with one name, the first
	roots    map[string]string // by name: paths of adapters that were found on workers
	bases    map[string]string // by name: base models that workers have reported
}

func newCatalog(adapters []trace.Adapter, pathOf func(trace.Adapter) string) *catalog {
	c := &catalog{index: map[string]int32{}, roots: map[string]string{}, bases: map[string]string{}, pathOf: pathOf}
	c.set(adapters)
	return c
}

// set replaces the list by one that begins with the same adapters.
func (c *catalog) set(all []trace.Adapter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := len(c.adapters); a < len(all); a++ {
		if _, ok := c.index[all[a].Name]; !ok {
			c.index[all[a].Name] = int32(a)
		}
	}
	c.adapters = all
}

// list returns all adapters. The caller must not change them.
func (c *catalog) list() []trace.Adapter {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.adapters
}

// lookup returns the index of an adapter; -1: unknown.
func (c *catalog) lookup(name string) int32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if a, ok := c.index[name]; ok {
		return a
	}
	return -1
}

// name returns the name of an adapter.
func (c *catalog) name(a int32) string { return c.list()[a].Name }

// rank returns the rank of a request's adapter, or 0 for the base model.
func (c *catalog) rank(a int32) int32 {
	if a == trace.BaseModel {
		return 0
	}
	return int32(c.list()[a].Rank)
}

// path returns the path of an adapter's weights, as workers see it.
func (c *catalog) path(a int32) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	adapter := c.adapters[a]
	if root := c.roots[adapter.Name]; root != "" {
		return root
	}
	return c.pathOf(adapter)
}

// root returns the path of an adapter that a worker told; "": none did.
func (c *catalog) root(name string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.roots[name]
}

// setRoot notes the path of an adapter that a worker told.
func (c *catalog) setRoot(name, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots[name] = path
}

// base returns the base model of an adapter, and whether it is known.
func (c *catalog) base(name string) (base string, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	base, known = c.bases[name]
	return base, known
}

// baseOf returns the base model of an adapter, or "" if it is unknown.
func (c *catalog) baseOf(a int32) string {
	base, _ := c.base(c.name(a))
	return base
}

// setBase notes the base model of an adapter.
func (c *catalog) setBase(name, base string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bases[name] = base
}
