package router

import (
	"testing"

	"lorasim/trace"
)

// kept is what workers say that they keep, by worker: tokens of any text.
type kept []int32

func (k kept) Match(worker int, _ *trace.Text, _, tokens int32) int32 { return min(k[worker], tokens) }

// sends routes prompts of so many tokens of texts, one after the other.
func sends(t *testing.T, spec string, v *View, adapter int32, texts []*trace.Text, tokens ...int32) []int {
	t.Helper()
	env := testEnv(len(v.Workers), 4)
	p, to := mustNew(t, spec, env).Policy, make([]int, len(texts))
	for i, x := range texts {
		r := Request{ID: int64(i), Adapter: adapter, Prompt: tokens[i], Text: x}
		if x != nil {
			r.Known = x.Known(r.Prompt)
		}
		to[i] = p.Route(r, v).Worker
	}
	return to
}

func TestCacheAware(t *testing.T) {
	system := &trace.Text{ID: 1}
	a, b := &trace.Text{ID: 2, Parent: system, Start: 100}, &trace.Text{ID: 3, Parent: system, Start: 100}
	texts := func(x ...*trace.Text) []*trace.Text { return x }
	for _, c := range []struct {
		name, spec string
		load       []int
		texts      []*trace.Text
		tokens     []int32
		want       []int
	}{
		// the first of the least loaded; b has 100 of 400 in common, which is not enough
		{"cold", "cache-aware", []int{1, 0, 0}, texts(a, b), []int32{400, 400}, []int{1, 1}},
		{"the match wins over load", "cache-aware", []int{5, 9, 0}, texts(a, a, b), []int32{400, 800, 300},
			[]int{2, 2, 2}},
		{"at the threshold is not above it", "cache-aware:threshold=0.25,cold=smallest-tree", []int{0, 0, 0},
			texts(a, b), []int32{400, 400}, []int{0, 1}},
		{"above the threshold", "cache-aware:threshold=0.25,cold=smallest-tree", []int{0, 0, 0}, texts(a, b),
			[]int32{400, 399}, []int{0, 0}},
		{"smallest tree, unknown prompts count", "cache-aware:cold=smallest-tree", []int{0, 0, 0},
			texts(nil, a, b, nil), []int32{50, 400, 999, 1}, []int{0, 1, 2, 0}},
		{"equal matches go by load", "cache-aware:cold=smallest-tree,threshold=0.9", []int{2, 1, 1},
			texts(a, b, system, system), []int32{200, 200, 200, 100}, []int{0, 1, 2, 1}},
		// 400 - 335 = 65 > 64, but 400 is not more than 1.5 x 335
		{"absolutely unequal", "cache-aware", []int{400, 335, 335}, texts(a, a), []int32{10, 10}, []int{1, 1}},
		{"capacity", "cache-aware:capacity=400", []int{0, 0, 0}, texts(a, b, nil, a), []int32{400, 400, 400, 400},
			[]int{0, 0, 0, 0}},
	} {
		v := testView(testEnv(3, 4))
		setRunning(v, c.load...)
		equal(t, sends(t, c.spec, v, 0, c.texts, c.tokens...), c.want, c.name)
	}
}

// A tree without the adapter in its key takes prompts of other adapters for the
// same; loads that differ too much count for more than a match.
func TestCacheAwareAdaptersAndBalance(t *testing.T) {
	x := &trace.Text{ID: 1}
	for spec, want := range map[string][]int{"cache-aware": {0, 0, 1, 0}, "cache-aware:lora=true": {0, 1, 1, 1}} {
		v := testView(testEnv(2, 4))
		p := mustNew(t, spec, testEnv(2, 4)).Policy
		send := func(adapter int32) int {
			return p.Route(Request{Adapter: adapter, Prompt: 100, Text: x, Known: 100}, v).Worker
		}
		got := []int{send(0)}
		setRunning(v, 1, 0)
		got = append(got, send(1))
		setRunning(v, 65, 0) // one more than abs
		got = append(got, send(0))
		setRunning(v, 64, 0)
		got = append(got, send(1))
		if want[3] == 0 { // both workers match now: by load
			want[3] = 1
		}
		equal(t, got, want, spec)
	}
}

// What was sent longest ago is forgotten first, deepest first.
func TestPrefixIndexForgets(t *testing.T) {
	env := testEnv(1, 2)
	x := mustNew(t, "cache-aware:capacity=300,lora=true", env).Policy.(*cacheAware).index
	v := testView(env)
	a, b := &trace.Text{ID: 1}, &trace.Text{ID: 2}
	add := func(text *trace.Text, n int32) { x.add(&Request{Prompt: n, Text: text, Known: n}, v, 0) }
	expect := func(wantA, wantB int32) {
		t.Helper()
		ra, rb := Request{Prompt: 500, Text: a, Known: 500}, Request{Prompt: 500, Text: b, Known: 500}
		equal(t, []int32{x.match(&ra, v, 0), x.match(&rb, v, 0)}, []int32{wantA, wantB}, "matches")
	}
	add(a, 200)
	add(b, 100)
	expect(200, 100)
	add(a, 50) // the rest of a is the oldest
	add(b, 130)
	expect(170, 130)
	add(nil, 150) // what nobody else sends takes its place, too
	expect(20, 130)
	other := Request{Adapter: 1, Prompt: 500, Text: a, Known: 500}
	equal(t, []int32{x.match(&other, v, 0)}, []int32{0}, "match of another adapter")
}

