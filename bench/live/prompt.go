package live

import (
	"math/rand/v2"
	"strconv"
)

// lowestToken leaves out the special tokens at the beginning of vocabularies.
const lowestToken = 10

// prompt returns the token ids of a request's prompt: drawn from the vocabulary
// with the seed and the request's id, so that they are the same whenever they
// are asked for.
func prompt(seed uint64, id int64, n int32, vocabulary int) []int32 {
	rng := rand.New(rand.NewPCG(seed, uint64(id)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = lowestToken + rng.Int32N(int32(vocabulary-lowestToken))
	}
	return ids
}

// promptText is a prompt for chat endpoints, which take no token ids: a word
// for each. How many tokens that is depends on the worker's tokenizer.
func promptText(ids []int32) string {
	var b []byte
	for i, t := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(append(b, 't'), int64(t), 10)
	}
	return string(b)
}
