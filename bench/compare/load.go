package compare

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/importer"
	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/bench/sweep"
	"lorasim/internal/format"
	"lorasim/internal/record"
)

// Run is one column of a comparison: a run, or several of them that differ in
// their seed alone.
type Run struct {
	Name   string   `json:"name"`   // short, unique within a comparison: "A", "B", ...
	Source string   `json:"source"` // sim, live, log, records or sweep
	File   string   `json:"file"`
	Line   int      `json:"line,omitempty"` // in a log; 0: none
	What   string   `json:"what"`           // what the run was, in a few words
	Seeds  []string `json:"seeds"`
	Notes  []string `json:"notes,omitempty"`
	// Streamed says whether replies were read as they came; if not, TTFT is E2E.
	Streamed record.Streaming `json:"-"`
	Asked    bool             `json:"-"` // output tokens are those asked for, not those that came
	// Results is one result for each seed; nil for a sweep.
	Results []*result.Result `json:"-"`

	sampling  stats.Sampling       // what the seeds draw
	dataset   string               // "": unknown
	stated    float64              // rate of arrivals, requests/s; 0: unknown
	measured  float64              // the same, as it was
	warmup    bool                 // of a sweep: the runs leave out a warm-up
	numbers   [][]result.Value     // one list for each seed
	completed []result.Completion  // one for each seed
	values    map[string][]float64 // by metric: one for each seed
	order     []string             // names of values, as first seen
}

// Load reads runs from files of any kind: result files and JSON lines, logs of
// serving benchmarks (each block is a run), files of request records, and
// folders of sweeps (each combination of settings and policy is a run). Requests
// are held to an SLO. Results that differ in their seed alone become one run.
// Warnings say what in a log was not understood.
func Load(paths []string, slo result.SLO) (runs []*Run, warnings []string, err error) {
	for _, p := range paths {
		var rs []*Run
		kind, err := kindOf(p)
		switch {
		case err != nil:
		case kind == sweepFolder:
			rs, err = loadSweep(p)
		case kind == recordsFile:
			rs, err = loadRecords(p, slo)
		default:
			var ws []importer.Warning
			rs, ws, err = loadResults(p, slo)
			for _, w := range ws {
				warnings = append(warnings, w.String())
			}
		}
		if err != nil {
			return nil, nil, err
		}
		runs = append(runs, rs...)
	}
	runs = joinSeeds(runs)
	for i, r := range runs {
		r.Name = letter(i)
	}
	return runs, warnings, nil
}

type kind int

const (
	resultsFile kind = iota
	recordsFile
	sweepFolder
)

// kindOf looks at a path: records have their own endings, but that JSON lines
// may be records or results.
func kindOf(path string) (kind, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s does not exist, expected the folder of a sweep, or a file of results or records", path)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return 0, err
	case sweep.IsDir(path):
		return sweepFolder, nil
	case st.IsDir():
		return 0, fmt.Errorf("%s is a folder without a sweep", path)
	case slices.Contains([]string{".parquet", ".arrow", ".csv"}, strings.ToLower(filepath.Ext(path))):
		return recordsFile, nil
	}
	line, err := bufio.NewReaderSize(f, 1<<16).ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	var row map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimSpace(line), &row) == nil && row["arrival_s"] != nil && row["adapter"] != nil {
		return recordsFile, nil
	}
	return resultsFile, nil
}

// letter names columns as spreadsheets do: A, ..., Z, AA, ...
func letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return letter(i/26-1) + letter(i%26)
}

func loadResults(path string, slo result.SLO) ([]*Run, []importer.Warning, error) {
	imported, warnings, err := importer.Files([]string{path})
	if err != nil {
		return nil, nil, err
	}
	var runs []*Run
	for _, m := range imported {
		m.Result.CountGood(slo)
		r := FromResult("", m.Result)
		r.File = path
		if m.Layout != "" { // a block; one result in a JSON file needs no line
			r.Line = m.Line
		}
		rate := ""
		if m.SectionRate != "" && m.RequestRate == 0 {
			rate = "rate " + m.SectionRate
		}
		r.What = joinKnown(r.What, rate, m.Who(" / "), m.Strategy)
		r.Notes = append(r.Notes, m.Notes...)
		n := sentRate(m)
		if n > 0 {
			r.measured = n
		}
		if n > 0 && math.Abs(n/float64(m.RequestRate)-1) > 0.1 {
			r.Notes = append(r.Notes, fmt.Sprintf("not the stated rate but the trace governed: %.2f requests/s were sent", n))
		}
		runs = append(runs, r)
	}
	return runs, warnings, nil
}

