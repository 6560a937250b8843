//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// printLine prints one finished cell.
func printLine(w io.Writer, r Result) {
	fmt.Fprintf(w, "%-17s %-14s %5.1f s, load %4.1f ", r.Row, r.Policy, r.Seconds, r.Load)
	for _, f := range r.Figures {
		fmt.Fprintf(w, " | %s %s", f.Name, f)
	}
	if r.Error != "" {
		fmt.Fprintf(w, " | error: %s", r.Error)
	}
	fmt.Fprintln(w)
}

// of returns a figure of a result.
func (r *Result) of(name string) (Figure, bool) {
	if r != nil {
		for _, f := range r.Figures {
			if f.Name == name {
				return f, true
			}
		}
	}
	return Figure{}, false
}

func find(list []Result, row, policy string) *Result {
	for i := range list {
		if list[i].Row == row && list[i].Policy == policy {
			return &list[i]
		}
	}
	return nil
}

// printDifferences prints the figures that differ from earlier ones.
func printDifferences(w io.Writer, results, before []Result) {
	fmt.Fprintln(w, "\nbefore -> now, where they differ:")
	for _, r := range results {
		old := find(before, r.Row, r.Policy)
		for _, f := range r.Figures {
			if was, ok := old.of(f.Name); ok && was.String() != f.String() && f.Name != "reason" {
				fmt.Fprintf(w, "%-17s %-14s %s: %s -> %s\n", r.Row, r.Policy, f.Name, was, f)
			}
		}
	}
}

// rows returns the rows of results in their order.
func rows(results []Result, special bool) (list []string) {
	for _, r := range results {
		if r.Special == special && !slices.Contains(list, r.Row) {
			list = append(list, r.Row)
		}
	}
	return list
}

func policiesOf(results []Result) (list []string) {
	for _, r := range results {
		if !r.Special && !slices.Contains(list, r.Policy) {
			list = append(list, r.Policy)
		}
	}
	return list
}

// printMarkdown prints the tables of docs/faults.md. A figure that differs from the earlier one is
// printed with the earlier one.
func printMarkdown(w io.Writer, results, before []Result) {
	policies := policiesOf(results)
	const most = 6 // most columns for policies
	if len(policies) > most {
		printByPolicy(w, policies, results, before)
	} else if len(policies) > 0 {
		fmt.Fprintf(w, "| fault of one of three workers | requests |")
		for _, p := range policies {
			fmt.Fprintf(w, " lost: `%s` |", p)
		}
		fmt.Fprintf(w, " executed twice | wrong | hung | recovery, s | peak RSS, MB | gateway |\n|---|---:|%s---:|---:|---:|---:|---:|---|\n", strings.Repeat("---:|", len(policies)))
		for _, row := range rows(results, false) {
			printFault(w, row, policies, results, before)
		}
	}
	if list := rows(results, true); len(list) > 0 {
		fmt.Fprintf(w, "\n| case | policy | figures |\n|---|---|---|\n")
		for _, row := range list {
			for i := range results {
				if r := &results[i]; r.Row == row {
					printSpecial(w, r, find(before, row, r.Policy))
				}
			}
		}
	}
}

// printByPolicy prints the lost requests with a row for each policy.
func printByPolicy(w io.Writer, policies []string, results, before []Result) {
	list := rows(results, false)
	fmt.Fprintf(w, "| policy |")
	for _, row := range list {
		n, _ := find(results, row, policies[0]).of("requests")
		fmt.Fprintf(w, " %s: lost of %s |", row, n)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|", len(list)))
	for _, p := range policies {
		fmt.Fprintf(w, "| `%s` |", p)
		for _, row := range list {
			fmt.Fprintf(w, " %s |", lostOf(row, p, results, before))
		}
		fmt.Fprintln(w)
	}
}

// lostOf returns the lost requests, after the earlier ones; "-" if the policy could not be
// measured.
func lostOf(row, policy string, results, before []Result) string {
	text := func(r *Result) (string, bool) {
		f, ok := r.of("lost")
		if !ok {
			return "-", r != nil
		}
		return f.String(), true
	}
	old, had := text(find(before, row, policy))
	value, _ := text(find(results, row, policy))
	return both(old, had, value)
}

// both returns a figure, after the earlier one if there is one.
func both(was string, had bool, now string) string {
	if had && was != now {
		return was + " → " + now
	}
	return now
}

func printFault(w io.Writer, row string, policies []string, results, before []Result) {
	var now, was []*Result
	for _, p := range policies {
		if r := find(results, row, p); r != nil {
			now = append(now, r)
			if old := find(before, row, p); old != nil {
				was = append(was, old)
			}
		}
	}
	if len(now) == 0 {
		return
	}
	requests, _ := now[0].of("requests")
	fmt.Fprintf(w, "| %s: %s | %s |", row, now[0].What, requests)
	for _, p := range policies {
		fmt.Fprintf(w, " %s |", lostOf(row, p, results, before))
	}
	for _, name := range []string{"executed twice", "wrong", "hung", "recovery, s", "peak RSS, MB", "gateway"} {
		fmt.Fprintf(w, " %s |", both(worst(was, name), len(was) > 0, worst(now, name)))
	}
	fmt.Fprintln(w)
}

// worst returns the largest value of a figure over policies; for texts, the first one that is not
// "alive".
func worst(list []*Result, name string) string {
	most, text := -1.0, ""
	for _, r := range list {
		f, ok := r.of(name)
		switch {
		case !ok:
		case f.Text != "" && (text == "" || text == "alive"):
			text = f.Text
		case f.Text == "":
			most = max(most, f.Value)
		}
	}
	switch {
	case text != "":
		return text
	case most >= 0:
		return Figure{Value: most}.String()
	}
	return "-"
}

func printSpecial(w io.Writer, r, old *Result) {
	fmt.Fprintf(w, "| %s: %s | `%s` |", r.Row, r.What, r.Policy)
	for i, f := range r.Figures {
		if i > 0 {
			fmt.Fprint(w, ";")
		}
		was, had := old.of(f.Name)
		fmt.Fprintf(w, " %s: %s", f.Name, both(was.String(), had, f.String()))
	}
	if r.Error != "" {
		fmt.Fprintf(w, " not measured: %s", r.Error)
	}
	fmt.Fprintln(w, " |")
}
