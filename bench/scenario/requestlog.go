package scenario

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"lorasim/bench/result/importer"
	"lorasim/bench/result/records"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// ReadLog reads request logs as one workload. It accepts the formats of [requestlog.Read] and the request files of
// benchmark clients (sglang's bench_serving, vLLM, AIPerf, GuideLLM, inference-perf).
func ReadLog(ctx context.Context, paths []string, o requestlog.Options) (*trace.Workload, *requestlog.Report, error) {
	w, report, err := requestlog.Read(ctx, paths, o)
	if err == nil || len(paths) != 1 {
		return w, report, err
	}
	runs, _, clientErr := importer.Files(ctx, o.Files, paths)
	if clientErr != nil {
		return nil, nil, err // the one that tells of columns
	}
	return fromClient(paths[0], runs, o.Seed)
}

// measuredRun reads per-request records that state latencies ([records]), whose tenants are
// no adapters: the arrivals and lengths of the requests that succeeded. nil: the file holds
// something else.
func measuredRun(ctx context.Context, files trace.Files, path string) (*trace.Workload, *requestlog.Report, error) {
	line, err := firstLine(ctx, files.FS, path)
	if err != nil || !strings.Contains(line, "sent_s") || !strings.Contains(line, "ttft_s") ||
		strings.Contains(line, "adapter") {
		return nil, nil, nil // let the reader of logs say what is wrong
	}
	rs, _, err := records.ReadAll(ctx, files, path)
	if err != nil {
		return nil, nil, err
	}
	report := &requestlog.Report{Format: "per-request records", Rows: int64(len(rs))}
	return workloadOf(path, rs, nil, report, func(r *record.Request) trace.Request {
		return trace.Request{Arrival: r.Arrival, Adapter: trace.BaseModel}
	})
}

// workloadOf makes a workload of the records that succeeded. request gives arrival and adapter of one.
func workloadOf(path string, rs []record.Request, adapters []trace.Adapter, report *requestlog.Report,
	request func(*record.Request) trace.Request) (*trace.Workload, *requestlog.Report, error) {
	var requests []trace.Request
	for i := range rs {
		r := &rs[i]
		switch {
		case r.Status != record.OK:
			report.Drop("the request failed", i+1)
		case r.Prompt < 1 || r.Output < 1:
			report.Drop("no prompt or output tokens", i+1)
		default:
			one := request(r)
			one.Prompt, one.Output = r.Prompt, r.Output
			requests = append(requests, one)
		}
	}
	if len(requests) == 0 {
		return nil, nil, fmt.Errorf("%s: none of its %d requests succeeded", path, len(rs))
	}
	return requestlog.Workload(adapters, requests, report), report, nil
}

// fromClient makes a workload of the requests of a benchmark client's run.
func fromClient(path string, runs []*importer.Imported, seed uint64) (*trace.Workload, *requestlog.Report, error) {
	if len(runs) != 1 {
		return nil, nil, fmt.Errorf("%s: holds the results of %d runs, expected the requests of one", path, len(runs))
	}
	run := runs[0]
	report := &requestlog.Report{Format: "requests of " + clientOf(run)}
	if len(run.Records) == 0 && run.Details != nil {
		run.Records = drawArrivals(run, seed)
		report.Assume("the file states no times of arrival: they were drawn with seed %d as a Poisson process at its request rate (%v/s)",
			seed, run.RequestRate)
	}
	if len(run.Records) == 0 {
		return nil, nil, fmt.Errorf("%s: states totals, but no single requests: %s", path, whereRequestsAre(run))
	}
	report.Rows = int64(len(run.Records) + run.Left.Rows())
	report.Notes = append(report.Notes, run.Left.Lines()...)
	var adapters []trace.Adapter
	for _, a := range run.Adapters {
		adapters = append(adapters, trace.Adapter{Name: a.Name, Rank: a.Rank})
	}
	return workloadOf(path, run.Records, adapters, report, func(r *record.Request) trace.Request {
		return trace.Request{Arrival: r.Sent, Adapter: r.Adapter}
	})
}

// drawArrivals are the requests of a client that saves their lengths, but not when it sent them (sglang's
// bench_serving): at the rate of the run, whose gaps that client draws from an exponential distribution.
func drawArrivals(run *importer.Imported, seed uint64) (recs []record.Request) {
	rng := rand.New(rand.NewPCG(seed, 0x62656e6368)) // "bench"
	at := 0.0
	d := run.Details
	for i := range min(len(d.InputLens), len(d.OutputLens)) {
		r := record.Request{ID: int64(i), Adapter: trace.BaseModel, Sent: at, Prompt: tokenCount(d.InputLens[i]),
			Output: tokenCount(d.OutputLens[i])}
		if i < len(d.Errors) && d.Errors[i] != "" {
			r.Status = record.Failed
		}
		if rate := float64(run.RequestRate); rate > 0 && !math.IsInf(rate, 1) {
			at += rng.ExpFloat64() / rate
		}
		recs = append(recs, r)
	}
	return recs
}

func tokenCount(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// whereRequestsAre describes how a client saves its requests.
func whereRequestsAre(run *importer.Imported) string {
	switch name, _, _ := strings.Cut(run.Client, " "); name {
	case "AIPerf":
		return "they are in profile_export.jsonl in the same folder"
	case "inference-perf":
		return "they are in per_request_lifecycle_metrics.json (report.request_lifecycle.per_request: true)"
	case "GuideLLM":
		return "save them with --output-path FILE.json"
	}
	return "save them too (bench_serving --output-file FILE --output-details, vllm bench serve --save-detailed)"
}

func clientOf(run *importer.Imported) string {
	if run.Client != "" {
		return run.Client
	}
	return "a benchmark client"
}
