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
		for _, k := range without(to[j], from[j]) {
			load = append(load, router.Placement{Worker: int32(j), Adapter: k})
		}
		for _, k := range without(from[j], to[j]) {
			unload = append(unload, router.Placement{Worker: int32(j), Adapter: k})
		}
	}
	return load, unload
}

// without lists the numbers of a list that are not in another one, in the order of the list.
func without(list, other []int32) (rest []int32) {
	if !slices.IsSorted(list) || !slices.IsSorted(other) {
		for _, k := range list {
			if !slices.Contains(other, k) {
				rest = append(rest, k)
			}
		}
		return rest
	}
	for _, k := range list {
		for len(other) > 0 && other[0] < k {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != k {
			rest = append(rest, k)
		}
	}
	return rest
}
