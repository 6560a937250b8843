package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// livePage is the page with the runs of real engines on a processor.
const livePage = "lab/docs/live.md"

// idleCores begins the paragraph before the table of runs on idle cores.
const idleCores = "**On idle cores**"

// cpuEngines adds the runs of real engines, which real-engines printed into livePage.
func cpuEngines(_ context.Context, r *runner, s *section) error {
	text, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(livePage)))
	if err != nil {
		return err
	}
	_, after, found := strings.Cut(string(text), idleCores)
	if !found {
		return fmt.Errorf("%s: no paragraph %q", livePage, idleCores)
	}
	for line := range strings.Lines(after) {
		if strings.HasPrefix(line, "|") {
			if err := s.engineRow(line); err != nil {
				return fmt.Errorf("%s: %w", livePage, err)
			}
		} else if len(s.rows) > 0 {
			break
		}
	}
	if len(s.rows) == 0 {
		return fmt.Errorf("%s: no table after %q", livePage, idleCores)
	}
	return nil
}

// engineRow appends the rows of a line: run, then measured, predicted and error of sglang, and the
// same of vLLM. A cell has mean E2E / mean TTFT, ms. Runs in parentheses were fitted and are
// skipped.
func (s *section) engineRow(line string) error {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	if cells[0] == "run" || strings.HasPrefix(cells[0], "---") || strings.HasPrefix(cells[0], "(") {
		return nil
	}
	if len(cells) < 6 {
		return fmt.Errorf("%q: %d cells, expected at least 6", line, len(cells))
	}
	for _, e := range []struct {
		name  string
		first int
	}{{"sglang", 1}, {"vLLM", 4}} {
		measured, err1 := twoTimes(cells[e.first])
		predicted, err2 := twoTimes(cells[e.first+1])
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%q: expected E2E / TTFT, ms", line)
		}
		s.rows = append(s.rows,
			one(fmt.Sprintf("mean E2E, %s, %s", e.name, cells[0]), " ms", comparison{measured[0], predicted[0]}, .10),
			one(fmt.Sprintf("mean TTFT, %s, %s", e.name, cells[0]), " ms", comparison{measured[1], predicted[1]}, .25))
	}
	return nil
}

// twoTimes parses "782 / 79.5".
func twoTimes(text string) (out [2]float64, err error) {
	a, b, _ := strings.Cut(text, " / ")
	if out[0], err = strconv.ParseFloat(a, 64); err == nil {
		out[1], err = strconv.ParseFloat(b, 64)
	}
	return out, err
}
