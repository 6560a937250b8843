package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A runner runs lorasim over the measured runs.
type runner struct {
	lorasim string // the program
	root    string // root of the repository, in which commands run
	data    string // folder of measured runs
	scratch string // folder for the files that commands write
	// kept is a folder for the output of commands. A later call with the same folder reads the
	// output there. "" disables it.
	kept string
}

// need returns an error that names the first missing file or folder of the data, or nil.
func (r *runner) need(names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(r.data, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("%w: %s", errNoData, name)
		}
	}
	return nil
}

// errNoData is the reason to skip a source.
var errNoData = errors.New("no data")

// fill replaces the placeholders of a command with paths.
func (r *runner) fill(arg string) string {
	return strings.NewReplacer("DATA/", r.data+"/", "OUT/", r.scratch+"/").Replace(arg)
}

// run runs a command of the page, lorasim and its arguments separated by spaces, and returns its
// output. Cases that differ make the command fail but are a result: run returns an error only
// without output.
func (r *runner) run(ctx context.Context, name, command string) ([]byte, error) {
	keep := filepath.Join(r.kept, name+".json")
	if r.kept != "" {
		switch out, err := os.ReadFile(keep); {
		case err == nil:
			return out, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	words := strings.Fields(command)
	for i := range words {
		words[i] = r.fill(words[i])
	}
	program := words[0]
	if program == "lorasim" {
		program = r.lorasim
	}
	c := exec.CommandContext(ctx, program, words[1:]...)
	var out, problems bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = r.root, &out, &problems
	if err := c.Run(); err != nil && (out.Len() == 0 || ctx.Err() != nil) {
		return nil, fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(problems.String()))
	}
	if r.kept != "" {
		if err := os.WriteFile(keep, out.Bytes(), 0o666); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// decode runs a command and reads the JSON object that it prints.
func (r *runner) decode(ctx context.Context, name, command string, into any) error {
	out, err := r.run(ctx, name, command)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s: expected one JSON object: %w", command, err)
	}
	return nil
}
