package place

import (
	"slices"

	"lorasim/router"
)

// Transpose turns lists of adapters, one for each worker, into n lists of workers, one for each adapter, or the
// reverse.
func Transpose(lists [][]int32, n int) [][]int32 {
	counts, all := make([]int32, n), 0
	for _, list := range lists {
		for all += len(list); len(list) > 0; list = list[1:] {
			counts[list[0]]++
		}
	}
	out, room := make([][]int32, n), make([]int32, all)
	for j, c := range counts {
		if c > 0 {
			out[j], room = room[:0:c], room[c:]
		}
	}
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
		before, after := contains(from[j]), contains(to[j])
		for _, k := range to[j] {
			if !before(k) {
				load = append(load, router.Placement{Worker: int32(j), Adapter: k})
			}
		}
		for _, k := range from[j] {
			if !after(k) {
				unload = append(unload, router.Placement{Worker: int32(j), Adapter: k})
			}
		}
	}
	return load, unload
}

// contains returns a function that says whether a number is in a list.
func contains(list []int32) func(k int32) bool {
	if slices.IsSorted(list) {
		return func(k int32) bool {
			_, is := slices.BinarySearch(list, k)
			return is
		}
	}
	return func(k int32) bool { return slices.Contains(list, k) }
}
