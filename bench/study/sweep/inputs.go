package sweep

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lorasim/bench/scenario"
	"lorasim/internal/textfile"
)

// A Fingerprint identifies an input file of a sweep.
type Fingerprint struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// takeFingerprints notes the files that the settings name.
func (m *Manifest) takeFingerprints() error {
	var failed error
	seen := map[string]bool{}
	note := func(path string) string {
		if !seen[path] && failed == nil {
			var sum string
			sum, failed = sumPath(path)
			m.Inputs = append(m.Inputs, Fingerprint{path, sum})
		}
		seen[path] = true
		return path
	}
	base := m.base
	base.Routing.Policy = scenario.Routing{}.Policy // the grid has the policies
	for _, a := range m.Axes {
		if err := setting(a.Key).Set(&base, a.Values[0]); err != nil { // the base's own value does not matter
			return err
		}
	}
	if err := base.MapPaths(note); err != nil {
		return err
	}
	m.mapPaths(note)
	return failed
}

// sumPath returns the hash of a file. For a folder, it is the hash of the names and sizes of its files, because traces
// in folders are too large to read more often than needed.
func sumPath(path string) (string, error) {
	h := sha256.New()
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !st.IsDir() {
		f, err := textfile.OpenFile(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = io.Copy(h, f)
		return hex.EncodeToString(h.Sum(nil)), err
	}
	entries, err := os.ReadDir(path) // sorted
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return "", err
		}
		if info.Mode().IsRegular() {
			fmt.Fprintf(h, "%q %d\n", e.Name(), info.Size())
		}
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// checkInputs returns an error if input files have changed since the sweep was planned.
func (m *Manifest) checkInputs() error {
	for _, in := range m.Inputs {
		path := m.resolve(in.Path)
		sum, err := sumPath(path)
		if err != nil {
			return err
		}
		if sum != in.SHA256 {
			return fmt.Errorf("%s has changed since the sweep was planned", path)
		}
	}
	return nil
}

// resolve turns a path of the manifest into one from the working directory.
func (m *Manifest) resolve(path string) string { return scenario.In(m.dir)(path) }

// moveTo makes relative paths relative to the folder of the sweep instead of the working directory. The sweep can then
// continue from any directory, and on machines with other mount points.
func (m *Manifest) moveTo(dir string) error {
	abs, failed := filepath.Abs(dir)
	to := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		p, err := filepath.Abs(path)
		if err == nil {
			p, err = filepath.Rel(abs, p)
		}
		failed = cmp.Or(failed, err)
		return p
	}
	if err := m.base.MapPaths(to); err != nil {
		return err
	}
	m.mapPaths(to)
	for i := range m.Inputs {
		m.Inputs[i].Path = to(m.Inputs[i].Path)
	}
	if m.dir = dir; failed != nil {
		return failed
	}
	return m.write()
}
