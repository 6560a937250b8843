package shareddata

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	t.Setenv("LORASIM_DATA", "")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(here))
	if want := filepath.Join(filepath.Dir(root), "shared", "data"); Dir() != want {
		t.Errorf("data in %s, expected %s", Dir(), want)
	}
	t.Setenv("LORASIM_DATA", "elsewhere")
	if Dir() != "elsewhere" {
		t.Errorf("data in %s, expected what LORASIM_DATA says", Dir())
	}
}

func TestPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LORASIM_DATA", dir)
	file := filepath.Join(dir, "a", "b.csv")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	t.Run("there", func(t *testing.T) {
		if got := Path(t, "a/b.csv"); got != file {
			t.Errorf("got %s, expected %s", got, file)
		}
		ran++
	})
	t.Run("absent", func(t *testing.T) {
		Path(t, "a/c.csv")
		ran += 2 // not reached: the test is skipped
	})
	if ran != 1 {
		t.Error("Path skips the test of a file that is there, or not that of one that is absent")
	}
}
