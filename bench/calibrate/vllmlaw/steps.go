package vllmlaw

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// Step is one timing of steps that are all alike, without adapters.
type Step struct {
	Batch, KV, Prompt float64 // running requests, their KV tokens; prompt tokens
	Ms                float64 // median length
}

const (
	manyRequests = 1000 // fewer do not fill the steps
	stepTokens   = 2048 // max_num_batched_tokens of the timings
)

// ReadSteps reads a table of step timings, by model: closed loops of equal
// requests. Only rows without adapters tell what a plain step costs: those with
// one output token are full of prompt tokens, the others decode as many requests
// as the server takes, whose KV caches are half grown on average.
func ReadSteps(path string) (map[string][]Step, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSteps(f, path)
}

func readSteps(in io.Reader, name string) (map[string][]Step, error) {
	c := csv.NewReader(in)
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: expected a header line: %w", name, err)
	}
	columns := []string{"model", "max_loras", "max_num_seqs", "requests", "output_len", "in_tokens", "steps", "step_median_ms"}
	at := make([]int, len(columns))
	for i, n := range columns {
		if at[i] = slices.Index(header, n); at[i] < 0 {
			return nil, fmt.Errorf("%s:1: no column %q", name, n)
		}
	}
	out := map[string][]Step{}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		v := make([]float64, len(columns))
		known := row[at[1]] == ""
		for i := 2; i < len(columns) && known; i++ {
			text := row[at[i]]
			if known = text != ""; !known {
				break // a server whose steps were not timed
			}
			if v[i], err = strconv.ParseFloat(text, 64); err != nil || !(v[i] > 0 && v[i] < 1e12) {
				line, _ := c.FieldPos(at[i])
				return nil, fmt.Errorf("%s:%d: %s: %q, expected a number > 0", name, line, columns[i], text)
			}
		}
		batch, requests, output, input, steps, ms := v[2], v[3], v[4], v[5], v[6], v[7]
		if !known || requests < manyRequests {
			continue
		}
		s := Step{Batch: batch, KV: batch * (input/requests + output/2), Ms: ms}
		if output == 1 {
			s = Step{Prompt: min(input/steps, stepTokens), Ms: ms}
		}
		out[row[at[0]]] = append(out[row[at[0]]], s)
	}
}
