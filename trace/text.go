package trace

// Text is a part of prompts that other requests may repeat: a conversation that
// grows, a system prompt, a block of a trace that tells equal blocks by equal
// ids. Texts form trees: what comes before a text is the beginning of its
// parent. A prompt is the first tokens of a text, those of its parents before.
//
// Two prompts are equal as far as they are of the same texts, and differ from
// where their texts part.
type Text struct {
	Parent *Text // nil: the prompt begins with this text
	Start  int32 // tokens of the parent, and of its parents, before it
}

// Common is the number of tokens that prompts of two texts have in common,
// when they are long enough.
func (t *Text) Common(u *Text) int32 {
	const all = 1<<31 - 1
	for seen, end := t, int32(all); seen != nil; seen, end = seen.Parent, min(end, seen.Start) {
		for other, limit := u, int32(all); other != nil; other, limit = other.Parent, min(limit, other.Start) {
			if other == seen {
				return min(end, limit)
			}
		}
	}
	return 0
}
