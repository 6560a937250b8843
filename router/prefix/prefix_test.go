package prefix

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/trace"
)

// slow is a cache page by page: a page is the tokens up to its end. With copies
// there may be several of a page; the first of them is what others find.
type slow struct {
	page   int32
	copies bool
	pages  map[string][]*slowPage
	clock  int64
	names  map[*trace.Text]int
}

type slowPage struct {
	holders int
	used    int64 // when nobody held it any more
}

type slowHold struct{ pages []*slowPage }

// keys are the pages of a prompt, each with all tokens before it.
func (s *slow) keys(t *trace.Text, adapter, epoch, pages int32) []string {
	tokens := make([]string, pages*s.page)
	hi := int32(len(tokens))
	for ; t != nil; t = t.Parent {
		for i := t.Start; i < hi; i++ {
			tokens[i] = fmt.Sprintf("%d.%d ", s.names[t], i)
		}
		hi = min(hi, t.Start)
	}
	keys := make([]string, pages)
	before := fmt.Sprintf("%d/%d: ", adapter, epoch)
	for i := range keys {
		for _, x := range tokens[int32(i)*s.page : int32(i+1)*s.page] {
			before += x
		}
		keys[i] = before
	}
	return keys
}

func (s *slow) match(keys []string) (n, idle int32) {
	for _, k := range keys {
		if len(s.pages[k]) == 0 {
			break
		}
		if n++; s.pages[k][0].holders == 0 {
			idle++
		}
	}
	return n, idle
}

// add has a hold have the pages up to the last of keys; own says that those that
// are there are computed again, not found.
func (s *slow) add(h *slowHold, keys []string, own bool) {
	for _, k := range keys[len(h.pages):] {
		if len(s.pages[k]) == 0 || own && s.copies {
			s.pages[k] = append(s.pages[k], new(slowPage))
			if own && s.copies {
				h.pages = append(h.pages, s.pages[k][len(s.pages[k])-1])
				h.pages[len(h.pages)-1].holders++
				continue
			}
		}
		s.pages[k][0].holders++
		h.pages = append(h.pages, s.pages[k][0])
	}
}

func (s *slow) release(h *slowHold) {
	for i := len(h.pages) - 1; i >= 0; i-- {
		if h.pages[i].holders--; h.pages[i].holders == 0 {
			s.clock++
			h.pages[i].used = s.clock
		}
	}
	h.pages = nil
}

func (s *slow) evict(n int64) (evicted int64) {
	for ; n > 0; n-- {
		var oldest *slowPage
		key, at := "", 0
		for k, pages := range s.pages {
			for i, p := range pages {
				if p.holders == 0 && (oldest == nil || p.used < oldest.used) {
					oldest, key, at = p, k, i
				}
			}
		}
		if oldest == nil {
			return evicted
		}
		s.pages[key] = slices.Delete(s.pages[key], at, at+1)
		evicted++
	}
	return evicted
}

func (s *slow) counts() (cached, held int64) {
	for _, pages := range s.pages {
		for _, p := range pages {
			if p.holders > 0 {
				held++
			} else {
				cached++
			}
		}
	}
	return cached, held
}