// The scores by hand: 2 x queue + 2 x (1 - KV) + 3 x share.
func TestPrefixScorer(t *testing.T) {
	v := testView(testEnv(3, 4))
	v.Workers[0].Queued, v.Workers[1].Queued, v.Workers[2].Queued = 0, 3, 6
	v.Workers[0].KVUsed = 5000 // of 10000
	x := &trace.Text{ID: 1}
	for _, c := range []struct {
		name string
		kept kept
		want int
	}{
		{"no match", kept{0, 0, 0}, 0},                      // 2+1 = 3, 1+2 = 3: the first
		{"a block", kept{0, 64, 0}, 1},                      // 3, 3.3, 2
		{"less than a block", kept{0, 63, 0}, 0},            // 3, 3
		{"a long match behind a queue", kept{0, 0, 256}, 2}, // 3, 3, 2 + 1.2
		{"both", kept{0, 128, 256}, 1},                      // 3, 3.6, 3.2
	} {
		v.Prefixes = c.kept
		got := sends(t, "prefix-scorer:index=reported,ties=first", v, 1, []*trace.Text{x}, 640)
		equal(t, got, []int{c.want}, c.name)
	}
	v.Prefixes = nil // its own decisions: 3 x 10/10 where the first went
	equal(t, sends(t, "prefix-scorer:ties=first,queue=1", v, 1, []*trace.Text{x, x}, 640, 640), []int{1, 1}, "sent")
	v.Workers[0].Adapters[1].Running = 1
	equal(t, sends(t, "prefix-scorer:ties=first,lora=1", v, 1, []*trace.Text{x}, 640), []int{0}, "the adapter")
}

// The costs by hand, in tokens: waiting + 1600 - match, + KV + waiting.
func TestKVRouter(t *testing.T) {
	v := testView(testEnv(3, 4))
	v.Workers[0].KVUsed, v.Workers[1].KVUsed, v.Workers[2].QueuedToks = 900, 1000, 480
	x := &trace.Text{ID: 1}
	for _, c := range []struct {
		name, options string
		kept          kept
		want          int
	}{
		{"no match", "", kept{0, 0, 0}, 0},                          // 2500, 2600, 2560
		{"a match", "", kept{0, 112, 0}, 1},                         // 2500, 2488, 2560
		{"in whole blocks", "", kept{0, 111, 0}, 0},                 // 2500, 2504
		{"behind others", "", kept{0, 0, 64}, 2},                    // 2500, 2600, 2496
		{"credit", ",credit=0.5", kept{0, 192, 0}, 0},               // 2500, 2504
		{"scale", ",scale=2", kept{0, 48, 0}, 0},                    // 900 + 3200, 1000 + 3104
		{"scale, more", ",scale=2", kept{0, 64, 0}, 1},              // 4100, 4072
		{"never below nothing", ",credit=9", kept{300, 1000, 0}, 0}, // 900, 1000, 2560
	} {
		v.Prefixes = c.kept
		got := sends(t, "kv-router:ties=first"+c.options, v, 0, []*trace.Text{x}, 1600)
		equal(t, got, []int{c.want}, c.name)
	}
	v.Prefixes = nil
	equal(t, sends(t, "kv-router:ties=first", v, 0, []*trace.Text{x, x}, 1600, 1600), []int{0, 0}, "sent")
}

func TestPrefixHash(t *testing.T) {
	v := testView(testEnv(8, 4))
	system := &trace.Text{ID: 7}
	var alike, apart []*trace.Text
	for i := range int64(40) {
		alike = append(alike, &trace.Text{ID: i, Parent: system, Start: 256})
		apart = append(apart, &trace.Text{ID: i, Parent: system, Start: 255})
	}
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = 400
	}
	setRunning(v, 9, 9, 9, 9, 9, 9, 9, 9) // one more is within the bound
	same := sends(t, "prefix-hash", v, 0, alike, tokens...)
	for _, w := range same {
		if w != same[0] {
			t.Fatalf("prompts with the same first 256 tokens go to %v", same)
		}
	}
	used := map[int]bool{}
	for _, w := range sends(t, "prefix-hash", v, 0, apart, tokens...) {
		used[w] = true
	}
	if len(used) < 6 {
		t.Errorf("40 different prompts use %d of 8 workers", len(used))
	}
	// 12 + 1 > 1.25 x 76/8: the least loaded of those below
	v.Workers[same[0]].Running = 12
	v.Workers[(same[0]+3)%8].Running = 8
	equal(t, sends(t, "prefix-hash", v, 0, alike[:1], 400), []int{(same[0] + 3) % 8}, "a full worker")
	setRunning(v, 0, 0, 0, 0, 0, 0, 0, 0) // 1 > 1.25/8 everywhere
	equal(t, sends(t, "prefix-hash", v, 0, alike[:1], 400), same[:1], "all full")
}
