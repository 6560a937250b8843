package importer

import (
	"context"
	"math"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Records reads a file of request records as a run. The options are those of the collector of its metrics.
func Records(ctx context.Context, files trace.Files, path string, o result.Options) (*Imported, error) {
	c := result.NewCollector(o)
	gaps := false
	streamed := map[record.Streaming]bool{}
	first := false // some request has a first token
	var ranks []int
	in, err := records.Each(ctx, files, path, func(q *record.Request) error {
		gaps = gaps || q.Gaps != nil
		if q.Status == record.OK && q.Streamed == record.StreamingUnknown && q.FirstToken < q.Finish {
			q.Streamed = record.Streamed // it saw its first token before the last
		}
		streamed[q.Streamed] = true
		first = first || q.Status == record.OK && !math.IsNaN(q.FirstToken)
		for int(q.Adapter) >= len(ranks) {
			ranks = append(ranks, 0)
		}
		if q.Adapter >= 0 {
			ranks[q.Adapter] = max(ranks[q.Adapter], int(q.Rank))
		}
		c.Done(q)
		c.AddGaps(q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	meta := result.Meta{}
	if streamed[record.Streamed] != streamed[record.NotStreamed] {
		meta.Streamed = record.StreamingIf(streamed[record.Streamed])
	}
	res := c.Result(meta, nil)
	unknown := func(first, last result.ID) { // absent, not zero
		for m := first; m <= last; m++ {
			res.Metrics.Delete(m)
		}
	}
	if !gaps {
		unknown(result.MaxOutputTokensPerS, result.MaxOutputTokensPerS)
		unknown(result.MeanITL, result.MaxITL)
	}
	if completed, _ := res.Metrics.Get(result.Completed); !first && completed > 0 {
		unknown(result.MeanTTFT, result.P99TPOT)
	}
	res.Adapters = trace.Names(len(ranks), ranks)
	for i, name := range in.Names {
		if i >= 0 {
			res.Adapters[i].Name = name
		}
	}
	m := &Imported{Result: res, File: path, Line: 1, Left: in.Left}
	m.define("records")
	return m, nil
}
