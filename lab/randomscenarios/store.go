package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Numbered is a scenario with its number, as the arguments of lorasim sim.
type Numbered struct {
	Generator uint64 `json:"generator_seed"`
	Index     int    `json:"scenario"`
	Command   string `json:"command"`
	// Load is what the drawn rate was multiplied by; 0: nothing.
	Load float64 `json:"load,omitempty"`
}

// Run is one run of a scenario with a policy.
type Run struct {
	Index     int     `json:"scenario"`
	Policy    string  `json:"policy"`
	Seed      uint64  `json:"seed"`
	E2E       float64 `json:"mean_e2e_latency_ms"`
	TTFT      float64 `json:"mean_ttft_ms"`
	P99TTFT   float64 `json:"p99_ttft_ms"`
	Requests  int64   `json:"requests"`
	Completed float64 `json:"completed"`
	State     string  `json:"state"`
	Sustained float64 `json:"sustained_rate,omitempty"` // beyond overload, requests/s (see sustains); 0: not measured
	// Throughput is the rate of completed requests, requests/s, to the end of the last one.
	Throughput float64 `json:"request_throughput,omitempty"`
	Seconds    float64 `json:"seconds"`         // duration of the run
	Error      string  `json:"error,omitempty"` // reason for missing figures
}

// key identifies the run.
func (r *Run) key() runKey { return runKey{r.Index, r.Policy, r.Seed} }

type runKey struct {
	index  int
	policy string
	seed   uint64
}

// Store is a folder with scenarios and their finished runs, one JSON object per line.
type Store struct {
	folder    string
	Scenarios []Numbered
	Runs      []Run
	file      *os.File // file of the runs
}

const scenariosFile, runsFile = "scenarios.jsonl", "runs.jsonl"

// OpenStore opens a folder, and creates it if necessary. A folder of another generator seed or another load is an
// error.
func OpenStore(folder string, generator uint64, load float64) (*Store, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	s := &Store{folder: folder}
	if err := readLines(filepath.Join(folder, scenariosFile), &s.Scenarios); err != nil {
		return nil, err
	}
	for _, n := range s.Scenarios {
		if n.Generator != generator {
			return nil, fmt.Errorf("%s has scenarios of --seed %d, not %d: use another folder", folder,
				n.Generator, generator)
		}
		if had := cmp.Or(n.Load, 1); had != load {
			return nil, fmt.Errorf("%s has scenarios of --load %v, not %v: use another folder", folder, had, load)
		}
	}
	if err := readLines(filepath.Join(folder, runsFile), &s.Runs); err != nil {
		return nil, err
	}
	var err error
	s.file, err = os.OpenFile(filepath.Join(folder, runsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	return s, err
}

// Close closes the folder.
func (s *Store) Close() error { return s.file.Close() }

// Scenario returns a scenario of the folder.
func (s *Store) Scenario(index int) (Numbered, bool) {
	i := slices.IndexFunc(s.Scenarios, func(n Numbered) bool { return n.Index == index })
	if i < 0 {
		return Numbered{}, false
	}
	return s.Scenarios[i], true
}

// AddScenario saves a scenario.
func (s *Store) AddScenario(n Numbered) error {
	s.Scenarios = append(s.Scenarios, n)
	f, err := os.OpenFile(filepath.Join(s.folder, scenariosFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(writeLine(f, n), f.Close())
}

// AddRun saves a finished run.
func (s *Store) AddRun(r Run) error {
	s.Runs = append(s.Runs, r)
	return writeLine(s.file, r)
}

// writeLine writes a JSON object and the end of its line at once.
func writeLine(f *os.File, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return err
}

// readLines reads a JSON object per line. A missing file has none. A last line that was cut off is
// ignored, and removed from the file.
func readLines[T any](path string, list *[]T) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	whole, in := int64(0), bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 {
				return os.Truncate(path, whole)
			}
			return nil
		}
		whole += int64(len(line))
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		*list = append(*list, v)
	}
}
