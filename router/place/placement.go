package place

import (
	"slices"

	"lorasim/router"
)

// Transpose turns lists of adapters, one for each worker, into n lists of workers, one for each adapter, or the
// reverse.
func Transpose(lists [][]int32, n int) [][]int32 {
	out := make([][]int32, n)
	for i, list := range lists {
		for _, j := range list {
			out[j] = append(out[j], int32(i))
		}
	}
	return out
}

// Clone returns a deep copy of a placement.
func Clone(held [][]int32) [][]int32 {
	p := slices.Clone(held)
	for j := range p {
		p[j] = slices.Clone(p[j])
	}
	return p
}

// Difference returns what brings a placement from one state to another.
func Difference(from, to [][]int32) (load, unload []router.Placement) {
	for j := range to {
		for _, k := range to[j] {
			if !slices.Contains(from[j], k) {
				load = append(load, router.Placement{Worker: int32(j), Adapter: k})
			}
		}
		for _, k := range from[j] {
			if !slices.Contains(to[j], k) {
				unload = append(unload, router.Placement{Worker: int32(j), Adapter: k})
			}
		}
	}
	return load, unload
}
