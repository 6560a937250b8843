package gateway

import "bytes"

// usage is how many tokens an answer says that its prompt and output have, from the last place where it says so. The
// engines say so in "usage" (OpenAI, Anthropic) or "meta_info" (sglang), streams of vLLM only where the client asks.
type usage struct {
	prompt, output int64 // -1: not said
	before         [longestCount]byte
	kept           int // of before, at its end: the end of what was seen
}

// longestCount is the longest name of a count with its value, bytes.
const longestCount = 48

var (
	countMark    = []byte(`_tokens"`)
	promptNames  = [][]byte{[]byte(`"prompt`), []byte(`"input`)}
	outputNames  = [][]byte{[]byte(`"completion`), []byte(`"output`)}
	maxCount     = int64(1) << 31
	betweenCount = []byte(": \t\r\n")
)

func newUsage() usage { return usage{prompt: -1, output: -1} }

// note looks at a part of an answer. A count may go on in the next part.
func (u *usage) note(part []byte) {
	if u.kept > 0 {
		var seam [2 * longestCount]byte
		n := copy(seam[:], u.before[longestCount-u.kept:])
		n += copy(seam[n:], part[:min(len(part), longestCount)])
		u.scan(seam[:n])
	}
	u.scan(part)
	if len(part) >= longestCount {
		u.kept = copy(u.before[:], part[len(part)-longestCount:])
		return
	}
	copy(u.before[:], u.before[len(part):])
	copy(u.before[longestCount-len(part):], part)
	u.kept = min(u.kept+len(part), longestCount)
}

// scan takes the counts of a text.
func (u *usage) scan(text []byte) {
	for {
		i := bytes.Index(text, countMark)
		if i < 0 {
			return
		}
		name, value := text[:i], bytes.TrimLeft(text[i+len(countMark):], string(betweenCount))
		text = text[i+len(countMark):]
		n, ok := int64(0), false
		for _, c := range value {
			if c < '0' || c > '9' || n > maxCount {
				break
			}
			n, ok = 10*n+int64(c-'0'), true
		}
		switch {
		case !ok || n > maxCount:
		case endsWith(name, promptNames):
			u.prompt = n
		case endsWith(name, outputNames):
			u.output = n
		}
	}
}

func endsWith(text []byte, ends [][]byte) bool {
	return bytes.HasSuffix(text, ends[0]) || bytes.HasSuffix(text, ends[1])
}
