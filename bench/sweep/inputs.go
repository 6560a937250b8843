package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"lorasim/bench/scenario"
)

// Fingerprint identifies a file that a sweep reads.
type Fingerprint struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// fingerprints finds the files that the settings name: those of the base and of
// all axes, by themselves or as a part of a value such as explicit:file=PATH.
func (m *Manifest) fingerprints() ([]Fingerprint, error) {
	var texts []string
	for _, f := range scenario.Fields() {
		if f.Type() == "string" && !m.varies(f.Key) {
			texts = append(texts, f.Get(&m.base))
		}
	}
	texts = append(texts, m.Policies...)
	for _, a := range m.Axes {
		texts = append(texts, a.Values...)
	}
	var paths []string
	add := func(p string) {
		if !strings.ContainsAny(p, "./") || slices.Contains(paths, p) {
			return
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			paths = append(paths, p)
		}
	}
	for _, t := range texts {
		add(t)
		for _, part := range strings.FieldsFunc(t, func(r rune) bool { return strings.ContainsRune(",:=", r) }) {
			add(part)
		}
	}
	slices.Sort(paths)
	var out []Fingerprint
	for _, p := range paths {
		sum, err := sumFile(p)
		if err != nil {
			return nil, err
		}
		out = append(out, Fingerprint{p, sum})
	}
	return out, nil
}

func (m *Manifest) varies(key string) bool {
	return key == policyKey || slices.ContainsFunc(m.Axes, func(a Axis) bool { return a.Key == key })
}

// checkInputs makes sure that the files are those that the sweep was planned
// with.
func (m *Manifest) checkInputs() error {
	for _, in := range m.Inputs {
		sum, err := sumFile(in.Path)
		if err != nil {
			return err
		}
		if sum != in.SHA256 {
			return fmt.Errorf("%s has changed since the sweep was planned", in.Path)
		}
	}
	return nil
}

func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