// check runs the same random operations on the cache and on the slow one.
func check(t *testing.T, r *rand.Rand, ops int) {
	t.Helper()
	page := int32(1 + r.IntN(4))
	s := &slow{page: page, copies: r.IntN(2) == 0, pages: map[string][]*slowPage{}, names: map[*trace.Text]int{}}
	var c Cache = NewRadix(page)
	if s.copies {
		c = NewBlocks(page)
	}
	var texts []*trace.Text
	for range 2 + r.IntN(8) {
		x := new(trace.Text)
		if len(texts) > 0 && r.IntN(3) > 0 {
			x.Parent = texts[r.IntN(len(texts))]
			x.Start = x.Parent.Start + r.Int32N(10)
		}
		s.names[x] = len(texts)
		texts = append(texts, x)
	}
	type user struct {
		hold    Hold
		slow    slowHold
		text    *trace.Text
		adapter int32
		epoch   int32
	}
	var users []*user
	epochs, garbage := make([]int32, 2), 0
	for op := range ops {
		switch k := r.IntN(12); {
		case k < 4:
			u := &user{text: texts[r.IntN(len(texts))], adapter: r.Int32N(2)}
			u.epoch = epochs[u.adapter]
			pages := r.Int32N(12)
			keys := s.keys(u.text, u.adapter, u.epoch, pages)
			want, wantIdle := s.match(keys)
			if got := c.Peek(u.text, u.adapter, pages); got != want {
				t.Fatalf("Peek finds %d pages, expected %d", got, want)
			}
			if got, idle := c.Match(u.text, u.adapter, pages); got != want || idle != wantIdle {
				t.Fatalf("op %d: %d of %d pages match, %d idle, expected %d and %d", op, got, pages, idle, want,
					wantIdle)
			}
			c.Take(&u.hold, u.text, u.adapter, pages)
			s.add(&u.slow, keys[:want], false)
			users = append(users, u)
		case k < 7 && len(users) > 0:
			u := users[r.IntN(len(users))]
			if u.epoch != epochs[u.adapter] {
				continue // an adapter with requests is not unloaded
			}
			pages := u.hold.Pages() + r.Int32N(5)
			s.add(&u.slow, s.keys(u.text, u.adapter, u.epoch, pages), true)
			c.Add(&u.hold, u.text, u.adapter, pages)
		case k < 9 && len(users) > 0:
			i := r.IntN(len(users))
			c.Release(&users[i].hold)
			s.release(&users[i].slow)
			users = append(users[:i], users[i+1:]...)
		case k == 9:
			n := r.Int64N(6)
			if got, want := c.Evict(n), s.evict(n); got != want {
				t.Fatalf("op %d: %d of %d pages evicted, expected %d", op, got, n, want)
			}
		case k == 10:
			n := r.Int32N(3)
			c.Keep(&Hold{}, n)
			for range n {
				garbage++
				s.clock++
				s.pages[fmt.Sprint("garbage ", garbage)] = []*slowPage{{used: s.clock}}
			}
		case k == 11 && r.IntN(8) == 0:
			a := r.Int32N(2)
			c.Unload(a)
			if !s.copies { // vLLM goes by names
				epochs[a]++
			}
		}
		cached, held := s.counts()
		if c.Cached() != cached || c.Held() != held {
			t.Fatalf("op %d: %d pages cached, %d held, expected %d and %d", op, c.Cached(), c.Held(), cached, held)
		}
	}
	for _, u := range users {
		c.Release(&u.hold)
	}
	if c.Evict(1 << 40); c.Held() != 0 || c.Cached() != 0 {
		t.Fatalf("%d pages held at the end, %d cached after the eviction of all", c.Held(), c.Cached())
	}
	if r, ok := c.(*Radix); ok && len(r.entries) != 0 {
		t.Fatalf("%d entries left in an empty cache", len(r.entries))
	}
	if b, ok := c.(*Blocks); ok && len(b.entries) != 0 {
		t.Fatalf("%d entries left in an empty cache", len(b.entries))
	}
}

func TestAgainstPages(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run("", func(t *testing.T) { check(t, rand.New(rand.NewPCG(seed, 1)), 120) })
	}
}

func FuzzCache(f *testing.F) {
	f.Add(uint64(1), uint8(50))
	f.Fuzz(func(t *testing.T, seed uint64, ops uint8) { check(t, rand.New(rand.NewPCG(seed, 2)), int(ops)) })
}

// row is one of Mooncake's.
type row struct {
	Input  int32   `json:"input_length"`
	Output int32   `json:"output_length"`
	IDs    []int64 `json:"hash_ids"`
	text   *trace.Text
}

// readRows reads a trace, each id as a text of 512 tokens.
func readRows(t testing.TB, path string) []row {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []row
	texts := map[int64]*trace.Text{}
	for d := json.NewDecoder(f); d.More(); {
		var r row
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		for i, id := range r.IDs {
			if texts[id] == nil {
				texts[id] = &trace.Text{Parent: r.text, Start: int32(i) * 512}
			}
			r.text = texts[id]
		}
		rows = append(rows, r)
	}
	return rows
}

// replay takes the rows one by one, as reference_lru.py does, and returns the
// tokens found in a cache of so many pages of 512 tokens; 0: no limit.
func replay(c Cache, rows []row, capacity int64, served bool, adapter func(i int, r row) int32) (hits int64) {
	for i, r := range rows {
		var h Hold
		tokens, a := r.Input, adapter(i, r)
		if served {
			tokens += r.Output - 1
		}
		var peek int32
		if _, ok := c.(*Tree); ok { // the others are held against the slow one
			peek = c.Peek(r.text, a, (r.Input-1)/512)
		}
		match := c.Take(&h, r.text, a, (r.Input-1)/512)
		if _, ok := c.(*Tree); ok && peek != match {
			return -1
		}
		hits += int64(match) * 512
		if room := capacity - int64(tokens+511)/512 - (c.Cached() + c.Held() - int64(match)); capacity > 0 && room < 0 {
			c.Evict(-room)
		}
		c.Add(&h, r.text, a, r.Input/512)
		c.Keep(&h, tokens/512-r.Input/512)
		c.Release(&h)
	}
	return hits
}

