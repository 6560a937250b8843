package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/lab/internal/repo"
)

// The page has every line of the tables of the measurements in this repository.
func TestPageIsFresh(t *testing.T) {
	root, err := repo.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "lora-costs.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := ours(t.Context(), "h100")
	if err != nil {
		t.Fatal(err)
	}
	k, err := readKit(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	k.tables(&b, llama)
	lines := strings.Split(b.String(), "\n")
	if len(lines) < 25 {
		t.Fatalf("%d lines of tables", len(lines))
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "|") && !strings.Contains(string(page), line) {
			t.Errorf("docs/lora-costs.md has no line %q", line)
		}
	}
}

// Both cards draw.
func TestDraw(t *testing.T) {
	for _, card := range []string{"h100", "h200"} {
		dir, err := ours(t.Context(), card)
		if err != nil {
			t.Fatal(err)
		}
		k, err := readKit(dir)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "costs.svg")
		if err := k.draw(file); err != nil {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(file)
		if err != nil || strings.Count(string(svg), "vLLM") < 1 || strings.Contains(string(svg), "NaN") {
			t.Errorf("%s: %d bytes, %v", card, len(svg), err)
		}
	}
}
