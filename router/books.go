package router

import (
	"math/bits"
	"slices"
)

// Books counts the requests of one worker as routers see them. The simulator and the fleet of real workers use it;
// all counts change here.
type Books struct {
	*Worker
	// PendingPromptTokens are the prompt tokens of requests that have no token yet.
	PendingPromptTokens int64

	id       int
	index    *Index
	versions *versions  // nil: each adapter has one version
	ranks    RankCounts // of all requests on the worker
}

// NewBooks returns the books of a worker without requests. index may be nil. From now on, only the books change the
// worker's requests.
func NewBooks(w *Worker, id int, index *Index) Books {
	w.counted, w.flight = true, nil
	return Books{Worker: w, id: id, index: index}
}

// Assign adds a request (n = 1) or removes it (n = -1). pending says that the request has no token yet.
func (b *Books) Assign(prompt, expected, rank int32, pending bool, d int64) {
	b.Tokens += d * (int64(prompt) + int64(expected))
	if pending {
		b.PendingPromptTokens += d * int64(prompt)
	}
	b.ranks.Add(rank, int32(d))
	b.MaxRank = b.ranks.Max
	b.Touch()
}

// Wait adds a request to the waiting ones (n = 1) or removes it (n = -1).
func (b *Books) Wait(adapter, prompt, d int32) {
	b.Queued += int(d)
	b.QueuedToks += int64(d) * int64(prompt)
	b.adapterRequests(adapter, 0, d)
	b.Touch()
}

// Run adds a request of an adapter to the running ones (n = 1) or removes it (n = -1).
func (b *Books) Run(adapter, d int32) {
	b.adapterRequests(adapter, d, 0)
	b.Touch()
}

// Touch tells those who follow the index that the worker has changed. The methods of Books call it; who changes the
// worker itself calls it afterwards.
func (b *Books) Touch() {
	if b.index != nil {
		b.index.Touch(b.id)
	}
}

// adapterRequests adjusts an adapter's counts. The base model, which is trace.BaseModel or comes after all adapters,
// has none.
func (b *Books) adapterRequests(a int32, running, queued int32) {
	if b.versions != nil {
		if a = b.versions.adapter(a); a >= 0 && b.Count(a, running, queued) {
			b.publish(a)
		}
		return
	}
	if uint(a) < uint(b.NumAdapters()) && b.Count(a, running, queued) {
		b.publish(a)
	}
}

// versions are the versions of the adapters that a worker holds, each with an index of its own. Routers know only the
// adapters. They see the requests of all versions of an adapter, and the memory tier of its current version.
type versions struct {
	of      []int32        // adapter, by version
	current []int32        // version for new requests, by adapter
	states  []AdapterState // Tier, Loading and Pinned of the versions that are not current, by version
}

// adapter returns the adapter of a version; -1: the base model.
func (v *versions) adapter(version int32) int32 {
	if uint(version) < uint(len(v.of)) {
		return v.of[version]
	}
	return -1
}

// TrackVersions makes the books count versions of adapters. of has the adapter of each version. Version a is the
// current one of adapter a at the start. Wait, Run, State and Publish then take versions.
func (b *Books) TrackVersions(of []int32) {
	b.versions = &versions{of: of, states: make([]AdapterState, len(of))}
	for a := range b.NumAdapters() {
		b.versions.current = append(b.versions.current, int32(a))
	}
}

// State returns the state of an adapter, or of a version if the books track versions.
func (b *Books) State(a int32) *AdapterState {
	if b.versions != nil {
		return b.versions.state(b, a)
	}
	return b.Row(a)
}

// SetLoading notes that the load of an adapter into a slot begins or ends.
func (b *Books) SetLoading(a int32, loading bool) {
	st := b.State(a)
	if r := b.rows; r != nil && st.Loading != loading {
		if loading {
			r.loads = append(r.loads, st)
		} else if i := slices.Index(r.loads, st); i >= 0 {
			r.loads = slices.Delete(r.loads, i, i+1)
		}
		r.listed = r.listed && b.versions == nil // versions change places
	}
	st.Loading = loading
	b.Publish(a)
}

// Versioned reports whether the books track versions.
func (b *Books) Versioned() bool { return b.versions != nil }

func (v *versions) state(b *Books, version int32) *AdapterState {
	if a := v.of[version]; v.current[a] == version {
		return b.Row(a)
	}
	return &v.states[version]
}

// Current returns the current version of an adapter; the adapter itself if the books do not track versions.
func (b *Books) Current(a int32) int32 {
	if b.versions == nil {
		return a
	}
	return b.versions.current[a]
}

// Shown returns the adapter for which routers see the memory tier of a version; false: the version is not current.
func (b *Books) Shown(version int32) (a int32, ok bool) {
	if b.versions == nil {
		return version, true
	}
	a = b.versions.of[version]
	return a, b.versions.current[a] == version
}

// Switch makes a version the current one of its adapter.
func (b *Books) Switch(version int32) {
	v := b.versions
	a := v.of[version]
	shown, next, old := b.Row(a), v.states[version], v.current[a]
	v.states[old] = AdapterState{Tier: shown.Tier, Loading: shown.Loading, Pinned: shown.Pinned}
	shown.Tier, shown.Loading, shown.Pinned = next.Tier, next.Loading, next.Pinned
	v.current[a] = version
	b.publish(a)
}

// Publish enters the state of an adapter in the index.
func (b *Books) Publish(a int32) {
	if a, ok := b.Shown(a); ok {
		b.publish(a)
	}
}

func (b *Books) publish(a int32) {
	if b.index != nil {
		b.index.Set(b.id, a, b.Adapter(a))
		b.Touch()
	}
}

// SetAdapters is [Worker.SetAdapters] for a worker of which no adapter is in the index: a new one, or after Clear.
func (b *Books) SetAdapters(n int, tier Tier) {
	b.Worker.SetAdapters(n, tier)
	if b.index != nil {
		b.index.hosts[b.id] = tier >= Host
		b.index.remote = b.index.remote || tier == Remote
	}
}

// Clear takes the adapters of the worker out of the index, before the worker is set anew.
func (b *Books) Clear() {
	if b.index == nil {
		return
	}
	none := AdapterState{Tier: Disk}
	if b.index.hosts[b.id] {
		none.Tier = Host
	}
	for a := range b.Rows() {
		b.index.Set(b.id, a, none)
	}
}

// RankCounts counts requests by the rank of their adapter.
type RankCounts struct {
	Max int // largest rank of any request; 0: no request has an adapter
	n   []int32
	set []uint64 // a bit for each rank that has any
}

// Add adds a request of a rank (n = 1) or removes it (n = -1).
func (c *RankCounts) Add(rank, d int32) {
	if k := int(rank); k >= len(c.n) {
		c.n = append(c.n, make([]int32, k+1-len(c.n))...)
		c.set = append(c.set, make([]uint64, k/64+1-len(c.set))...)
	}
	if c.n[rank] += d; c.n[rank] == 0 || c.n[rank] == d { // the last one, or the first
		c.toggle(int(rank))
	}
}

func (c *RankCounts) toggle(rank int) {
	c.set[rank/64] ^= 1 << (rank % 64)
	c.Max = 0
	for k := len(c.set) - 1; k >= 0; k-- {
		if c.set[k] != 0 {
			c.Max = 64*k + bits.Len64(c.set[k]) - 1
			return
		}
	}
}
