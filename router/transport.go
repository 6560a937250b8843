package router

import (
	"math"
	"slices"
)

// transport solves a small transportation problem exactly: supply[k] units from
// each source k to different sinks, at most room[j] to sink j, at least total
// cost. An edge carries one unit; infinite cost forbids it. It returns the sinks
// of each source, fewer than its supply where there is no room.
//
// Successive shortest augmenting paths with Bellman-Ford, so that costs may be
// negative: O(units x passes x sources x sinks).
func transport(supply, room []int, cost [][]float64) [][]int32 {
	n, m := len(supply), len(room)
	used := make([][]bool, n)
	for k := range used {
		used[k] = make([]bool, m)
	}
	left, free := slices.Clone(supply), slices.Clone(room)
	p := paths{
		fromSource: make([]float64, n), fromSink: make([]float64, m),
		sourceVia: make([]int, n), sinkVia: make([]int, m),
	}
	for {
		end := p.shortest(left, free, cost, used)
		if end < 0 {
			break
		}
		free[end]--
		for j := end; ; {
			i := p.sinkVia[j]
			used[i][j] = true
			if p.sourceVia[i] < 0 {
				left[i]--
				break
			}
			j = p.sourceVia[i]
			used[i][j] = false
		}
	}
	out := make([][]int32, n)
	for k := range used {
		for j, u := range used[k] {
			if u {
				out[k] = append(out[k], int32(j))
			}
		}
	}
	return out
}

// paths holds shortest paths from the sources that have units left: the distance
// of each source and sink, and where its path comes from (-1: it begins there).
type paths struct {
	fromSource, fromSink []float64
	sourceVia, sinkVia   []int
}

// shortest finds the paths and returns the nearest sink with room, or -1.
func (p *paths) shortest(left, free []int, cost [][]float64, used [][]bool) int {
	for i := range p.fromSource {
		p.fromSource[i], p.sourceVia[i] = math.Inf(1), -1
		if left[i] > 0 {
			p.fromSource[i] = 0
		}
	}
	for j := range p.fromSink {
		p.fromSink[j] = math.Inf(1)
	}
	for changed := true; changed; {
		changed = false
		for i, row := range cost {
			for j, c := range row {
				if !used[i][j] && p.fromSource[i]+c < p.fromSink[j]-tiny {
					p.fromSink[j], p.sinkVia[j], changed = p.fromSource[i]+c, i, true
				}
				if used[i][j] && p.fromSink[j]-c < p.fromSource[i]-tiny {
					p.fromSource[i], p.sourceVia[i], changed = p.fromSink[j]-c, j, true
				}
			}
		}
	}
	end := -1
	for j, d := range p.fromSink {
		if free[j] > 0 && !math.IsInf(d, 1) && (end < 0 || d < p.fromSink[end]) {
			end = j
		}
	}
	return end
}

// tiny keeps rounding from looking like progress.
const tiny = 1e-9
