package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Fingerprint identifies a file that a sweep reads.
type Fingerprint struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// checkInputs makes sure that the files are those that the sweep was planned
// with.
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

// sumPath is the hash of a file; of a folder, that of the names and sizes of its
// files, as traces in folders are too large to be read more often than needed.
func sumPath(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	st, err := f.Stat()
	if err == nil && !st.IsDir() {
		_, err = io.Copy(h, f)
	} else if err == nil {
		err = listTo(h, path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func listTo(w io.Writer, folder string) error {
	entries, err := os.ReadDir(folder) // sorted
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			fmt.Fprintf(w, "%q %d\n", e.Name(), info.Size())
		}
	}
	return nil
}
