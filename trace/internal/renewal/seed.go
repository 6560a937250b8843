package renewal

// Mix scrambles a number that random streams are seeded with, so that the
// streams of neighbouring seeds and items have nothing in common. It is the
// output function of SplitMix64 (G. L. Steele et al., "Fast splittable
// pseudorandom number generators", OOPSLA 2014), a bijection.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
