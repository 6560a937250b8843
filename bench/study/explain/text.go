package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/format"
)

const (
	mostNames = 3   // adapters that a sentence names
	mostRows  = 20  // adapters in the table
	lineWidth = 110 // columns
)

// WriteText writes the answer in a few lines, and with tables the adapters and the changes.
func (a *Answer) WriteText(w io.Writer, tables bool) error {
	slow := a.slow()
	if len(slow) == 0 {
		top := &a.Adapters[0]
		_, err := fmt.Fprintf(w, "No adapter is slow: mean TTFT %s, at most %s (%s).\n", result.Latency(a.TTFT),
			result.Latency(top.TTFT), top.Name)
		if err != nil || !tables {
			return err
		}
		return a.writeAdapters(w)
	}
	rows := [][2]string{{"Slow", a.slowText(slow)}, {"Because", becauseText(slow)}}
	if holders := holdersText(slow); holders != "" {
		rows = append(rows, [2]string{"Slots", holders})
	}
	what := "halves it"
	if a.isOverloaded() {
		what = "ends the overload"
		rows = append(rows, [2]string{"State",
			"overloaded: the workers cannot keep up, so the TTFT grows with the length of the run"})
	}
	switch {
	case a.Cure != nil:
		rows = append(rows, [2]string{"Cure", a.Cure.String() + a.allText(a.Cure)})
		if a.Best.SlowTTFT <= cured*a.Cure.SlowTTFT {
			rows = append(rows, [2]string{"Better", a.Best.String() + ", that of all requests " +
				result.Latency(a.Best.TTFT)})
		}
	case a.Best != nil:
		rows = append(rows, [2]string{"Cure",
			"no single change " + what + "; most helps " + a.Best.String() + a.allText(a.Best)})
	default:
		rows = append(rows, [2]string{"Cure", fmt.Sprintf("none of the %d changes tried helps", len(a.Tried))})
	}
	var b strings.Builder
	for _, r := range rows {
		label := r[0]
		for _, line := range format.Wrap(r[1], lineWidth-len(label)) {
			fmt.Fprintf(&b, "%-9s%s\n", label, line)
			label = ""
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if !tables {
		return nil
	}
	if err := a.writeAdapters(w); err != nil {
		return err
	}
	return a.writeChanges(w)
}

func (a *Answer) slowText(slow []*Adapter) string {
	share := 0.0
	names := make([]string, 0, mostNames)
	for _, d := range slow {
		share += d.Share
		if len(names) < mostNames {
			names = append(names, d.Name)
		}
	}
	list := strings.Join(names, ", ")
	if len(slow) > len(names) {
		list += ", ..."
	}
	text := fmt.Sprintf("%d of %s (%s), %s of the requests: mean TTFT %s", len(slow),
		format.Count(len(a.Adapters), "adapter"), list, format.Percent(share, 0), result.Latency(a.SlowTTFT))
	if a.FastTTFT > 0 {
		text += fmt.Sprintf("; the others have %s", result.Latency(a.FastTTFT))
	}
	return text
}

// becauseText lists the causes of the slow adapters' waits, as shares of their waiting time.
func becauseText(slow []*Adapter) string {
	var sum [numCauses]float64
	total, requests := 0.0, int64(0)
	for _, d := range slow {
		for c, x := range d.waits {
			sum[c] += x * float64(d.Requests)
			total += x * float64(d.Requests)
		}
		requests += d.Requests
	}
	if total == 0 {
		return "not because of waiting: their prompts take that long"
	}
	order := []int{}
	for c := range sum {
		if sum[c] >= 0.005*total {
			order = append(order, c)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(sum[y], sum[x]) })
	parts := make([]string, len(order))
	for i, c := range order {
		parts[i] = fmt.Sprintf("%s %s", causeNames[c], format.Percent(sum[c]/total, 0))
	}
	return fmt.Sprintf("they wait %s a request for %s", result.Latency(total/float64(requests)),
		strings.Join(parts, ", "))
}

// holdersText says which adapters run in the slots for which the slow ones wait.
func holdersText(slow []*Adapter) string {
	waiting := slices.MaxFunc(slow, func(x, y *Adapter) int {
		return cmp.Compare(x.waits[aSlot]*float64(x.Requests), y.waits[aSlot]*float64(y.Requests))
	})
	if waiting.waits[aSlot] == 0 || len(waiting.Holders) == 0 {
		return ""
	}
	parts := make([]string, len(waiting.Holders))
	for i, h := range waiting.Holders {
		parts[i] = fmt.Sprintf("%s %s", h.Adapter, format.Percent(h.Share, 0))
	}
	return fmt.Sprintf("while %s waits for a slot, they run %s", waiting.Name, strings.Join(parts, ", "))
}

// allText is what a change does to all requests.
func (a *Answer) allText(c *Change) string {
	return fmt.Sprintf(" instead of %s, that of all requests %s instead of %s (simulated)", result.Latency(a.SlowTTFT),
		result.Latency(c.TTFT), result.Latency(a.TTFT))
}

// writeAdapters writes a table of the adapters, the slowest first.
func (a *Answer) writeAdapters(w io.Writer) error {
	rows := [][]string{{"Adapter", "Requests", "Mean TTFT", "Measured", "Waits", "Most for"}}
	measured := false
	for i := range min(len(a.Adapters), mostRows) {
		d := &a.Adapters[i]
		row := []string{d.Name, fmt.Sprint(d.Requests), result.Latency(d.TTFT), "-", result.Latency(d.wait()), "-"}
		if d.Measured > 0 {
			row[3], measured = result.Latency(d.Measured), true
		}
		if d.wait() > 0 {
			row[5] = causeNames[d.cause()]
		}
		rows = append(rows, row)
	}
	if !measured {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 3, 4)
		}
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	if err := format.Table(w, rows); err != nil || len(a.Adapters) <= mostRows {
		return err
	}
	_, err := fmt.Fprintf(w, "... and %d more, which have a lower TTFT\n", len(a.Adapters)-mostRows)
	return err
}

// writeChanges writes a table of the changes, the cheapest first.
func (a *Answer) writeChanges(w io.Writer) error {
	rows := [][]string{{"Change", "TTFT of the slow", "TTFT of all"},
		{"none", result.Latency(a.SlowTTFT), result.Latency(a.TTFT)}}
	for i := range a.Tried {
		c := &a.Tried[i]
		row := []string{c.Text, c.ttft(), result.Latency(c.TTFT)}
		if 2*c.Overloaded > a.Seeds {
			row[0] += ", overloaded"
		}
		rows = append(rows, row)
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return format.Table(w, rows)
}
