package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

// example is a run of three requests that end in the order 1, 0, 2, the last one cached.
func example(t *testing.T, r Run) (*result.Result, []int64, error) {
	t.Helper()
	w := &trace.Workload{Requests: []trace.Request{{ID: 0, Adapter: -1, Prompt: 5, Output: 2},
		{ID: 1, Adapter: -1, Prompt: 5, Output: 2}, {ID: 2, Adapter: -1, Prompt: 5, Output: 2}}}
	r.Source, r.Files = w.Source(), columnar.Files()
	if r.Describe == nil {
		r.Describe = func(*result.Result) error { return nil }
	}
	res, err := r.Drive(t.Context(), func(_ context.Context, s trace.Source, to Observer) (*result.RunCounters, error) {
		for range w.Requests {
			if _, err := s.Next(); err != nil {
				return nil, err
			}
		}
		for i, id := range []int64{1, 0, 2} {
			to.Done(&record.Request{ID: id, Adapter: -1, Finish: float64(i + 1), FirstToken: 0.5, Prompt: 5, Output: 2,
				Cached: int32(id)})
		}
		return &result.RunCounters{}, nil
	})
	var ids []int64
	if r.RecordsFile != "" {
		list, _, err := records.ReadAll(t.Context(), columnar.Files(), r.RecordsFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, q := range list {
			ids = append(ids, q.ID)
		}
	}
	return res, ids, err
}

// The file of records has the order of the source, whichever executor wrote it.
func TestRecordsInOrder(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "r.jsonl")
		res, ids, err := example(t, Run{RecordsFile: file, CachesUnknown: unknown,
			Collect: result.Options{KeepRecords: true}})
		if err != nil || !slices.Equal(ids, []int64{0, 1, 2}) || len(res.Records) != 3 || res.Extra.Requests != 3 {
			t.Errorf("unknown %v: %v, %v, %+v", unknown, err, ids, res)
		}
	}
}

// Without a file the executor has the source and the collector themselves, and a run that says nothing is an error.
func TestDescribe(t *testing.T) {
	want := errors.New("says nothing")
	res, _, err := example(t, Run{Describe: func(res *result.Result) error {
		if res.Extra.Requests != 3 {
			t.Errorf("%+v", res.Extra)
		}
		return want
	}})
	if res != nil || !errors.Is(err, want) {
		t.Errorf("%v, %v", res, err)
	}
}

// A run that fails leaves no file, one that ended early has a result and an error.
func TestEarlyEnd(t *testing.T) {
	stop := errors.New("stopped")
	for _, c := range []*result.RunCounters{nil, {}} {
		file := filepath.Join(t.TempDir(), "r.jsonl")
		r := Run{Source: (&trace.Workload{}).Source(), Files: columnar.Files(), RecordsFile: file,
			Describe: func(*result.Result) error { return nil }}
		res, err := r.Drive(t.Context(), func(context.Context, trace.Source, Observer) (*result.RunCounters, error) {
			return c, stop
		})
		_, missing := os.Stat(file)
		if !errors.Is(err, stop) || (res != nil) != (c != nil) || (missing == nil) != (c != nil) {
			t.Errorf("%v: %v, %v, %v", c, res, err, missing)
		}
	}
}

// A request without a record is an error of the executor, unless the run has an end.
func TestMissingRecord(t *testing.T) {
	for _, window := range []float64{0, 5} {
		w := &trace.Workload{Requests: []trace.Request{{ID: 0, Adapter: -1, Prompt: 1, Output: 1}}}
		r := Run{Source: w.Source(), Files: columnar.Files(), RecordsFile: filepath.Join(t.TempDir(), "r.jsonl"),
			Collect: result.Options{Duration: window}, Describe: func(*result.Result) error { return nil }}
		read := func(_ context.Context, s trace.Source, _ Observer) (*result.RunCounters, error) {
			_, err := s.Next()
			return &result.RunCounters{}, err
		}
		_, err := r.Drive(t.Context(), read)
		if (err == nil) != (window > 0) {
			t.Errorf("window %v: %v", window, err)
		}
	}
}
