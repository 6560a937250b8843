package epp

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"lorasim/trace"
)

// Content is a prompt as the prefix index reads it, in bytes. A simulated prompt has 4 bytes per token.
type Content interface {
	// Len returns the length in bytes.
	Len() int
	// Sum returns the hash of the bytes [from, to), chained to the hash of the bytes before them.
	Sum(from, to int, before uint64) uint64
}

// Text is the content of a real prompt.
type Text []byte

// Len implements Content.
func (t Text) Len() int { return len(t) }

// Sum implements Content.
func (t Text) Sum(from, to int, before uint64) uint64 {
	var d xxhash.Digest
	d.Reset()
	var chained [8]byte
	binary.LittleEndian.PutUint64(chained[:], before)
	_, _ = d.Write(t[from:to])
	_, _ = d.Write(chained[:])
	return d.Sum64()
}

// simulated is the content of a simulated prompt. The first Known of its Tokens are those of Text. The others occur in
// no other request.
type simulated struct {
	Text   *trace.Text // nil: all tokens are unknown
	Known  int32       // number of tokens from Text
	Tokens int32       // number of tokens of the prompt
	ID     int64       // ID of the request
}

// Len implements Content.
func (s *simulated) Len() int { return int(s.Tokens) * bytesPerToken }

// Sum implements Content.
func (s *simulated) Sum(_, to int, before uint64) uint64 {
	n := int32((to + bytesPerToken - 1) / bytesPerToken)
	if s.Text != nil && n <= s.Known {
		return mix(before ^ s.Text.Hash(n) + uint64(n))
	}
	return mix(before ^ mix(uint64(s.ID)+1<<63))
}

// mix spreads the bits of a number (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// indexParams are the parameters of approx-prefix-cache-producer.
type indexParams struct {
	AutoTune  bool `json:"autoTune"`
	Block     int  `json:"blockSizeTokens"`
	MaxBlocks int  `json:"maxPrefixBlocksToMatch"`
	MaxTokens int  `json:"maxPrefixTokensToMatch"`
	Capacity  int  `json:"lruCapacityPerServer"`

	dialect Dialect
}

// gieCapacity is the LRU size of GIE v1.5.0, whatever lruCapacityPerServer says.
const gieCapacity = 31250

func defaultIndex(d Dialect) indexParams {
	p := indexParams{AutoTune: true, Block: 16, MaxBlocks: 256, Capacity: gieCapacity, dialect: d}
	if d == LLMD {
		p.MaxBlocks, p.MaxTokens = 2048, 131072
	}
	return p
}

// minBlock is the least block of llm-d, tokens.
const minBlock = 64

// prefixIndex is what the picker believes that servers cache: the blocks of prompts that it sent there.
type prefixIndex struct {
	params  indexParams
	servers []*cache // by Endpoint.ID; nil: nothing sent yet
	hashes  []uint64 // blocks of the prompts of the request under way, one prompt after the other
	ends    []int    // where the hashes of each prompt end
	size    int      // tokens of a block of the request under way
}

// read computes the blocks of a request.
func (x *prefixIndex) read(r *Request, eps []Endpoint) {
	x.size = x.blockSize(eps)
	x.hashes, x.ends = x.hashes[:0], x.ends[:0]
	most := x.params.MaxBlocks
	if x.params.MaxTokens > 0 {
		most = x.params.MaxTokens / max(x.size, 1)
	}
	first := xxhash.Sum64String(r.Model)
	if r.Salt != "" {
		first = mix(first) ^ xxhash.Sum64String(r.Salt)
	}
	for _, p := range r.Prompts {
		x.readPrompt(p, first, &most)
		x.ends = append(x.ends, len(x.hashes))
	}
}

// readPrompt appends the blocks of one prompt, up to the number left.
func (x *prefixIndex) readPrompt(p Content, before uint64, left *int) {
	block := x.size * bytesPerToken
	if block <= 0 {
		return
	}
	for from, n := 0, p.Len(); from < n && *left > 0; from += block {
		to := from + block
		if to > n {
			if x.params.dialect == GIE {
				return // a block that is not full does not count
			}
			to = n
		}
		before = p.Sum(from, to, before)
		x.hashes = append(x.hashes, before)
		*left--
	}
}

// blockSize is the size of a block, tokens. With autoTune it is that of the first endpoint.
func (x *prefixIndex) blockSize(eps []Endpoint) int {
	size := x.params.Block
	if x.params.AutoTune && len(eps) > 0 && eps[0].BlockSize > 0 {
		size = eps[0].BlockSize
	}
	if x.params.dialect == LLMD {
		size = max(size, minBlock)
	}
	return size
}

// match counts, for each endpoint, the blocks of the request that it has, up to the first that none of them has.
func (x *prefixIndex) match(eps []Endpoint, out []Match) []Match {
	out = out[:0]
	for range eps {
		out = append(out, Match{Total: len(x.hashes), Size: x.size})
	}
	from := 0
	for _, end := range x.ends {
		for _, h := range x.hashes[from:end] {
			found := false
			for i := range eps {
				if s := x.server(eps[i].ID); s != nil && s.has(h) {
					out[i].Blocks++
					found = true
				}
			}
			if !found {
				break
			}
		}
		from = end
	}
	return out
}

func (x *prefixIndex) server(id int) *cache {
	if id < len(x.servers) {
		return x.servers[id]
	}
	return nil
}

// add notes that the request goes to an endpoint.
func (x *prefixIndex) add(e *Endpoint) {
	for len(x.servers) <= e.ID {
		x.servers = append(x.servers, nil)
	}
	s := x.servers[e.ID]
	if s == nil {
		s = &cache{lru: newLRU(x.capacity(e)), left: map[uint64]struct{}{}}
		x.servers[e.ID] = s
	}
	s.add(x.hashes)
}

// cache is what the index believes that one server caches.
type cache struct {
	lru *lru
	// left are blocks of prompts that are longer than the LRU. The pickers enter a prompt's blocks into the LRU, which
	// drops some of them again, and only then into the index of blocks: these stay in the index until they are in the
	// LRU and dropped once more.
	left map[uint64]struct{}
}

func (c *cache) has(h uint64) bool {
	if c.lru.has(h) {
		return true
	}
	_, ok := c.left[h]
	return ok
}

// add notes the blocks of a prompt.
func (c *cache) add(hashes []uint64) {
	for _, h := range hashes {
		if dropped, ok := c.lru.add(h); ok {
			delete(c.left, dropped)
		}
	}
	if len(hashes) <= c.lru.capacity {
		return
	}
	for _, h := range hashes {
		if !c.lru.has(h) {
			c.left[h] = struct{}{}
		}
	}
}

// capacity is the number of blocks that the index keeps of a server; it stays as it was at the server's first request.
func (x *prefixIndex) capacity(e *Endpoint) int {
	switch {
	case x.params.AutoTune && e.NumBlocks > 0:
		return e.NumBlocks
	case x.params.dialect == GIE:
		return gieCapacity
	}
	return x.params.Capacity
}

// forget drops the entries of a server.
func (x *prefixIndex) forget(id int) {
	if id < len(x.servers) {
		x.servers[id] = nil
	}
}
