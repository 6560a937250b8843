package replay

import "math/bits"

// argsort returns the indices that sort v in ascending order, equal values in
// the order in which numpy.argsort (before numpy 1.25) leaves them. That is the
// introsort of D. R. Musser, "Introspective sorting and selection algorithms",
// Software: Practice and Experience 27(8), 1997: quicksort on the median of
// three, partitions of up to 16 elements sorted by insertion, and heapsort
// where the partitions have become too lopsided. It is not stable; the choices
// that decide ties are marked below.
func argsort(v []int64) []int {
	s := indirect{v: v, at: make([]int, len(v))}
	for i := range s.at {
		s.at[i] = i
	}
	if len(v) > 1 {
		s.quick(0, len(v)-1, 2*(bits.Len(uint(len(v)))-1))
	}
	return s.at
}

const maxInsertion = 16 // elements sorted by insertion

// indirect sorts the indices at by the values they point to.
type indirect struct {
	v  []int64
	at []int
}

func (s indirect) less(i, j int) bool { return s.v[s.at[i]] < s.v[s.at[j]] }
func (s indirect) swap(i, j int)      { s.at[i], s.at[j] = s.at[j], s.at[i] }

// quick sorts at[lo..hi]. The depth left is only looked at on entry, which is
// for the larger partition: the smaller one goes on in the loop.
func (s indirect) quick(lo, hi, depth int) {
	if depth < 0 {
		s.heap(s.at[lo : hi+1])
		return
	}
	for hi-lo+1 > maxInsertion {
		p := s.partition(lo, hi)
		depth--
		if p-lo < hi-p {
			s.quick(p+1, hi, depth)
			hi = p - 1
		} else {
			s.quick(lo, p-1, depth)
			lo = p + 1
		}
	}
	s.insertion(lo, hi)
}

// partition splits at[lo..hi] around the median of its first, middle and last
// element and returns where that ends up. Both scans stop at values equal to
// the median and swap them.
func (s indirect) partition(lo, hi int) int {
	mid := lo + (hi-lo)/2
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	if s.less(hi, mid) {
		s.swap(hi, mid)
	}
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	pivot := s.v[s.at[mid]]
	i, j := lo, hi-1
	s.swap(mid, j)
	for {
		for i++; s.v[s.at[i]] < pivot; i++ {
		}
		for j--; pivot < s.v[s.at[j]]; j-- {
		}
		if i >= j {
			break
		}
		s.swap(i, j)
	}
	s.swap(i, hi-1)
	return i
}

// insertion sorts at[lo..hi] stably.
func (s indirect) insertion(lo, hi int) {
	for i := lo + 1; i <= hi; i++ {
		x, j := s.at[i], i
		for ; j > lo && s.v[x] < s.v[s.at[j-1]]; j-- {
			s.at[j] = s.at[j-1]
		}
		s.at[j] = x
	}
}

// heap sorts at by heapsort.
func (s indirect) heap(at []int) {
	for root := len(at)/2 - 1; root >= 0; root-- {
		s.sift(at, root, at[root])
	}
	for n := len(at) - 1; n > 0; n-- {
		x := at[n]
		at[n] = at[0]
		s.sift(at[:n], 0, x)
	}
}

// sift puts x into the heap at, in which hole is free.
func (s indirect) sift(at []int, hole, x int) {
	for child := 2*hole + 1; child < len(at); child = 2*hole + 1 {
		if child+1 < len(at) && s.v[at[child]] < s.v[at[child+1]] {
			child++
		}
		if s.v[x] >= s.v[at[child]] {
			break
		}
		at[hole] = at[child]
		hole = child
	}
	at[hole] = x
}
