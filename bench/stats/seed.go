package stats

// Seed returns seed i of a stream of seeds, for a study with the given base seed. Seeds of
// different streams and of different base seeds differ. A seed is below 2^53, so JSON
// numbers represent it exactly.
func Seed(base uint64, stream, i int) uint64 {
	x := base*0x9e3779b97f4a7c15 + uint64(stream)<<40 + uint64(i) + 1
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // splitmix64 (Steele, Lea, Flood, OOPSLA 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) >> 11
}
