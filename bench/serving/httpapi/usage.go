package httpapi

import "bytes"

// Counts has the latest numbers of tokens in a reply:
//
//	u := httpapi.NewCounts()
//	u.Note(part) // for each part of the reply
//	fmt.Println(u.Prompt, u.Output)
//
// The engines state them in "usage" (OpenAI, Anthropic) or
// "meta_info" (sglang). Streams of vLLM contain them only if the client requests it.
type Counts struct {
	Prompt, Output int64 // tokens; -1: not stated
	before         [longestCount]byte
	kept           int // bytes at the end of before: the end of the latest part
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

// NewCounts returns counts for a reply of which no part has been read.
func NewCounts() Counts { return Counts{Prompt: -1, Output: -1} }

// Note reads the next part of the reply. A number may be split between two parts.
func (u *Counts) Note(part []byte) {
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

// scan reads the counts in a text.
func (u *Counts) scan(text []byte) {
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
			u.Prompt = n
		case endsWith(name, outputNames):
			u.Output = n
		}
	}
}

func endsWith(text []byte, ends [][]byte) bool {
	return bytes.HasSuffix(text, ends[0]) || bytes.HasSuffix(text, ends[1])
}
