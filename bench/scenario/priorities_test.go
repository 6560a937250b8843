package scenario

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
	"lorasim/trace/store"
)

func prioritiesOf(t *testing.T, settings ...string) (list []int) {
	t.Helper()
	s := Default()
	s.Files = columnar.Files()
	for _, kv := range settings {
		key, value, _ := strings.Cut(kv, "=")
		if err := s.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	in, err := s.OpenWorkload(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, a := range in.Adapters() {
		list = append(list, a.Priority)
	}
	return list
}

// Priorities go to the adapters in turn; a saved workload that states them keeps
// them unless others are asked for.
func TestPriorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.parquet")
	s := Default()
	s.Workload.NumPrompts, s.Workload.NumAdapters = settings.Some[int64](20), settings.Some(3)
	testutil.Set(t, &s, "priorities", "5,-1")
	in, err := s.OpenWorkload(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Write(file, in.Source, store.WriteOptions{Files: columnar.Files()}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		settings string
		want     []int
	}{
		{"num_adapters=3", []int{0, 0, 0}},
		{"num_adapters=3 priorities=1,0", []int{1, 0, 1}},
		{"workload=" + file, []int{5, -1, 5}},
		{"workload=" + file + " priorities=2", []int{2, 2, 2}},
	} {
		got := prioritiesOf(t, strings.Fields(c.settings)...)
		for i := range c.want {
			if len(got) != len(c.want) || got[i] != c.want[i] {
				t.Fatalf("%s: %v, expected %v", c.settings, got, c.want)
			}
		}
	}
	for _, bad := range []string{"1,,2", "high", "1e3", "99999999999"} {
		if err := s.Set("priorities", bad); err == nil || !strings.Contains(err.Error(), "whole number") {
			t.Errorf("priorities %s: %v", bad, err)
		}
	}
}
