package sim

import "lorasim/trace"

// prefixes tells the router what workers keep of prompts at this instant.
type prefixes struct{ *sim }

// Match implements router.Prefixes.
func (s prefixes) Match(worker int, text *trace.Text, adapter, tokens int32) int32 {
	w := &s.workers[worker]
	if !w.v.Up {
		return 0
	}
	if adapter == trace.BaseModel {
		adapter = int32(len(s.adapters))
	}
	return w.kv.Peek(text, adapter, tokens, w.kv.DecodePages(w.steps, w.run.Batch, w.stepsDone()))
}
