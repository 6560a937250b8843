package synth

import "math/rand/v2"

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
)

// stream returns the random stream of one purpose and one adapter. The three
// numbers are hashed so that streams of neighbouring adapters and seeds have
// nothing in common.
func stream(seed uint64, purpose, adapter int) *rand.Rand {
	h := mix(seed) ^ mix(uint64(purpose)<<32|uint64(adapter))
	return rand.New(rand.NewPCG(mix(h), mix(h+1)))
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
