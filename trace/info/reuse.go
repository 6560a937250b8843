package info

import "lorasim/trace"

// Reuse is what prompts repeat of earlier prompts and replies of their adapter: the
// tokens that a prefix cache without bounds finds if requests come one after the
// other, all but the last token of a prompt at most. Where prompts are told by ids
// of blocks these are whole blocks.
type Reuse struct {
	Tokens int64  `json:"tokens"`
	Share  Number `json:"share"` // of the prompt tokens
	// Conversations are prompts that go on with each other, where the workload
	// tells them, and Turns how many there are in each.
	Conversations int64  `json:"conversations,omitempty"`
	Turns         Number `json:"turns,omitempty"`
}

// reuse gathers a Reuse.
type reuse struct {
	seen  map[textOf]int32         // tokens known of a text, those before it included
	talks map[*trace.Text]struct{} // texts that prompts were of
	turns int64                    // requests of them
	by    []struct{ found, prompt int64 }

	conversations int64
}

type textOf struct {
	text    *trace.Text
	adapter int32
}

// add counts what is known of the prompt of a request, of the usage at an index,
// and learns prompt and reply.
func (u *reuse) add(r *trace.Request, usage int) {
	of := &u.by[usage]
	of.prompt += int64(r.Prompt)
	if r.Text == nil {
		return
	}
	if u.seen == nil {
		u.seen, u.talks = map[textOf]int32{}, map[*trace.Text]struct{}{}
	}
	for t, most := r.Text, r.Prompt-1; t != nil; t = t.Parent {
		if n := whole(t, min(u.seen[textOf{t, r.Adapter}], most)); n > t.Start {
			of.found += int64(n)
			break
		}
		most = min(most, t.Start)
	}
	u.learn(r.Text, r.Adapter, r.Prompt)
	if r.Reply != nil {
		u.learn(r.Reply, r.Adapter, r.Prompt+r.Output-1) // the last token is never computed on
	}
	if r.Text.Block == 0 {
		u.turn(r.Text)
	}
}

// whole is n less what is no whole block.
func whole(t *trace.Text, n int32) int32 {
	if t.Block > 0 {
		return n / t.Block * t.Block
	}
	return n
}

// learn notes the first n tokens of a text.
func (u *reuse) learn(t *trace.Text, adapter, n int32) {
	for ; t != nil; t = t.Parent {
		k, known := textOf{t, adapter}, whole(t, t.Known(n))
		if u.seen[k] >= known {
			return
		}
		u.seen[k] = known
		n = min(n, t.Start)
	}
}

// turn counts a request of a conversation: what branches off belongs to it.
func (u *reuse) turn(t *trace.Text) {
	u.turns++
	known := false
	for up := t; up != nil && !known; up = up.Parent {
		_, known = u.talks[up]
	}
	if !known {
		u.conversations++
	}
	u.talks[t] = struct{}{}
}

// of is the Reuse of the usages from one index to another; nil where the workload
// does not tell what prompts have in common.
func (u *reuse) of(from, to int) *Reuse {
	if u.seen == nil {
		return nil
	}
	var found, prompt int64
	for _, x := range u.by[from:to] {
		found, prompt = found+x.found, prompt+x.prompt
	}
	return &Reuse{Tokens: found, Share: Number(float64(found) / float64(prompt))}
}
