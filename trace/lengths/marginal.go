package lengths

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"sort"

	"lorasim/internal/textfile"
)

// Marginal is the distribution that a histogram stands for: the bins with the
// shares of their counts, even within a bin.
type Marginal struct {
	lo, hi []float64 // of the bins with a count
	below  []float64 // share of all counts up to and including the bin; the last is 1
}

// Quantile returns the value below which a share p of the distribution lies.
func (m *Marginal) Quantile(p float64) float64 {
	k := sort.SearchFloat64s(m.below, p)
	k = min(k, len(m.below)-1)
	start := 0.0
	if k > 0 {
		start = m.below[k-1]
	}
	part := min(max((p-start)/(m.below[k]-start), 0), 1)
	return m.lo[k] + float64(part*(m.hi[k]-m.lo[k]))
}

// largestBin bounds lengths and counts, far beyond any histogram.
const largestBin = 1e12

// add appends a bin, which must lie above those before.
func (m *Marginal) add(lo, hi, count float64) error {
	switch n := len(m.lo); {
	case !(lo >= 0) || !(hi > lo) || hi > largestBin:
		return fmt.Errorf("the bin is %v to %v, expected 0 <= lo < hi <= %g", lo, hi, largestBin)
	case !(count >= 0) || count > largestBin:
		return fmt.Errorf("count is %v, expected 0 to %g", count, largestBin)
	case n > 0 && lo < m.hi[n-1]:
		return fmt.Errorf("the bin begins at %v, within the one before, which ends at %v", lo, m.hi[n-1])
	case count == 0:
		return nil
	}
	sum := count
	if n := len(m.below); n > 0 {
		sum += m.below[n-1]
	}
	m.lo, m.hi, m.below = append(m.lo, lo), append(m.hi, hi), append(m.below, sum)
	return nil
}

// normalize turns the running sums of counts into shares.
func (m *Marginal) normalize() {
	total := m.below[len(m.below)-1]
	for i := range m.below {
		m.below[i] /= total
	}
}

// ReadMarginals reads the histograms of prompt and output lengths from a CSV
// file with the columns what (prompt or output), lo, hi and count, a row for
// each bin in ascending order. Errors name the file, line and column. The name
// [ShareGPTV3] stands for the built-in histograms.
func ReadMarginals(path string) (prompt, output Marginal, err error) {
	if path == ShareGPTV3 {
		return readMarginals(textfile.New(path, bytes.NewReader(shareGPTV3)))
	}
	f, err := textfile.Open(path, nil)
	if err != nil {
		return prompt, output, err
	}
	defer f.Close()
	return readMarginals(f)
}

// ShareGPTV3 names the built-in histograms: prompt and reply lengths of the
// first two turns of ShareGPT V3 (prompts of 4 to 1024 tokens, replies of at
// least 4, 2048 together), in 30 bins, counted by another tokenizer than that
// of Llama 3.1 or Qwen 2.5. Source: GPULLMAdapterOptimization by Ferran Agullo
// Lopez et al. (arXiv 2508.08343), Apache-2.0.
const ShareGPTV3 = "sharegpt-v3"

//go:embed sharegpt_v3.csv
var shareGPTV3 []byte

func readMarginals(f *textfile.File) (prompt, output Marginal, err error) {
	csv, err := f.Header()
	if err != nil {
		return prompt, output, err
	}
	var columns [4]int
	names := [4]string{"what", "lo", "hi", "count"}
	for i, name := range names {
		if columns[i], err = csv.Column(name); err != nil {
			return prompt, output, err
		}
	}
	for {
		fields, err := csv.Row()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return prompt, output, err
		}
		var v [3]float64
		for i := range v {
			if v[i], err = textfile.Float(fields[columns[i+1]]); err != nil {
				return prompt, output, f.Bad(names[i+1], err)
			}
		}
		to := &prompt
		switch what := fields[columns[0]]; string(what) {
		case "prompt":
		case "output":
			to = &output
		default:
			return prompt, output, f.Bad("what", fmt.Errorf("is %q, expected prompt or output", what))
		}
		if err := to.add(v[0], v[1], v[2]); err != nil {
			return prompt, output, f.Bad("lo", err)
		}
	}
	for _, m := range []struct {
		what string
		*Marginal
	}{{"prompt", &prompt}, {"output", &output}} {
		if len(m.below) == 0 {
			return prompt, output, fmt.Errorf("%s: the %s histogram has no counts", f.Path(), m.what)
		}
		m.normalize()
	}
	return prompt, output, nil
}
