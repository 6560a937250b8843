package prefixindex

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// What was sent longest ago is forgotten first, deepest first.
func TestPrefixIndexForgets(t *testing.T) {
	env := routertest.Env(1, 2)
	x := New(Options{Index: "sent", Block: 1, Capacity: 300}, env, true)
	v := routertest.View(env)
	a, b := &trace.Text{ID: 1}, &trace.Text{ID: 2}
	add := func(text *trace.Text, n int32) { x.Add(&router.Request{Prompt: n, Text: text, Known: n}, v, 0) }
	expect := func(wantA, wantB int32) {
		t.Helper()
		ra, rb := router.Request{Prompt: 500, Text: a, Known: 500}, router.Request{Prompt: 500, Text: b, Known: 500}
		routertest.Equal(t, []int32{x.Match(&ra, v, 0), x.Match(&rb, v, 0)}, []int32{wantA, wantB}, "matches")
	}
	add(a, 200)
	add(b, 100)
	expect(200, 100)
	add(a, 50) // the rest of a is the oldest
	add(b, 130)
	expect(170, 130)
	add(nil, 150) // what nobody else sends takes its place, too
	expect(20, 130)
	other := router.Request{Adapter: 1, Prompt: 500, Text: a, Known: 500}
	routertest.Equal(t, []int32{x.Match(&other, v, 0)}, []int32{0}, "match of another adapter")
}
