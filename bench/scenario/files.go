package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
	"lorasim/trace/requestlog"
	"lorasim/trace/store"
)

func (s *Scenario) openFile(ctx context.Context, in *Input, progress reading) error {
	w := &s.Workload
	saved, err := s.isSaved(ctx, w.File)
	switch {
	case err != nil:
		return err
	case !saved:
		return s.openLog(ctx, in, progress)
	}
	r, err := s.openSaved(ctx, store.ReadOptions{Progress: progress.of(s.Files.FS, w.File),
		PrefixBlock: int32(w.PrefixBlock), Files: s.Files})
	if err != nil {
		return err
	}
	in.Source, in.file = r, r
	return s.finishFile(in)
}

// openSaved opens a saved workload with the adapters that it states. A pipe cannot be read twice to find them, and a
// Parquet or Arrow file of another program may state none: their adapters are those of the scenario.
func (s *Scenario) openSaved(ctx context.Context, o store.ReadOptions) (store.Reader, error) {
	w := &s.Workload
	info, err := textfile.Stat(o.Files.FS, w.File)
	if pipe := err == nil && !info.Mode().IsRegular() && !info.IsDir(); !pipe || w.NumAdapters.Value == 0 {
		r, err := store.Open(ctx, w.File, o)
		if !errors.Is(err, store.ErrNoAdapters) || w.NumAdapters.Value == 0 {
			return r, err
		}
	}
	o.Adapters = s.adapters(w.NumAdapters.Value)
	return store.Open(ctx, w.File, o)
}

// openLog opens a log of another program as the workload.
func (s *Scenario) openLog(ctx context.Context, in *Input, progress reading) error {
	w := &s.Workload
	workload, report, err := measuredRun(ctx, s.Files, w.File)
	if workload == nil && err == nil {
		workload, report, err = ReadLog(ctx, []string{w.File},
			requestlog.Options{Seed: s.Seed, Progress: progress.of(s.Files.FS, w.File), Files: s.Files})
	}
	switch {
	case err != nil:
		return err
	case report.NoAdapter && !w.baseOnly() && !s.Described:
		return withoutAdapter(w.File, report.Candidates)
	case w.baseOnly() && len(workload.Adapters) == 1: // the log names the base model
		workload.Adapters = nil
		for i := range workload.Requests {
			workload.Requests[i].Adapter = trace.BaseModel
		}
	}
	if s.LogRead != nil {
		s.LogRead(w.File, report)
	}
	in.Source = workload.Source()
	return s.finishFile(in)
}

// withoutAdapter is the error for a log of which no column names the adapters.
func withoutAdapter(path string, candidates []string) error {
	name, may := "NAME", ""
	if len(candidates) > 0 {
		name, may = candidates[0], "; columns that may: "+strings.Join(candidates[:min(len(candidates), 5)], ", ")
	}
	return fmt.Errorf("%s: no column names the adapters%s. Import the log first "+
		"(lorasim trace import %s -o w.parquet --columns adapter=%s), or give --num-adapters 0 if all requests use the base model",
		path, may, path, name)
}

// finishFile gives the requests of a file the adapters of the run, and other times where the scenario says so.
func (s *Scenario) finishFile(in *Input) (err error) {
	in.ofFile = len(in.Source.Adapters())
	if in.Source, err = s.reconcile(in.Source); err == nil {
		in.Source, err = s.drawnFrom(in.Source)
	}
	return err
}

// withAdapters is a source with other adapters.
type withAdapters struct {
	trace.Source
	adapters []trace.Adapter
}

func (w withAdapters) Adapters() []trace.Adapter { return w.adapters }

// isSaved reports whether a file is a workload that lorasim saved, rather than a log of another program.
func (s *Scenario) isSaved(ctx context.Context, path string) (bool, error) {
	files := table.Files(s.Files)
	if info, err := textfile.Stat(files.FS, path); err != nil || !info.Mode().IsRegular() {
		return true, nil // let the reader say what is wrong; a pipe cannot be read twice
	}
	var header []string
	switch {
	case strings.HasSuffix(strings.ToLower(path), ".arrow"):
		return true, nil
	case table.IsParquet(files, path):
		var err error
		if header, err = table.ParquetColumns(files, path); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
	default:
		line, err := firstLine(ctx, files.FS, path)
		if err != nil {
			return false, err
		}
		header = strings.FieldsFunc(line,
			func(r rune) bool { return strings.ContainsRune(`,"{}: `, r) })
	}
	has := func(name string) bool { return slices.Contains(header, name) }
	measured := has("sent_s") || has("ttft_s") || has("e2e_s") // no workload has latencies
	return has("arrival_s") && has("id") && has("prompt_tokens") && has("output_tokens") && !measured, nil
}

// DescribeFile makes the scenario read a file of any kind that OpenWorkload reads. The workload keeps the times and
// rates of the file, and gets no token counts that the file does not state. given reports whether the user gave a
// flag; DescribeFile keeps the values of those flags.
func (s *Scenario) DescribeFile(ctx context.Context, path string, given func(flag string) bool) (err error) {
	w := &s.Workload
	s.Described = true
	kind := w.TraceName
	if !given("trace-name") {
		if kind, err = detect(ctx, s.Files.FS, path); err != nil {
			return err
		}
	}
	if kind == "workload" {
		w.File = path
		return nil
	}
	w.TraceName, w.TracePath = kind, path
	if !given("trace-total-rate") {
		w.TraceTotalRate = 0
	}
	if kind == "azure_v2" && !given("trace-replay") && w.Compat == "" {
		w.TraceReplay = "vanilla"
	}
	if given("lengths") {
		return nil
	}
	if kind == "azure_v1" || kind == "azure_v2" {
		return s.Set("lengths", NoLengths)
	}
	return s.Set("lengths", autoWord)
}

// detect finds out what kind of trace a file is: by its name where that is
// telling, else by its first line.
func detect(ctx context.Context, fsys fs.FS, path string) (string, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet", ".arrow":
		return "workload", nil
	case ".rar":
		return "azure_v2", nil
	}
	const names = "azure_v1, azure_v2, azure_llm, burstgpt, mooncake, qwen_bailian, alibaba_genai"
	if st, err := textfile.Stat(fsys, path); err == nil && st.IsDir() {
		return "", fmt.Errorf("%s is a folder; say which trace it holds with --trace-name (%s)", path, names)
	}
	line, err := firstLine(ctx, fsys, path)
	if err != nil {
		return "", err
	}
	for _, k := range []struct{ begins, has, kind string }{
		{"HashOwner,", "", "azure_v1"}, {"app,func,", "", "azure_v2"}, {"TIMESTAMP,", "", "azure_llm"},
		{"Timestamp,", "", "burstgpt"},
		{"time_s,", "adapter", "alibaba_genai"}, {"{", `"parent_chat_id"`, "qwen_bailian"},
		{"{", `"input_length"`, "mooncake"}, {"", "arrival_s", "workload"},
	} {
		if strings.HasPrefix(line, k.begins) && strings.Contains(line, k.has) {
			return k.kind, nil
		}
	}
	return "workload", nil // a log of another program
}

// firstLine is the first line of a text file, or what an empty file has: nothing. No header is longer than a MiB.
func firstLine(ctx context.Context, fsys fs.FS, path string) (string, error) {
	f, err := textfile.OpenIn(ctx, fsys, path, nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := f.Line()
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(line[:min(len(line), 1<<20)]), nil
}
