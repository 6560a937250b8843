package sweep

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// A Dir is a folder with a sweep: its manifest, the merged tables, and one file per cell in cells/.
type Dir struct {
	Path string
	*Manifest
}

const (
	manifestFile = "manifest.json"
	cellsDir     = "cells"
	hashKey      = "lorasim.cell" // what the file of a cell says of itself
)

// Create stores a planned sweep in a folder. If the folder holds a sweep that differs only in policies, seeds or
// values, Create extends that sweep: the manifest then has the policies, seeds and values of both, and finished cells
// stay finished. If the folder holds any other sweep, Create returns an error that states the differences.
func Create(path string, m *Manifest) (*Dir, error) {
	if m.base.Files.Binary == nil {
		return nil, errors.New("a sweep writes Parquet files, and its scenario has no format for them: " +
			"set Scenario.Files to columnar.Files() of lorasim/trace/columnar")
	}
	if err := m.moveTo(path); err != nil {
		return nil, err
	}
	if IsDir(path) {
		old, err := Open(m.base.Files, path)
		if err != nil {
			return nil, err
		}
		if err := m.grow(old.Manifest); err != nil {
			return nil, fmt.Errorf("%s holds another sweep: %w; choose another folder, or remove it to begin again",
				path, err)
		}
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s: is a file, expected a folder for the results", path)
	}
	if err := os.MkdirAll(filepath.Join(path, cellsDir), 0o755); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	if err := format.JSON(&data, m, " "); err != nil {
		return nil, err
	}
	file := filepath.Join(path, manifestFile)
	if old, err := textfile.ReadRegular(file, textfile.MaxData); err != nil || !bytes.Equal(old, data.Bytes()) {
		if err := writeFile(file, data.Bytes()); err != nil {
			return nil, err
		}
	}
	return &Dir{path, m}, nil
}

func writeFile(path string, data []byte) error {
	return atomicfile.Write(path, func(f *atomicfile.File) error { _, err := f.Write(data); return err })
}

// Open opens a folder with a sweep. files has the formats of its cells (Arrow) and tables (Parquet).
func Open(files trace.Files, path string) (*Dir, error) {
	file := filepath.Join(path, manifestFile)
	data, err := textfile.ReadRegular(file, textfile.MaxData)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s holds no sweep: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	m, err := readManifest(data, file)
	if err != nil {
		return nil, err
	}
	m.dir, m.base.Files = path, files
	return &Dir{path, m}, nil
}

// IsDir reports whether path is a folder with a sweep.
func IsDir(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return err == nil
}

// writable returns an error if results cannot be written. It is called before any run.
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

// removeTemporaries removes what interrupted runs left of files, once no file is
// missing any more.
func (d *Dir) removeTemporaries() error {
	var failed error
	for _, names := range []string{cellsDir + "/.*.tmp", ".*.tmp"} {
		stale, err := filepath.Glob(filepath.Join(d.Path, names))
		failed = cmp.Or(failed, err)
		for _, f := range stale {
			if err := os.Remove(f); !errors.Is(err, fs.ErrNotExist) {
				failed = cmp.Or(failed, err)
			}
		}
	}
	return failed
}
