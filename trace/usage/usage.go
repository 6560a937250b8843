// Package usage reads records of which adapter was asked for when, such as the
// references to LoRA adapters in Alibaba's image generation trace
// (cluster-trace-v2026-GenAI, GenTD26). They say how adapters are used, not how
// many tokens a request has.
//
//	w, err := usage.Read("alibaba_lora_refs.csv.gz", usage.Options{})
//
// The file is CSV, plain or gzip-compressed, with the columns time_s and
// adapter; others are left alone. Rows need no order.
package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Options of Read.
type Options struct {
	// Adapters stand for the file's adapters, in the order of their first use;
	// where there are fewer, their turn comes again. Nil: the file's own, named
	// as the file does, of ranks Ranks in turn.
	Adapters []trace.Adapter
	// Ranks of n adapters, where Adapters is nil; nil: not stated.
	Ranks func(n int) []int
	// Start and End bound the part to read, in seconds after the first row;
	// End 0: to the end.
	Start, End  float64
	TimeScale   float64 // multiplies arrival times; 0: 1
	SkipBadRows bool    // count malformed rows instead of failing
	Progress    func(bytesRead int64) error
}

// maxTime keeps arrival times in the range where sums of them are exact enough.
const maxTime = 1e10 // s, three centuries

// Read returns the references as requests without token counts, the first one
// at time 0, and the number of rows that were skipped.
func Read(path string, o Options) (w *trace.Workload, skipped int64, err error) {
	refs, skipped, err := readFile(path, o)
	if err != nil {
		return nil, skipped, err
	}
	slices.SortStableFunc(refs, func(a, b ref) int { return cmp.Compare(a.at, b.at) })
	w = &trace.Workload{Adapters: o.Adapters}
	index := map[int64]int32{}
	var ids []int64
	scale := cmp.Or(o.TimeScale, 1)
	for _, r := range refs {
		at := r.at - refs[0].at
		if at < o.Start || o.End > 0 && at >= o.End {
			continue
		}
		k, ok := index[r.adapter]
		if !ok {
			k = int32(len(ids))
			ids = append(ids, r.adapter)
			if n := len(o.Adapters); n > 0 {
				k %= int32(n)
			}
			index[r.adapter] = k
		}
		w.Requests = append(w.Requests, trace.Request{ID: int64(len(w.Requests)), Arrival: (at - o.Start) * scale, Adapter: k})
	}
	if len(w.Requests) == 0 {
		return nil, skipped, fmt.Errorf("%s: no request in the window from %v s; the last of %d is at %v s",
			path, o.Start, len(refs), refs[len(refs)-1].at-refs[0].at)
	}
	if w.Adapters == nil {
		for _, id := range ids {
			w.Adapters = append(w.Adapters, trace.Adapter{Name: "adapter" + strconv.FormatInt(id, 10)})
		}
		if o.Ranks != nil {
			for i, r := range o.Ranks(len(ids)) {
				w.Adapters[i].Rank = r
			}
		}
	}
	return w, skipped, nil
}

// ref is one row.
type ref struct {
	at      float64 // s
	adapter int64
}

func readFile(path string, o Options) (refs []ref, skipped int64, err error) {
	path, err = textfile.Find(path, "*lora_refs*.csv")
	if err != nil {
		return nil, 0, err
	}
	f, err := textfile.Open(path, o.Progress)
	if err != nil {
		return nil, 0, err
	}
	var r ref
	rows, err := table.OpenText(f, false, []table.Column{{Name: "time_s", Value: &r.at}, {Name: "adapter", Value: &r.adapter}}, false)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for {
		err := rows.Read()
		if err == nil && !(math.Abs(r.at) <= maxTime) {
			err = rows.Bad("time_s", fmt.Errorf("is %v, expected at most %g s", r.at, float64(maxTime)))
		}
		var bad *textfile.RowError
		switch {
		case errors.Is(err, io.EOF) && len(refs) == 0:
			return nil, skipped, fmt.Errorf("%s: empty trace: it holds no request", path)
		case errors.Is(err, io.EOF):
			return refs, skipped, nil
		case errors.As(err, &bad) && o.SkipBadRows:
			skipped++
		case err != nil:
			return nil, skipped, err
		default:
			refs = append(refs, r)
		}
	}
}
