package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"lorasim/trace"
)

func (s *Scenario) openHistogram(adapters []trace.Adapter) (*Input, error) {
	w := &s.Workload
	counts, err := parseHistogram(w.TraceHistogram)
	if err != nil {
		return nil, fmt.Errorf("trace_histogram: %w", err)
	}
	if w.NumAdapters == 0 && len(counts) != len(adapters) {
		if adapters, err = s.adaptersOf(len(counts)); err != nil {
			return nil, err
		}
	}
	if w.Compat == "dlora" {
		d, err := s.dlora()
		if err != nil {
			return nil, err
		}
		src, sum, err := d.ReplayHistogram(adapters, counts)
		if err != nil {
			return nil, err
		}
		return &Input{Source: src, Dataset: "histogram", Replayed: sum}, nil
	}
	cfg, err := s.rates()
	if err != nil {
		return nil, err
	}
	src, err := cfg.ReplayHistogram(adapters, counts)
	if err != nil {
		return nil, err
	}
	return &Input{Source: src, Dataset: "histogram"}, nil
}

func (s *Scenario) adaptersOf(n int) ([]trace.Adapter, error) {
	c := *s
	c.Workload.NumAdapters = n
	return c.adapters()
}

func parseHistogram(s string) ([][]int64, error) {
	if strings.HasSuffix(s, ".json") {
		return readHistogram(s)
	}
	var counts [][]int64
	for i, interval := range strings.Split(s, ";") {
		cells := strings.Split(interval, ",")
		if i == 0 {
			counts = make([][]int64, len(cells))
		}
		if len(cells) != len(counts) {
			return nil, fmt.Errorf("interval %d has %d adapters, the first has %d", i+1, len(cells), len(counts))
		}
		for k, c := range cells {
			n, err := strconv.ParseInt(strings.TrimSpace(c), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q is not a whole number", c)
			}
			counts[k] = append(counts[k], n)
		}
	}
	return counts, nil
}

func readHistogram(file string) ([][]int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var flat []int64
	if err := json.Unmarshal(data, &flat); err == nil {
		counts := make([][]int64, len(flat))
		for k, n := range flat {
			counts[k] = []int64{n}
		}
		return counts, nil
	}
	var counts [][]int64
	if err := json.Unmarshal(data, &counts); err != nil {
		return nil, fmt.Errorf("%s: expected a list of numbers, or of lists of numbers: %w", file, err)
	}
	return counts, nil
}
