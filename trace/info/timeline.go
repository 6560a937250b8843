package info

// maxTime is the latest arrival that a timeline takes, in s.
const maxTime = 1e15

// timeline counts arrivals per row and time bin. Bins start at 1 ms and widen
// by 2 and 5 in turn (1, 2, 10, 20, 100, ... ms) when time outgrows them, so
// that memory does not depend on the length of the workload.
type timeline struct {
	width int64 // ms
	bins  int   // most bins of a row
	used  int   // bins up to the last arrival
	rows  [][]int64
	twice bool // widened by 2 last
}

func newTimeline(rows, bins int) *timeline {
	return &timeline{width: 1, bins: bins, rows: make([][]int64, rows)}
}

// add counts an arrival at time t, in s.
func (tl *timeline) add(row int, t float64) {
	ms := int64(t * 1000)
	for ms/tl.width >= int64(tl.bins) {
		tl.widen()
	}
	bin := int(ms / tl.width)
	tl.used = max(tl.used, bin+1)
	if tl.rows[row] == nil {
		tl.rows[row] = make([]int64, tl.bins)
	}
	tl.rows[row][bin]++
}

// widen merges bins.
func (tl *timeline) widen() {
	factor := 2
	if tl.twice {
		factor = 5
	}
	for _, row := range tl.rows {
		if row != nil {
			copy(row, merge(row, factor))
			clear(row[(tl.bins+factor-1)/factor:])
		}
	}
	tl.twice = !tl.twice
	tl.width *= int64(factor)
	tl.used = (tl.used + factor - 1) / factor
}

// merge adds up each factor bins.
func merge(row []int64, factor int) []int64 {
	merged := make([]int64, (len(row)+factor-1)/factor)
	for i, n := range row {
		merged[i/factor] += n
	}
	return merged
}

// row returns the counts of a row up to the last arrival of any row.
func (tl *timeline) row(i int) []int64 {
	if tl.rows[i] == nil {
		return make([]int64, tl.used)
	}
	return tl.rows[i][:tl.used]
}

// round widens the bins to 1, 2 or 5 times a power of ten so that at most n are
// used. Nothing can be added afterwards.
func (tl *timeline) round(n int) {
	for nice := int64(1); ; nice *= 10 {
		for _, w := range [...]int64{nice, 2 * nice, 5 * nice} {
			factor := int(w / tl.width)
			if w%tl.width != 0 || (tl.used+factor-1)/factor > n {
				continue
			}
			for i, row := range tl.rows {
				if row != nil {
					tl.rows[i] = merge(row, factor)
				}
			}
			tl.width = w
			tl.used = (tl.used + factor - 1) / factor
			return
		}
	}
}

// seconds is the width of a bin.
func (tl *timeline) seconds() float64 { return float64(tl.width) / 1000 }