func joinKnown(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ", ")
}

// sentRate is the rate at which the log says that requests were sent, where it
// also states another; 0: it does not tell.
func sentRate(m *importer.Imported) float64 {
	n := int64(0)
	for _, c := range m.ModelCounts {
		n += c
	}
	if m.LastArrival <= 0 || !(m.RequestRate > 0) || m.RequestRate == result.Unlimited() {
		return 0
	}
	return float64(n) / m.LastArrival
}

// loadRecords derives the metrics of a file of request records.
func loadRecords(path string, slo result.SLO) ([]*Run, error) {
	rd, err := records.Open(path)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	c := result.NewCollector(result.Options{SLO: slo})
	gaps := false
	streamed := map[record.Streaming]bool{}
	for {
		var q record.Request
		err := rd.Read(&q)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		gaps = gaps || q.Gaps != nil
		if q.Status == record.OK && q.Streamed == record.StreamingUnknown && q.FirstToken < q.Finish {
			q.Streamed = record.Streamed // it saw its first token before the last
		}
		streamed[q.Streamed] = true
		c.Done(&q)
		c.AddGaps(&q)
	}
	meta := result.Meta{}
	if streamed[record.Streamed] != streamed[record.NotStreamed] {
		meta.Streamed = record.StreamingIf(streamed[record.Streamed])
	}
	res := c.Result(meta, nil)
	if !gaps { // the times of tokens are not known: absent, not zero
		res.Metrics.Delete(result.MaxOutputTokensPerS)
		for m := result.MeanITL; m <= result.MaxITL; m++ {
			res.Metrics.Delete(m)
		}
	}
	r := FromResult("", res)
	r.File = path
	r.Source, r.What = "records", "request records"
	return []*Run{r}, nil
}

// maxSweepRuns is the number of combinations of a sweep that can stand side by
// side.
const maxSweepRuns = 26

func loadSweep(path string) (runs []*Run, err error) {
	d, err := sweep.Open(path)
	if err != nil {
		return nil, err
	}
	if n := len(d.Cells) / len(d.Seeds); n > maxSweepRuns {
		return nil, fmt.Errorf("%s: %d combinations of settings and policy, at most %d fit side by side; see lorasim sweep merge", path, n, maxSweepRuns)
	}
	var last *Run
	for i := range d.Cells {
		c := &d.Cells[i]
		if i%len(d.Seeds) == 0 {
			var parts []string
			for k, a := range d.Axes {
				parts = append(parts, a.Leaf()+" "+c.Values[k])
			}
			last = FromValues("", nil, nil)
			last.File, last.What = path, strings.Join(append(parts, c.Policy), ", ")
			if sc, err := d.ScenarioOf(c); err == nil {
				last.warmup = sc.Warmup() != result.Warmup{}
				last.sampling, last.stated = sc.Sampling(), max(float64(sc.Meta(last.dataset).RequestRate), 0)
			}
			runs = append(runs, last)
		}
		r, err := d.ReadCell(c)
		if err != nil {
			return nil, fmt.Errorf("%s is not complete (see lorasim sweep status): %w", path, err)
		}
		last.add(r.Values)
		last.Seeds = append(last.Seeds, strconv.FormatUint(c.Seed, 10))
	}
	return runs, nil
}

// FromValues returns a run of a comparison for the numbers of several seeds.
func FromValues(name string, seeds []string, numbers [][]result.Value) *Run {
	r := &Run{Name: name, Source: "sweep", Seeds: seeds, values: map[string][]float64{}}
	for _, values := range numbers {
		r.add(values)
	}
	return r
}

