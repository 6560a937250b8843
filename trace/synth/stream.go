package synth

import (
	"math/rand/v2"

	"lorasim/trace/internal/renewal"
)

// Purposes of random streams. Their numbers are part of what makes a seed
// reproduce a workload: never renumber them.
const (
	forGaps     = 1 // one stream per adapter
	forPick     = 2 // which adapter a request of the total process uses
	forShuffle  = 3 // which adapter has which popularity
	forLocality = 4
	forRanks    = 5
	forCrowd    = 6 // gaps of a flash crowd on one adapter
	forExport   = 7 // execution times in exported traces
	forSessions = 8
	forPace     = 9 // gaps of a benchmark's client
)

// stream returns the random stream of one purpose and one adapter.
func stream(seed uint64, purpose, adapter int) *rand.Rand {
	h := renewal.Mix(seed) ^ renewal.Mix(uint64(purpose)<<32|uint64(adapter))
	return rand.New(rand.NewPCG(renewal.Mix(h), renewal.Mix(h+1)))
}
