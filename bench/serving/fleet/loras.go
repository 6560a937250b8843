package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"lorasim/internal/textfile"
)

// A LoRA is an adapter with the place of its weights.
type LoRA struct {
	// Name is the adapter's name. Path is the path of its weights, as workers see it.
	Name, Path string
	// Rank is the adapter's rank. 0: unknown.
	Rank int
}

// ParseLoRA parses NAME=PATH.
func ParseLoRA(s string) (LoRA, error) {
	name, path, ok := strings.Cut(s, "=")
	a := LoRA{Name: strings.TrimSpace(name), Path: strings.TrimSpace(path)}
	if !ok || a.Name == "" || a.Path == "" {
		return a, fmt.Errorf("%q: expected NAME=PATH", s)
	}
	return a, nil
}

// maxLoRAs is the largest number of adapters in a list.
const maxLoRAs = 1 << 20

// ReadLoRAs reads a list of adapters, one NAME=PATH per line. It skips empty lines and lines that begin with #. Errors
// name the file as where.
func ReadLoRAs(r io.Reader, where string) ([]LoRA, error) {
	var list []LoRA
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		a, err := ParseLoRA(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", where, n, err)
		}
		if list = append(list, a); len(list) > maxLoRAs {
			return nil, fmt.Errorf("%s:%d: more than %d adapters, the most that are read", where, n, maxLoRAs)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s:%d: the line is longer than %d bytes, expected NAME=PATH",
			where, n, bufio.MaxScanTokenSize)
	} else if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", where, n, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no adapter, expected lines NAME=PATH", where)
	}
	return list, nil
}

// peftConfig is the name of the file that marks a folder as a PEFT adapter.
const peftConfig = "adapter_config.json"

// FindLoRAs returns the adapters in a folder: its subfolders in the format of PEFT. An adapter's name is that of its
// subfolder; its path is absolute.
func FindLoRAs(folder string) ([]LoRA, error) {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, err
	}
	var list []LoRA
	for _, e := range entries { // sorted by name
		path := filepath.Join(abs, e.Name())
		file := filepath.Join(path, peftConfig)
		data, err := textfile.ReadRegular(file, textfile.MaxSettings)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rank, err := parsePEFT(data, file)
		if err != nil {
			return nil, err
		}
		list = append(list, LoRA{e.Name(), path, rank})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no adapter, expected subfolders with %s", folder, peftConfig)
	}
	return list, nil
}

// parsePEFT reads the rank of an adapter from its configuration: the highest rank of its layers, if the ranks differ.
func parsePEFT(data []byte, file string) (int, error) {
	var c struct {
		R       int            `json:"r"`
		Pattern map[string]int `json:"rank_pattern"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, fmt.Errorf("%s: expected the configuration of a PEFT adapter: %w", file, err)
	}
	rank := c.R
	for _, r := range c.Pattern {
		rank = max(rank, r)
	}
	if rank > maxRank {
		return 0, fmt.Errorf("%s: the rank is %d, expected <= %d", file, rank, maxRank)
	}
	if rank < 1 {
		return 0, fmt.Errorf(`%s: "r", the rank, is %d, expected >= 1`, file, c.R)
	}
	return rank, nil
}
