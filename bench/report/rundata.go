package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/series"
	"lorasim/bench/sweep"
)

// quantiles returns the latency quantiles of a run in ms, by latency.
func (r *Run) quantiles() map[string][]float64 {
	out := map[string][]float64{}
	add := func(name string, q []float64) {
		if len(q) == series.Quantiles+1 {
			out[name] = q
		}
	}
	if r.Series != nil {
		l := r.Series.Latencies
		add("e2e", series.QuantilesOf(l.E2E))
		add("ttft", series.QuantilesOf(l.TTFT))
		add("tpot", series.QuantilesOf(l.TPOT))
		return out
	}
	add("e2e", meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.E2E }))
	add("ttft", meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.TTFT }))
	add("tpot", meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.TPOT }))
	return out
}

// meanOf is the mean of lists over the seeds, one by one; nil where they differ
// in length.
func meanOf(cells []*sweep.CellResult, list func(*sweep.CellResult) []float64) []float64 {
	if len(cells) == 0 {
		return nil
	}
	out := make([]float64, len(list(cells[0])))
	for _, c := range cells {
		xs := list(c)
		if len(xs) != len(out) {
			return nil
		}
		for i, x := range xs {
			out[i] += x / float64(len(cells))
		}
	}
	return out
}

// adapters lists how the adapters of a run fared, the busiest first.
func (r *Run) adapters() []adapterData {
	if r.Result == nil {
		return r.keptAdapters()
	}
	if r.Result.Extra == nil {
		return nil
	}
	var out []adapterData
	for _, a := range r.Result.Extra.Adapters {
		d := adapterData{Name: a.Name, Requests: a.Requests, E2E: number(a.MeanE2E), P99: number(a.P99E2E), TTFT: number(a.MeanTTFT)}
		if r.Series != nil && a.Index >= 0 && int(a.Index) < len(r.Series.Adapters) {
			d.Rank = r.Series.Adapters[a.Index].Rank
			d.Name = r.Series.Adapters[a.Index].Name
		}
		out = append(out, d)
	}
	return out
}

// keptAdapters takes the means over the seeds, each weighed by its requests.
func (r *Run) keptAdapters() []adapterData {
	sums := map[int]*sweep.CellAdapter{}
	var order []int
	for _, c := range r.Kept {
		for _, a := range c.Adapters {
			s := sums[a.Index]
			if s == nil {
				s = &sweep.CellAdapter{Index: a.Index}
				sums[a.Index] = s
				order = append(order, a.Index)
			}
			s.Requests += a.Requests
			s.E2E += a.E2E * a.Requests
			s.P99E += a.P99E * a.Requests
			s.TTFT += a.TTFT * a.Requests
		}
	}
	slices.Sort(order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sums[b].Requests, sums[a].Requests) })
	var out []adapterData
	for _, i := range order {
		s := sums[i]
		name := "adapter " + strconv.Itoa(i)
		if i < 0 {
			name = "base model"
		}
		n := max(s.Requests, 1)
		out = append(out, adapterData{Name: name, Requests: int64(s.Requests) / int64(len(r.Kept)), E2E: number(s.E2E / n), P99: number(s.P99E / n), TTFT: number(s.TTFT / n)})
	}
	return out
}

// Limits of what the page holds of a placement.
const (
	placementColumns = 1000 // no screen shows more
	placementRows    = 256
)

// byRequests orders a run's adapters, the busiest first.
func byRequests(s *series.Series) []int {
	order := make([]int, len(s.Adapters))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.ByAdapter[b].Requests, s.ByAdapter[a].Requests) })
	return order
}

func (r *Run) placement() *placementData {
	s := r.Series
	d := &placementData{Columns: placementColumns, Workers: len(s.Workers), Marks: []placementMark{}}
	order := byRequests(s)
	if len(order) > placementRows {
		d.Others = len(order) - placementRows
		order = order[:placementRows]
	}
	for _, a := range order {
		row := placementRow{Name: s.Adapters[a].Name, GPU: []int{}, Host: []int{}}
		for w := range s.Workers {
			i := w*len(s.Adapters) + a
			row.GPU = appendStays(row.GPU, w, s.Placement.GPU[i], s.End)
			row.Host = appendStays(row.Host, w, s.Placement.Host[i], s.End)
		}
		d.Rows = append(d.Rows, row)
	}
	for i := range s.Plans {
		if p := &s.Plans[i]; !p.Empty() && p.Dropped == "" {
			d.Marks = append(d.Marks, placementMark{number(p.Applied), len(p.Loads), p.Moves})
		}
	}
	return d
}

// appendStays adds the stays on one worker in columns, each at least one column
// wide; those that touch become one.
func appendStays(out []int, worker int, stays series.Stays, end float64) []int {
	first := len(out)
	for _, st := range stays {
		a := min(int(st[0]/end*placementColumns), placementColumns-1)
		b := max(min(int(math.Ceil(st[1]/end*placementColumns)), placementColumns), a+1)
		if n := len(out); n > first && a <= out[n-1] {
			out[n-1] = max(out[n-1], b)
			continue
		}
		out = append(out, worker, a, b)
	}
	return out
}

func (r *Run) plans() *plansData {
	s := r.Series
	d := &plansData{Left: s.PlansLeft, Rows: []planData{}}
	places := func(ps [][2]int32) []string {
		out := []string{}
		for _, p := range ps {
			name := strconv.Itoa(int(p[1]))
			if int(p[1]) < len(s.Adapters) {
				name = s.Adapters[p[1]].Name
			}
			out = append(out, name+"@"+strconv.Itoa(int(p[0])))
		}
		return out
	}
	for i := range s.Plans {
		p := &s.Plans[i]
		row := planData{
			Made: number(p.Made), Applied: number(p.Applied), Reason: p.Reason, Dropped: p.Dropped,
			Loads: places(p.Loads), Unloads: places(p.Unloads), Moves: p.Moves, Solver: p.Solver, Solve: number(p.SolveTime),
		}
		if p.Stay > 0 {
			gain := number(p.Stay - p.Objective)
			row.Gain = &gain
		}
		if p.HasBound {
			gap := number(p.Gap)
			row.Gap = &gap
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}
