package info

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// TextOptions of WriteText.
type TextOptions struct {
	ASCII bool // draw the chart with ASCII characters only
}

// WriteJSON writes the summary as an indented JSON object.
func (s *Summary) WriteJSON(w io.Writer) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// WriteText writes the summary for people.
func (s *Summary) WriteText(w io.Writer, opt TextOptions) error {
	var b bytes.Buffer
	s.writeHead(&b)
	if s.Requests > 0 {
		s.writeAdapters(&b)
		s.writeLRU(&b)
		s.writeTokens(&b)
		writeChart(&b, s.Timeline, opt.ASCII)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Summary) writeHead(b *bytes.Buffer) {
	fmt.Fprintf(b, "%d requests, %d adapters (%d used)\n", s.Requests, s.Adapters, s.AdaptersUsed)
	if s.Requests == 0 {
		return
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("arrivals", "%s s to %s s", number(s.FirstArrival), number(s.LastArrival))
	line("rate", "%s", s.rateText())
	line("cv of gaps", "%s", cv(s.CV))
	var ds []string
	for _, d := range s.Dispersion {
		ds = append(ds, fmt.Sprintf("%s in %g s", number(d.Index), d.Window))
	}
	line("dispersion", "%s (variance/mean of counts; Poisson: 1)", strings.Join(ds, ", "))
	line("locality", "%s of requests use one of the last %d adapters", percent(s.Locality), LocalityWindow)
	line("skew", "top 1/5/10 %% of adapters: %s / %s / %s of requests; Gini %s",
		percent(s.Skew.Top1), percent(s.Skew.Top5), percent(s.Skew.Top10), number(s.Skew.Gini))
}

// rateText is the rate and, if one was requested, the difference.
func (s *Summary) rateText() string {
	if math.IsInf(float64(s.Rate), 1) {
		return "all requests at once"
	}
	text := number(s.Rate) + " req/s"
	if s.RequestedRate > 0 {
		off := (float64(s.Rate)/s.RequestedRate - 1) * 100
		text += fmt.Sprintf(" (requested %s, %+.1f %%)", number(s.RequestedRate), off)
	}
	return text
}

func (s *Summary) writeAdapters(b *bytes.Buffer) {
	t := newTable(b, "adapter", "rank", "requests", "share", "req/s", "cv")
	row := func(u Usage) {
		rank := "-"
		if u.Rank > 0 {
			rank = fmt.Sprint(u.Rank)
		}
		t.row(u.Name, rank, fmt.Sprint(u.Requests), percent(u.Share), number(u.Rate), cv(u.CV))
	}
	for _, u := range s.Top {
		row(u)
	}
	if s.Rest.Requests > 0 {
		row(s.Rest)
	}
	t.flush()
}

// writeLRU writes what caches of the adapters used last would hold.
func (s *Summary) writeLRU(b *bytes.Buffer) {
	if len(s.LRU) == 0 {
		return
	}
	head, hits, shuffled := []string{"LRU slots"}, []string{"hits"}, []string{"in random order"}
	for _, h := range s.LRU {
		head = append(head, fmt.Sprint(h.Slots))
		hits, shuffled = append(hits, percent(h.Hits)), append(shuffled, percent(h.Shuffled))
	}
	t := newTable(b, head...)
	t.row(hits...)
	t.row(shuffled...)
	t.flush()
}

func (s *Summary) writeTokens(b *bytes.Buffer) {
	if s.Prompt.Total == 0 && s.Output.Total == 0 {
		b.WriteString("\nno token counts\n")
		return
	}
	t := newTable(b, "tokens", "total", "mean", "p50", "p90", "p95", "p99", "max")
	for _, side := range []struct {
		name string
		t    Tokens
	}{{"prompt", s.Prompt}, {"output", s.Output}} {
		t.row(side.name, fmt.Sprint(side.t.Total), tokens(side.t.Mean), tokens(side.t.P50), tokens(side.t.P90),
			tokens(side.t.P95), tokens(side.t.P99), fmt.Sprint(side.t.Max))
	}
	t.flush()
}

// table is text in columns, aligned to the right except for the first one.
type table struct {
	out    *bytes.Buffer
	rows   [][]string
	widths []int
}

func newTable(out *bytes.Buffer, head ...string) *table {
	t := &table{out: out, widths: make([]int, len(head))}
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) {
	t.rows = append(t.rows, cells)
	for i, c := range cells {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
	}
}

func (t *table) flush() {
	t.out.WriteByte('\n')
	for _, cells := range t.rows {
		fmt.Fprintf(t.out, "  %-*s", t.widths[0], cells[0])
		for i, c := range cells[1:] {
			fmt.Fprintf(t.out, "  %*s", t.widths[i+1], c)
		}
		t.out.WriteByte('\n')
	}
}

// number writes x with four digits, or "-" if it is not defined.
func number[F ~float64](x F) string {
	if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
		return "-"
	}
	return fmt.Sprintf("%.4g", float64(x))
}

// cv writes a coefficient of variation.
func cv(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(x))
}

// tokens writes a number of tokens.
func tokens(x Number) string { return fmt.Sprintf("%.1f", float64(x)) }

// percent writes a share.
func percent(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(x))
}
