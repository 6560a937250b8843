package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command has a manual page, the same each time.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	dir := t.TempDir()
	lorasim(t, "man", filepath.Join(dir, "a"))
	lorasim(t, "man", filepath.Join(dir, "b"))
	pages := 0
	walk(newRoot(), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() || cmd.HasParent() && cmd.Parent().Name() == "help" {
			return
		}
		pages++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		a, err := os.ReadFile(filepath.Join(dir, "a", name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "b", name))
		if text := string(a); err != nil || text != string(b) || !strings.HasPrefix(text, ".nh\n.TH ") ||
			!strings.Contains(text, "Jan 1970") || !strings.Contains(text, ".SH SYNOPSIS") {
			t.Errorf("%s (%v): %.200q", name, err, text)
		}
	})
	if pages < 30 {
		t.Errorf("%d pages", pages)
	}
}
