package info

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const chartHeight = 5 // lines

// bars are the eighths of a cell that is filled from below.
var (
	unicodeBars = [9]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
	asciiBars   = [9]string{" ", ".", ".", ".", ":", ":", ":", ":", "#"}
)

// writeChart draws the number of requests per bin as bars. A bin with requests
// is never empty.
func writeChart(b *bytes.Buffer, t Timeline, ascii bool) {
	bars, wall, corner, floor := unicodeBars, "│", "└", "─"
	if ascii {
		bars, wall, corner, floor = asciiBars, "|", "+", "-"
	}
	top := slices.Max(t.Counts)
	label := fmt.Sprint(top)
	fmt.Fprintf(b, "\nrequests per %g s\n", t.BinWidth)
	for line := chartHeight - 1; line >= 0; line-- {
		var cells strings.Builder
		for _, n := range t.Counts {
			cells.WriteString(bars[min(max(eighths(n, top)-8*line, 0), 8)])
		}
		left := ""
		if line == chartHeight-1 {
			left = label
		}
		fmt.Fprintf(b, "  %*s %s%s\n", len(label), left, wall, strings.TrimRight(cells.String(), " "))
	}
	fmt.Fprintf(b, "  %*d %s%s\n", len(label), 0, corner, strings.Repeat(floor, len(t.Counts)))
	end := fmt.Sprintf("%g s", t.BinWidth*float64(len(t.Counts)))
	fmt.Fprintf(b, "  %*s  0%*s\n", len(label), "", max(len(t.Counts)-1, len(end)+1), end)
}

// eighths is the height of a bar of n, in eighths of a cell.
func eighths(n, top int64) int {
	h := int((16*chartHeight*n + top) / (2 * top)) // rounded
	if n > 0 {
		h = max(h, 1)
	}
	return h
}
