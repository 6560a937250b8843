package router

import "math"

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
	free := append([]int(nil), room...)
	fromSource, fromSink := make([]float64, n), make([]float64, m)
	sourceVia, sinkVia := make([]int, n), make([]int, m)
	for k := range supply {
		for range supply[k] {
			for i := range fromSource {
				fromSource[i], sourceVia[i] = math.Inf(1), -1
			}
			for j := range fromSink {
				fromSink[j], sinkVia[j] = math.Inf(1), -1
			}
			fromSource[k] = 0
			for changed := true; changed; {
				changed = false
				for i := range n {
					for j := range m {
						c := cost[i][j]
						if !used[i][j] && fromSource[i]+c < fromSink[j]-tiny {
							fromSink[j], sinkVia[j], changed = fromSource[i]+c, i, true
						}
						if used[i][j] && fromSink[j]-c < fromSource[i]-tiny {
							fromSource[i], sourceVia[i], changed = fromSink[j]-c, j, true
						}
					}
				}
			}
			end := -1
			for j := range m {
				if free[j] > 0 && !math.IsInf(fromSink[j], 1) && (end < 0 || fromSink[j] < fromSink[end]) {
					end = j
				}
			}
			if end < 0 {
				break
			}
			free[end]--
			for j := end; ; {
				i := sinkVia[j]
				used[i][j] = true
				if i == k && sourceVia[i] < 0 {
					break
				}
				j = sourceVia[i]
				used[i][j] = false
			}
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

// tiny keeps rounding from looking like progress.
const tiny = 1e-9