// TestReference holds serial replays against the figures of an independent
// program, reference_lru.py: those of one worker, evicted page by page or by
// whole nodes.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(shareddata.Path(t, "prefix/reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct {
		Cases []struct {
			Trace, Convention, Routing, Adapters, Unit string
			Capacity                                   int64 `json:"capacity_blocks"`
			Hits                                       int64 `json:"hit_tokens"`
		}
	}
	if err := json.Unmarshal(data, &ref); err != nil {
		t.Fatal(err)
	}
	traces := map[string][]row{
		"tiny":                  readRows(t, shareddata.Path(t, "prefix/tiny_hash_trace.jsonl")),
		"mooncake-conversation": readRows(t, shareddata.Path(t, "mooncake/conversation_trace.jsonl")),
		"mooncake-synthetic":    readRows(t, shareddata.Path(t, "mooncake/synthetic_trace.jsonl")),
	}
	adapters := map[string]func(int, row) int32{
		"none":            func(int, row) int32 { return 0 },
		"row-8":           func(i int, _ row) int32 { return int32(i % 8) },
		"row-32":          func(i int, _ row) int32 { return int32(i % 32) },
		"conversation-8":  func(_ int, r row) int32 { return int32(r.IDs[min(1, len(r.IDs)-1)] % 8) },
		"conversation-32": func(_ int, r row) int32 { return int32(r.IDs[min(1, len(r.IDs)-1)] % 32) },
	}
	makers := map[string][]func(int32) Cache{
		"block": {func(p int32) Cache { return NewRadix(p) }, func(p int32) Cache { return NewBlocks(p) }},
		"node":  {func(p int32) Cache { return NewTree(p) }},
	}
	held := 0
	for _, x := range ref.Cases {
		adapter := adapters[x.Adapters]
		if x.Routing != "single" || adapter == nil || x.Convention == "tail" {
			continue
		}
		if x.Trace == "mooncake-synthetic" && x.Capacity == 256 {
			continue // some prompts are longer than that
		}
		for _, maker := range makers[x.Unit] {
			c := maker(512)
			if _, ok := c.(*Blocks); ok && x.Adapters != "none" {
				continue // enough of it
			}
			got, off := replay(c, traces[x.Trace], x.Capacity, x.Convention == "served", adapter), int64(0)
			if _, ok := c.(*Blocks); ok {
				// The last page of a prompt that ends with it is computed again, to have
				// a token to compute, and vLLM then has it twice.
				off = x.Hits / 500
			}
			if _, ok := c.(*Tree); ok {
				off = x.Hits / 100 // what the reference splits off keeps its time of use, unlike sglang's
			}
			if d := got - x.Hits; d > off || d < -off {
				t.Errorf("%T, %+v: %d tokens found", c, x, got)
			}
			held++
		}
	}
	if held < 100 {
		t.Errorf("%d cases held against the reference", held)
	}
}

func BenchmarkMooncake(b *testing.B) {
	rows := readRows(b, shareddata.Path(b, "mooncake/conversation_trace.jsonl"))
	b.ReportAllocs()
	for b.Loop() {
		replay(NewRadix(512), rows, 16384, false, func(int, row) int32 { return 0 })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/request")
}

// BenchmarkSessions has 1000 conversations with system prompts, in pages of 16
// tokens, one after the other for ever.
func BenchmarkSessions(b *testing.B) {
	c := NewRadix(16)
	system := make([]*trace.Text, 32)
	for i := range system {
		system[i] = new(trace.Text)
	}
	type session struct {
		text   *trace.Text
		tokens int32
	}
	sessions := make([]session, 1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s := &sessions[i%1000]
		a := int32(i % 32)
		if s.text == nil || s.tokens > 8000 {
			*s = session{&trace.Text{Parent: system[a], Start: 1000}, 1000}
		}
		s.tokens += 200
		var h Hold
		c.Take(&h, s.text, a, (s.tokens-1)/16)
		c.Add(&h, s.text, a, s.tokens/16)
		s.tokens += 250
		c.Add(&h, s.text, a, s.tokens/16)
		if over := c.Cached() + c.Held() - 50000; over > 0 {
			c.Evict(over)
		}
		c.Release(&h)
		i++
	}
}
