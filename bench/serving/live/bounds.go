package live

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Bounds of what a worker may reply.
const (
	maxTokenID = 1<<24 - 1 // vocabularies have up to some 300,000 tokens
	maxEvent   = 16 << 20  // bytes of one event, or of a reply that is no stream
	maxLines   = 1 << 16   // lines between two events, such as comments that keep a connection alive
	maxReplies = 128       // of one request ("n")
)

// maxEvents is how many events the stream of a reply may have: an engine sends one
// for each token or fewer, and some more.
func maxEvents(asked int) int { return 1024 + 16*asked }

// extraLimits has the limits that the extra fields of a body set, besides the request's length.
type extraLimits struct {
	any     bool
	tokens  int // longest reply; 0: as the request says
	replies int // "n" or "best_of"
}

// readExtra reads the inside of a JSON object.
func readExtra(extra []byte) extraLimits {
	type fields struct {
		N          int `json:"n"`
		BestOf     int `json:"best_of"`
		Max        int `json:"max_tokens"`
		Completion int `json:"max_completion_tokens"`
		New        int `json:"max_new_tokens"`
	}
	var f struct {
		fields
		Sampling fields `json:"sampling_params"`
	}
	if len(extra) == 0 || json.Unmarshal(slices.Concat([]byte("{"), extra, []byte("}")), &f) != nil {
		return extraLimits{any: len(extra) > 0, replies: 1}
	}
	s := f.Sampling
	return extraLimits{true, max(f.Max, f.Completion, f.New, s.Max, s.Completion, s.New),
		min(max(f.N, f.BestOf, s.N, s.BestOf, 1), maxReplies)}
}

// asked is how many tokens a reply may have where that number was asked for.
func (c *client) asked(tokens int) int { return max(tokens, c.extra.tokens) * max(c.extra.replies, 1) }

// longestEvent limits an event of a reply: sglang repeats in each all text and ids of
// the reply so far. Further fields may ask for more, such as logarithms of
// probabilities or the prompt.
func (c *client) longestEvent(tokens int) int {
	if c.extra.any {
		return maxEvent
	}
	return min(256<<10+1024*max(tokens, 0), maxEvent)
}

// bound says what is wrong with the number of tokens that a chunk reports. Events
// that are counted for want of a number are not counted beyond what was asked for.
func (a *attempt) bound(p *chunk) error {
	have := a.j.n - a.before
	_, fresh := p.fresh(have)
	switch {
	case have+fresh <= a.asked:
	case p.total < 0 && len(p.ids) == 0:
		p.total = have
	default:
		return fmt.Errorf("the worker reports %d tokens, at most %d were requested", have+fresh, a.asked)
	}
	return nil
}
