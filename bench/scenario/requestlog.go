package scenario

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"lorasim/bench/result/importer"
	"lorasim/internal/record"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// ReadLog reads request logs as one workload: what [requestlog.Read] takes, and the files in which benchmark clients
// save their requests (sglang's bench_serving, vLLM, AIPerf, GuideLLM, inference-perf).
func ReadLog(paths []string, o requestlog.Options) (*trace.Workload, *requestlog.Report, error) {
	w, report, err := requestlog.Read(paths, o)
	if err == nil || len(paths) != 1 || !isJSON(paths[0]) {
		return w, report, err
	}
	runs, _, clientErr := importer.Files(paths)
	if clientErr != nil {
		return nil, nil, err // the one that tells of columns
	}
	return fromClient(paths[0], runs, o.Seed)
}

// isJSON says whether a file begins as JSON does.
func isJSON(path string) bool {
	f, err := textfile.OpenText(path, nil)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(f, head)
	text := strings.TrimLeft(strings.TrimPrefix(string(head[:n]), "\ufeff"), " \t\r\n")
	return strings.HasPrefix(text, "{")
}

// fromClient makes a workload of the requests of a benchmark client's run.
func fromClient(path string, runs []*importer.Imported, seed uint64) (*trace.Workload, *requestlog.Report, error) {
	if len(runs) != 1 {
		return nil, nil, fmt.Errorf("%s: holds %d runs, expected one", path, len(runs))
	}
	run := runs[0]
	report := &requestlog.Report{Format: "requests of " + clientOf(run)}
	if len(run.Records) == 0 && run.Details != nil {
		run.Records = drawArrivals(run, seed)
		report.Notes = append(report.Notes, "the file states no times of arrival: they were drawn with seed "+
			fmt.Sprintf("%d as a Poisson process at its request rate (%v/s)", seed, run.RequestRate))
	}
	if len(run.Records) == 0 {
		return nil, nil, fmt.Errorf("%s: states totals, but no single requests: save them too "+
			"(bench_serving --output-details, vllm bench --save-detailed)", path)
	}
	report.Rows = int64(len(run.Records))
	w := &trace.Workload{}
	for _, a := range run.Adapters {
		w.Adapters = append(w.Adapters, trace.Adapter{Name: a.Name, Rank: a.Rank})
	}
	for i := range run.Records {
		r := &run.Records[i]
		switch {
		case r.Status != record.OK:
			report.Drop("the request failed", i+1)
		case r.Prompt < 1 || r.Output < 1:
			report.Drop("no prompt or output tokens", i+1)
		default:
			w.Requests = append(w.Requests, trace.Request{Arrival: r.Sent, Adapter: r.Adapter, Prompt: r.Prompt,
				Output: r.Output})
		}
	}
	if len(w.Requests) == 0 {
		return nil, nil, fmt.Errorf("%s: none of its %d requests succeeded", path, len(run.Records))
	}
	slices.SortStableFunc(w.Requests, func(a, b trace.Request) int {
		switch {
		case a.Arrival < b.Arrival:
			return -1
		case a.Arrival > b.Arrival:
			return 1
		}
		return 0
	})
	first := w.Requests[0].Arrival
	for i := range w.Requests {
		w.Requests[i].ID, w.Requests[i].Arrival = int64(i), w.Requests[i].Arrival-first
	}
	report.Kept = int64(len(w.Requests))
	return w, report, nil
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

func clientOf(run *importer.Imported) string {
	if run.Client != "" {
		return run.Client
	}
	return "a benchmark client"
}

// isSaved says whether a file is a workload that lorasim saved, rather than a log of another program.
func isSaved(path string) (bool, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return true, nil // let the reader say what is wrong; a pipe cannot be read twice
	}
	var header []string
	switch {
	case strings.HasSuffix(strings.ToLower(path), ".arrow"):
		return true, nil
	case table.IsParquet(path):
		var err error
		if header, err = table.ParquetColumns(path); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
	default:
		line, err := firstLine(path)
		if err != nil {
			return false, err
		}
		header = strings.FieldsFunc(strings.TrimSpace(line),
			func(r rune) bool { return strings.ContainsRune(`,"{}: `, r) })
	}
	has := func(name string) bool { return slices.Contains(header, name) }
	return has("arrival_s") && has("id") && has("prompt_tokens") && has("output_tokens") && !has("sent_s"), nil
}

// firstLine is the beginning of a file, to the end of its first line.
func firstLine(path string) (string, error) {
	f, err := textfile.OpenText(path, nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(io.LimitReader(f, 1<<20), 1<<20).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return line, nil
}
