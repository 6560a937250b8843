package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lorasim/cmd/cli"
)

// Every command has a manual page, the same each time.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
	}
	pages := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" {
				check(c)
			}
		}
		pages++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		a, err := os.ReadFile(filepath.Join(dirs[0], name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dirs[1], name))
		if text := string(a); err != nil || text != string(b) || !strings.HasPrefix(text, ".nh\n.TH ") ||
			!strings.Contains(text, "Jan 1970") || !strings.Contains(text, ".SH SYNOPSIS") {
			t.Errorf("%s (%v): %.200q", name, err, text)
		}
	}
	check(cli.Root())
	if pages < 30 {
		t.Errorf("%d pages", pages)
	}
}
