package replay

import (
	"cmp"
	"slices"

	"lorasim/trace/internal/renewal"
)

// drift moves the popularity ranks of the adapters on by one each period.
type drift struct {
	period float64 // s
	byRank []int32 // adapters by descending traffic of the window
	rank   []int   // of each adapter
}

func newDrift(period float64, histogram [][]int64) *drift {
	d := &drift{period: period, byRank: make([]int32, len(histogram)), rank: make([]int, len(histogram))}
	for k := range d.byRank {
		d.byRank[k] = int32(k)
	}
	slices.SortStableFunc(d.byRank, func(a, b int32) int { return cmp.Compare(total(histogram[b]), total(histogram[a])) })
	for r, k := range d.byRank {
		d.rank[k] = r
	}
	return d
}

// adapter returns which adapter has the traffic of adapter k at time t.
func (d *drift) adapter(k int32, t float64) int32 {
	return d.byRank[renewal.Drift(d.rank[k], len(d.byRank), t, d.period)]
}
