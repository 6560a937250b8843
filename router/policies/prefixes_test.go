package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// kept is what workers say that they keep, by worker: tokens of any text.
type kept []int32

func (k kept) Match(worker int, _ *trace.Text, _, tokens int32) int32 { return min(k[worker], tokens) }

// sends routes prompts of so many tokens of texts, one after the other.
func sends(t *testing.T, spec string, v *router.View, adapter int32, texts []*trace.Text, tokens ...int32) []int {
	t.Helper()
	env := routertest.Env(len(v.Workers), 4)
	p, to := routertest.New(t, spec, env).Policy, make([]int, len(texts))
	for i, x := range texts {
		r := router.Request{ID: int64(i), Adapter: adapter, Prompt: tokens[i], Text: x}
		if x != nil {
			r.Known = x.Known(r.Prompt)
		}
		to[i] = p.Route(r, v).Worker
	}
	return to
}
