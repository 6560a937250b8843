package validate

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Histograms holds, by stride of the mapping, how often the functions of each
// adapter were invoked.
type Histograms map[int][]int64

// ReadHistograms reads invocations per adapter from JSON:
//
//	{"histograms_by_stride": {"4": [23, 162, 206, 228], ...},
//	 "runs": {"any name": {"map_stride": 1, "histogram": [111, 159, 58, 291]}}}
//
// Either part may be absent, other keys are ignored. name is for errors.
func ReadHistograms(in io.Reader, name string) (Histograms, error) {
	var file struct {
		ByStride map[string][]int64 `json:"histograms_by_stride"`
		Runs     map[string]struct {
			Stride    int     `json:"map_stride"`
			Histogram []int64 `json:"histogram"`
		} `json:"runs"`
	}
	if err := json.NewDecoder(in).Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: expected a JSON object with histograms_by_stride or runs: %w", name, err)
	}
	hs := Histograms{}
	for key, counts := range file.ByStride {
		stride, err := strconv.Atoi(key)
		if err != nil || stride < 1 {
			return nil, fmt.Errorf("%s: histograms_by_stride: key %q, expected a stride >= 1", name, key)
		}
		hs[stride] = counts
	}
	for key, run := range file.Runs {
		if run.Stride < 1 {
			return nil, fmt.Errorf("%s: runs.%s: map_stride is %d, expected >= 1", name, key, run.Stride)
		}
		hs[run.Stride] = run.Histogram
	}
	if len(hs) == 0 {
		return nil, fmt.Errorf("%s: no histogram, expected histograms_by_stride or runs", name)
	}
	for stride, counts := range hs {
		if err := checkCounts(counts); err != nil {
			return nil, fmt.Errorf("%s: histogram of stride %d: %w", name, stride, err)
		}
	}
	return hs, nil
}

func checkCounts(counts []int64) error {
	sum := int64(0)
	for i, n := range counts {
		if n < 0 || n > 1e15 {
			return fmt.Errorf("adapter %d has %d invocations, expected 0 to 10^15", i, n)
		}
		sum += n
	}
	if sum == 0 {
		return fmt.Errorf("no invocations")
	}
	return nil
}
