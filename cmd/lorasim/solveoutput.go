package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lorasim/ilp"
)

// solved is a solution with all that is printed of it.
type solved struct {
	in            *ilp.Instance
	solution      *ilp.Solution
	took          time.Duration
	before, after ilp.Outcome
	at            []int32   // worker by request
	adapters      [][]int32 // with requests, by worker
}

func newSolved(in *ilp.Instance, p *ilp.Problem, members [][]int, sol *ilp.Solution, took time.Duration) (*solved, error) {
	s := &solved{in: in, solution: sol, took: took, at: in.Assignment(sol.Flows, members), adapters: make([][]int32, len(in.Workers))}
	var err error
	if s.before, err = ilp.Evaluate(p, ilp.StayFlows(p)); err != nil {
		return nil, err
	}
	if s.after, err = ilp.Evaluate(p, sol.Flows); err != nil {
		return nil, err
	}
	for i, j := range s.at {
		s.adapters[j] = append(s.adapters[j], in.Requests[i].Adapter)
	}
	for j := range s.adapters {
		slices.Sort(s.adapters[j])
		s.adapters[j] = append([]int32{}, slices.Compact(s.adapters[j])...)
	}
	return s, nil
}

// writeJSON prints one object; gap is relative, times are in seconds.
func (s *solved) writeJSON(w io.Writer) error {
	type assignment struct {
		Requests []int32   `json:"requests"` // worker of each
		Workers  [][]int32 `json:"workers"`  // adapters with requests on each
	}
	return json.NewEncoder(w).Encode(struct {
		Objective  float64    `json:"objective"`
		Bound      float64    `json:"bound"`
		Gap        float64    `json:"gap"`
		Seconds    float64    `json:"seconds"`
		Status     ilp.Status `json:"status"`
		Solver     string     `json:"solver"`
		Assignment assignment `json:"assignment"`
	}{s.after.Objective, s.solution.Bound, s.solution.Gap(), s.took.Seconds(), s.solution.Status, s.solution.Solver,
		assignment{s.at, s.adapters}})
}

// writeTable prints the result for people, with every request if whole.
func (s *solved) writeTable(w io.Writer, whole bool) error {
	in := s.in
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "Problem\t%d workers, %d adapters, %d requests\n", len(in.Workers), len(in.Adapters), len(in.Requests))
	fmt.Fprintf(tw, "Solver\t%s\n", s.solution.Solver)
	fmt.Fprintf(tw, "Status\t%s\n", s.solution.Status)
	fmt.Fprintf(tw, "Objective\t%.4f s\n", s.after.Objective)
	fmt.Fprintf(tw, "Bound\t%.4f s\n", s.solution.Bound)
	fmt.Fprintf(tw, "Gap\t%.3f %%\n", 100*s.solution.Gap())
	fmt.Fprintf(tw, "Time\t%s\n", duration(s.took))
	fmt.Fprintf(tw, "If nothing moves\t%.4f s\n", s.before.Objective)
	fmt.Fprintf(tw, "Requests moved\t%d\n", s.after.Moves)
	fmt.Fprintf(tw, "Adapters loaded\t%d\n", s.after.Loads)
	if err := tw.Flush(); err != nil {
		return err
	}
	now := make([][2]int, len(in.Workers))
	for i, r := range in.Requests {
		now[r.Worker][0]++
		now[s.at[i]][1]++
	}
	fmt.Fprintln(w)
	right := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(right, "WORKER\tSLOTS\tADAPTERS\tREQUESTS BEFORE\tAFTER\tLOAD BEFORE (s)\tAFTER (s)\t")
	for j, worker := range in.Workers {
		fmt.Fprintf(right, "%d\t%d\t%d\t%d\t%d\t%.4f\t%.4f\t\n", j, worker.Slots, len(s.adapters[j]), now[j][0], now[j][1], s.before.Busy[j], s.after.Busy[j])
	}
	if err := right.Flush(); err != nil || !whole {
		return err
	}
	return s.writeAssignment(w)
}

func (s *solved) writeAssignment(w io.Writer) error {
	fmt.Fprintln(w, "\nAdapters with requests on each worker (+: to be loaded)")
	for j, list := range s.adapters {
		var names []string
		for _, k := range list {
			name := fmt.Sprint(k)
			if !slices.Contains(s.in.Workers[j].Resident, k) {
				name = "+" + name
			}
			names = append(names, name)
		}
		fmt.Fprintf(w, "  %d: %s\n", j, strings.Join(names, " "))
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "REQUEST\tADAPTER\tFROM\tTO\t")
	for i, r := range s.in.Requests {
		fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t\n", i, r.Adapter, r.Worker, s.at[i])
	}
	return tw.Flush()
}

// duration is a time with three digits and its unit.
func duration(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	default:
		return fmt.Sprintf("%.3g µs", 1e6*s)
	}
}
