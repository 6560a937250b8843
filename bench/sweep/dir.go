package sweep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is a folder with a sweep: its manifest, one file for each cell in cells/,
// and the merged tables.
type Dir struct {
	Path string
	*Manifest
}

// Create puts a planned sweep into a folder. If the folder holds the same sweep
// already, that is gone on with; if it holds another one, that is an error.
func Create(path string, m *Manifest) (*Dir, error) {
	if err := m.write(path); err != nil {
		return nil, err
	}
	return &Dir{path, m}, nil
}

// Open opens a folder with a sweep.
func Open(path string) (*Dir, error) {
	file := filepath.Join(path, manifestFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no sweep: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(data, file)
	if err != nil {
		return nil, err
	}
	return &Dir{path, m}, nil
}

// IsDir says whether path is a folder with a sweep.
func IsDir(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return err == nil
}

// Status is how far a sweep is.
type Status struct {
	Name    string        `json:"name"`
	Hash    string        `json:"hash"`
	Cells   int           `json:"cells"`
	Done    int           `json:"done"`
	Missing int           `json:"missing"`
	Failed  []FailedCell  `json:"failed"`
	left    []int         // missing cells, in order
	known   map[int]State // by index
}

// FailedCell names a cell that failed and why.
type FailedCell struct {
	Index int    `json:"index"`
	What  string `json:"cell"`
	Error string `json:"error"`
}

// Status looks at the files of the sweep.
func (d *Dir) Status() (*Status, error) {
	s := &Status{Name: d.Name, Hash: d.Hash, Cells: len(d.Cells), Failed: []FailedCell{}, known: map[int]State{}}
	for i := range d.Cells {
		c := &d.Cells[i]
		state, message, err := d.state(c)
		if err != nil {
			return nil, err
		}
		s.known[i] = state
		switch state {
		case Done:
			s.Done++
		case Failed:
			s.Failed = append(s.Failed, FailedCell{i, d.Describe(c), message})
		default:
			s.Missing++
			s.left = append(s.left, i)
		}
	}
	return s, nil
}

// Describe names a cell by its settings.
func (m *Manifest) Describe(c *Cell) string {
	var parts []string
	for i, a := range m.Axes {
		parts = append(parts, a.Leaf()+"="+c.Values[i])
	}
	parts = append(parts, "policy="+c.Policy, "seed="+strconv.FormatUint(c.Seed, 10))
	return strings.Join(parts, " ")
}

// sweepTemporaries removes what interrupted runs left of files, once no file is
// missing any more.
func (d *Dir) sweepTemporaries() error {
	for _, dir := range []string{filepath.Join(d.Path, cellsDir), d.Path} {
		stale, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
		if err != nil {
			return err
		}
		for _, f := range stale {
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
