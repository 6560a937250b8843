package ilp

// spot is a number of requests on a worker.
type spot struct {
	worker int32
	at     int32 // of an adapter: its index in state.on
	n      int64
}

// spots are the workers that have requests of a class or an adapter, in ascending order. Most have them on few workers,
// so that a list takes less than a row of all workers.
type spots []spot

// find returns the place of a worker in the list, and whether it is there.
func (s spots) find(w int32) (int, bool) {
	lo, hi := 0, len(s)
	for lo < hi {
		if mid := (lo + hi) / 2; s[mid].worker < w {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(s) && s[lo].worker == w
}

// of returns the number on a worker.
func (s spots) of(w int32) int64 {
	if i, ok := s.find(w); ok {
		return s[i].n
	}
	return 0
}

// add changes the number on a worker.
func (s *spots) add(w int32, n int64) {
	i, ok := s.find(w)
	if !ok {
		*s = append(*s, spot{})
		copy((*s)[i+1:], (*s)[i:])
		(*s)[i] = spot{worker: w}
	}
	if (*s)[i].n += n; (*s)[i].n == 0 {
		*s = append((*s)[:i], (*s)[i+1:]...)
	}
}
