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

// Create puts a planned sweep into a folder. If the folder holds a sweep already
// that differs in policies, seeds and values alone, that is gone on with: the
// manifest then has those of both, and cells that are done stay so. If it holds
// another one, that is an error that tells what differs.
func Create(path string, m *Manifest) (*Dir, error) {
	if err := m.moveTo(path); err != nil {
		return nil, err
	}
	if IsDir(path) {
		old, err := Open(path)
		if err != nil {
			return nil, err
		}
		if err := m.grow(old.Manifest); err != nil {
			return nil, fmt.Errorf("%s holds another sweep: %w; choose another folder, or remove it to begin again", path, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(path, cellsDir), 0o755); err != nil {
		return nil, err
	}
	if err := m.save(); err != nil {
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
	m.dir = path
	return &Dir{path, m}, nil
}

// writable makes sure, before anything is run, that results can be written.
func (d *Dir) writable() error {
	for _, dir := range []string{d.Path, filepath.Join(d.Path, cellsDir)} {
		f, err := os.CreateTemp(dir, ".writable.*.tmp")
		if err != nil {
			return fmt.Errorf("the sweep's folder cannot be written to: %w", err)
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// IsDir says whether path is a folder with a sweep.
func IsDir(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return err == nil
}

// Status is how far a sweep is.
type Status struct {
	Name    string       `json:"name"`
	Hash    string       `json:"hash"`
	Cells   int          `json:"cells"`
	Done    int          `json:"done"`
	Missing int          `json:"missing"`
	Failed  []FailedCell `json:"failed"`
	Broken  []FailedCell `json:"broken"` // their files cannot be read; they run again
	left    []int        // missing cells, in order
}

// FailedCell names a cell that failed, or whose file is broken, and why.
type FailedCell struct {
	Index int    `json:"index"`
	What  string `json:"cell"`
	Error string `json:"error"`
}

// Status looks at the files of the sweep.
func (d *Dir) Status() *Status { return d.survey(func(int, *CellResult) {}) }

// survey is Status; done is given what the cells hold that are done.
func (d *Dir) survey(done func(i int, r *CellResult)) *Status {
	s := &Status{Name: d.Name, Hash: d.Hash, Cells: len(d.Cells), Failed: []FailedCell{}, Broken: []FailedCell{}}
	for i := range d.Cells {
		c := &d.Cells[i]
		state, r, message := d.look(c)
		switch state {
		case Done:
			s.Done++
			done(i, r)
		case Failed:
			s.Failed = append(s.Failed, FailedCell{i, d.Describe(c), message})
		case Broken:
			s.Broken = append(s.Broken, FailedCell{i, d.Describe(c), message})
		default:
			s.Missing++
			s.left = append(s.left, i)
		}
	}
	return s
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