// FromResult returns a run of a comparison for a result.
func FromResult(name string, res *result.Result) *Run {
	r := FromValues(name, []string{""}, [][]result.Value{result.Values(res)})
	r.Source, r.Results, r.What, r.Streamed = string(cmp.Or(res.Source, result.Log)), []*result.Result{res}, describe(res), res.Streamed
	r.dataset, r.stated, r.measured = res.DatasetName, max(float64(res.RequestRate), 0), measuredRate(res)
	if sc, ok := scenario.FromConfig(res.Config); ok {
		r.sampling = sc.Sampling()
	}
	if res.Seed != nil {
		r.Seeds[0] = strconv.FormatInt(*res.Seed, 10)
	}
	if r.Streamed == record.NotStreamed {
		r.Notes = append(r.Notes, "the client did not stream: its TTFT is E2E, and its TTFT, TPOT and ITL are not comparable with those of one that did")
	}
	r.Notes = append(r.Notes, res.Shortfall()...)
	out, ok1 := res.Metrics.Get(result.TotalOutputTokens)
	got, ok2 := res.Metrics.Get(result.TotalOutputTokensRetokenized)
	if r.Asked = ok1 && ok2 && got < 0.8*out; r.Asked {
		r.Notes = append(r.Notes, "fewer tokens came than it counts as generated: its token throughputs count what was asked for")
	}
	return r
}

// Stationarity says whether the run reached a steady state; of several seeds, as the
// cells of sweeps do.
func (r *Run) Stationarity() steady.Stationarity {
	return result.StationarityOf(func(name string) []float64 {
		var out []float64
		for _, values := range r.numbers {
			out = append(out, (&sweep.CellResult{Values: values}).Value(name))
		}
		return out
	})
}

// MarshalJSON adds the state to the fields.
func (r *Run) MarshalJSON() ([]byte, error) {
	type plain Run // without this method
	reached := r.Stationarity()
	return json.Marshal(struct {
		*plain
		State       string         `json:"state,omitempty"`
		Sustainable *format.Number `json:"sustainable_rate,omitempty"`
	}{(*plain)(r), string(reached.State), known(reached.Sustains)})
}

func known(x float64) *format.Number {
	if !format.IsFinite(x) {
		return nil
	}
	n := format.Number(x)
	return &n
}

// add enters the numbers of one seed.
func (r *Run) add(values []result.Value) {
	r.numbers = append(r.numbers, values)
	r.completed = append(r.completed, result.CompletionOf(func(name string) float64 {
		return (&sweep.CellResult{Values: values}).Value(name)
	}))
	for _, v := range values {
		if result.Hidden(v.Name) {
			continue
		}
		if r.values[v.Name] == nil {
			r.order = append(r.order, v.Name)
		}
		r.values[v.Name] = append(r.values[v.Name], v.Value)
	}
}

// describe tells what a run was.
func describe(res *result.Result) string {
	config := func(key string) string {
		if v := res.Config[key]; v != nil {
			return fmt.Sprint(v)
		}
		return ""
	}
	architecture := config("inference_architecture")
	if architecture == res.Backend {
		architecture = ""
	}
	parts := []string{res.Backend, cmp.Or(res.Policy, config("routing.policy"), architecture)}
	workers := config("cluster.num_workers")
	if workers != "" {
		parts = append(parts, workers+" workers")
	}
	if res.RequestRate != 0 {
		parts = append(parts, "rate "+res.RequestRate.String())
	}
	if res.MaxConcurrency > 0 {
		parts = append(parts, fmt.Sprintf("concurrency %d", res.MaxConcurrency))
	}
	// settings are told above where the whole configuration is known
	if s := res.Scenario.Summary; workers == "" || !strings.Contains(s, "=") && s != "defaults" {
		parts = append(parts, s)
	}
	return joinKnown(parts...)
}

// joinSeeds makes one run of results that differ in their seed alone.
func joinSeeds(runs []*Run) (out []*Run) {
	by := map[string]*Run{}
	for _, r := range runs {
		key := seedKey(r)
		if first := by[key]; key != "" && first != nil && !slices.Contains(first.Seeds, r.Seeds[0]) {
			first.Results = append(first.Results, r.Results...)
			first.Seeds = append(first.Seeds, r.Seeds...)
			first.add(result.Values(r.Results[0]))
			continue
		}
		if by[key] == nil {
			by[key] = r
		}
		out = append(out, r)
	}
	return out
}

// seedKey is the same for results that differ in their seed alone; "" where a
// result does not tell enough.
func seedKey(r *Run) string {
	if len(r.Results) != 1 || r.Seeds[0] == "" || len(r.Results[0].Config) == 0 {
		return ""
	}
	res := r.Results[0]
	config, err := json.Marshal(res.Config)
	if err != nil {
		return "" // an infinite number, say; then it stays by itself
	}
	return fmt.Sprintf("%s|%s|%s|%s|%d|%s", res.Source, res.Backend, res.DatasetName, res.RequestRate, res.MaxConcurrency, config)
}
