package emulate

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// The emulated vocabulary. Ids below firstToken are special.
const (
	Vocabulary = 32000
	EOS        = 2
	firstToken = 3
)

// chain generates the tokens that follow a context. Each token is a function of the adapter and of all tokens before
// it, as in greedy decoding. So a request that continues elsewhere, with its generated tokens as part of its prompt,
// generates the same tokens as without the move.
type chain uint64

func newChain(adapter string) chain {
	h := fnv.New64a()
	h.Write([]byte(adapter))
	return chain(mix(h.Sum64()))
}

// mix is the finaliser of splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA'14).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (c *chain) feed(token int32) {
	*c = chain(mix(uint64(*c) + 0x9e3779b97f4a7c15*uint64(token+1)))
}

// next returns the next token and adds it to the context. On average, one in eosEvery tokens is EOS; 0: none.
func (c *chain) next(eosEvery int) int32 {
	t := int32(uint64(*c)%(Vocabulary-firstToken)) + firstToken
	if eosEvery > 0 && uint64(*c)>>33%uint64(eosEvery) == 0 {
		t = EOS
	}
	c.feed(t)
	return t
}

// Tokens returns the first n tokens that an emulated worker generates for a prompt if the request ignores EOS. The
// adapter "" is the base model.
func Tokens(adapter string, prompt []int32, n int) []int32 {
	c := newChain(adapter)
	for _, t := range prompt {
		c.feed(t)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = c.next(0)
	}
	return out
}

// Text returns the text of tokens, such as " t17 t4". [Tokenize] is its inverse.
func Text(tokens []int32) string {
	var b []byte
	for _, t := range tokens {
		b = strconv.AppendInt(append(b, " t"...), int64(t), 10)
	}
	return string(b)
}

// Tokenize returns one token for each word of a text.
func Tokenize(text string) []int32 {
	var ts []int32
	for word := range strings.FieldsSeq(text) {
		ts = append(ts, wordToken(word))
	}
	return ts
}

func wordToken(word string) int32 {
	if digits, ok := strings.CutPrefix(word, "t"); ok {
		if n, err := strconv.ParseUint(digits, 10, 31); err == nil && n < Vocabulary {
			return int32(n)
		}
	}
	h := fnv.New32a()
	h.Write([]byte(word))
	return int32(h.Sum32()%(Vocabulary-firstToken)) + firstToken
}
