package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lorasimCommand runs this test binary as lorasim, see TestMain.
func lorasimCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Args[0] = "lorasim"
	return cmd
}

// A sweep that is killed in its middle and called again gives, byte for byte,
// what an uninterrupted one gives. Where the sweep is over before this process
// gets to kill it, a longer one is tried.
func TestSweepSurvivesKill(t *testing.T) {
	for prompts := 600; !sweepSurvivesKill(t, prompts); prompts *= 4 {
	}
}

// sweepSurvivesKill returns false if the sweep could not be killed.
func sweepSurvivesKill(t *testing.T, prompts int) bool {
	dir := t.TempDir()
	args := func(out string) []string {
		return []string{"sweep", "-o", filepath.Join(dir, out), "--name", "kill", "--num-prompts", fmt.Sprint(prompts),
			"--seeds", "6",
			"--set", "request_rate=4:16:4", "--policies", "static,least-loaded,affinity-spill"}
	}
	whole, err := lorasimCommand(args("whole")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	const cells = 4 * 3 * 6
	count := func() int {
		done, err := filepath.Glob(filepath.Join(dir, "killed", "cells", "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		return len(done)
	}
	cmd := lorasimCommand(args("killed")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for count() < cells/5 {
		time.Sleep(time.Millisecond) // there is no event to wait for in another process
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || count() == cells {
		return false
	}
	again, err := lorasimCommand(args("killed")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	// the next command, too, but for its folder
	want := strings.ReplaceAll(string(whole), filepath.Join(dir, "whole"), filepath.Join(dir, "killed"))
	if string(again) != want {
		t.Errorf("the tables differ:\n%s\nexpected:\n%s", again, want)
	}
	names := 0
	err = filepath.Walk(filepath.Join(dir, "whole"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		names++
		rel, _ := filepath.Rel(filepath.Join(dir, "whole"), path)
		a, err1 := os.ReadFile(path)
		b, err2 := os.ReadFile(filepath.Join(dir, "killed", rel))
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs (%v, %v)", rel, err1, err2)
		}
		return nil
	})
	if err != nil || names != cells+7 {
		t.Error(names, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "killed", "cells", ".*"))
	if err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	return true
}

// Who is interrupted is told to go on where there is something to go on from.
func TestInterruptedSaysWhatIsKept(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	small := []string{"--num-prompts", "20"}
	for _, c := range []struct {
		args []string
		kept bool
	}{
		{[]string{"sweep", "-o", filepath.Join(dir, "s"), "--set", "num_prompts=20"}, true},
		{append([]string{"advise", "--parts", "-o", filepath.Join(dir, "w")}, small...), true},
		{append([]string{"advise", "--parts"}, small...), false},
	} {
		var stdout, stderr strings.Builder
		code := run(ctx, c.args, strings.NewReader(""), &stdout, &stderr)
		if kept := strings.Contains(stderr.String(), "the same command goes on from there"); code != exitInterrupted ||
			kept != c.kept {
			t.Errorf("%q: code %d, %s", c.args, code, stderr.String())
		}
	}
}
