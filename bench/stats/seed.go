package stats

// Seed is seed i of a stream of a study with a base seed: seeds of different streams, and
// of different base seeds, differ. It is a whole number below 2^53, which JSON can tell.
func Seed(base uint64, stream, i int) uint64 {
	x := base*0x9e3779b97f4a7c15 + uint64(stream)<<40 + uint64(i) + 1
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // splitmix64 (Steele, Lea, Flood, OOPSLA 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) >> 11
}
