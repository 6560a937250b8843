// Package repo finds the repository of lorasim, which the lab's module replaces by a folder, and builds the program.
package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root returns the root of the repository. The working directory must be in the lab's module.
func Root(ctx context.Context) (string, error) {
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", "lorasim")
	if err != nil {
		return "", fmt.Errorf("the repository of lorasim: %w (run this in the folder lab)", err)
	}
	return strings.TrimSpace(out), nil
}

// Build builds lorasim into a folder and returns the path of the program. The build is without cgo, so without HiGHS.
func Build(ctx context.Context, folder string) (program string, err error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	program = filepath.Join(folder, "lorasim")
	_, err = goCommand(ctx, root, "build", "-o", program, "./cmd/lorasim")
	return program, err
}

// InFolder calls do with a temporary folder for a tool, and with a program: lorasim, or where that is "", one that is
// built in the folder. The folder is removed at the end.
func InFolder(ctx context.Context, tool, lorasim string, do func(folder, program string) error) error {
	folder, err := os.MkdirTemp("", "lorasim-"+tool+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if lorasim == "" {
		if lorasim, err = Build(ctx, folder); err != nil {
			return err
		}
	}
	return do(folder, lorasim)
}

// goCommand runs the go command in a folder ("": the working directory) and returns its output.
func goCommand(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
