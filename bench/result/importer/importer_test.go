package importer

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/result"
	"lorasim/internal/shareddata"
	"lorasim/trace"
)

// realLogs reads all real logs, in the order of their names.
func realLogs(t *testing.T) map[string][]*Imported {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(shareddata.Path(t, "logs"), "*.log"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	sort.Strings(paths)
	runs, warnings, err := Files(t.Context(), trace.Files{}, paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Errorf("unexpected warning %s", w)
	}
	byFile := map[string][]*Imported{}
	for _, r := range runs {
		name := filepath.Base(r.File)
		byFile[name] = append(byFile[name], r)
	}
	return byFile
}

// originalBlock cuts the block that begins on a line out of a file, with plain
// text search.
func originalBlock(t *testing.T, path string, line int) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for end := line; end < len(lines); end++ {
		if strings.TrimSpace(lines[end]) == strings.Repeat("=", 50) {
			return "\n" + strings.Join(lines[line-1:end+1], "\n") + "\n"
		}
	}
	t.Fatalf("%s: no end of the block on line %d", path, line)
	return ""
}

// All 13 blocks print again byte for byte, both row by row as found and from
// the result in the layout that was recognised.
func TestRealBlocksPrintAgain(t *testing.T) {
	blocks := 0
	layouts := map[result.Layout]int{}
	for _, runs := range realLogs(t) {
		for _, run := range runs {
			blocks++
			layouts[run.Layout]++
			want := originalBlock(t, run.File, run.Line)
			var again, laidOut bytes.Buffer
			if err := run.Print(&again); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, again.String()); d != "" {
				t.Errorf("%s:%d printed again (-log +printed):\n%s", run.File, run.Line, d)
			}
			if err := run.WriteBlock(&laidOut, run.Layout); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(filepath.Base(run.File), "deepseek_v3") { // that log lost the ends of its lines
				want, laidOut = trimLines(want), *bytes.NewBufferString(trimLines(laidOut.String()))
			}
			if d := cmp.Diff(want, laidOut.String()); d != "" {
				t.Errorf("%s:%d in layout %s (-log +printed):\n%s", run.File, run.Line, run.Layout, d)
			}
			if run.Truncated {
				t.Errorf("%s:%d is cut short", run.File, run.Line)
			}
		}
	}
	if d := cmp.Diff(map[result.Layout]int{result.SGLang054: 4, result.SGLang056: 3, result.LoRA: 6},
		layouts); d != "" || blocks != 13 {
		t.Errorf("%d blocks, layouts (-want +got):\n%s", blocks, d)
	}
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Every value agrees with a table of the same blocks that was extracted
// independently.
func TestRealValues(t *testing.T) {
	f, err := os.Open(shareddata.Path(t, "measured/log_blocks.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	runs := realLogs(t)
	compared := 0
	for _, line := range table[1:] {
		cell := map[string]string{}
		for i, name := range table[0] {
			cell[name] = line[i]
		}
		block, _ := strconv.Atoi(cell["block"])
		run := runs[cell["log"]][block]
		for name, want := range cell {
			if name == "log" || name == "block" {
				continue
			}
			if got := value(run, name); got != want {
				t.Errorf("%s block %d: %s = %q, want %q", cell["log"], block, name, got, want)
			}
			if want != "" {
				compared++
			}
		}
	}
	if len(table) != 14 || compared < 400 {
		t.Errorf("compared %d values of %d blocks", compared, len(table)-1)
	}
}

// value returns what a run says for a column of the table, in the table's form.
func value(run *Imported, column string) string {
	unless := func(zero bool, s string) string {
		if zero {
			return ""
		}
		return s
	}
	switch column {
	case "server":
		return run.Server
	case "client":
		return run.Client
	case "section_rate":
		return run.SectionRate
	case "planned_input_tokens":
		return unless(run.InputTokens == 0, fmt.Sprint(run.InputTokens))
	case "planned_output_tokens":
		return unless(run.OutputTokens == 0, fmt.Sprint(run.OutputTokens))
	case "per_model_counts":
		return unless(run.ModelCounts == nil, strings.ReplaceAll(fmt.Sprint(run.ModelCounts), " ", ", "))
	case "last_arrival_s":
		return unless(run.LastArrival == 0, fmt.Sprint(run.LastArrival))
	}
	if name, ok := strings.CutPrefix(column, "arg_"); ok {
		v, there := run.Config[name]
		return unless(!there, pythonText(v))
	}
	if row := known[column+":"]; run.seen[row.Label] {
		text, _ := run.Value(row)
		return text
	}
	return ""
}

// pythonText prints a value as Python's str does.
func pythonText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case float64:
		return result.Rate(v).String() + map[bool]string{true: "0.0"}[v == 0]
	}
	return fmt.Sprint(v)
}

// The metadata of the real runs.
func TestRealMeta(t *testing.T) {
	runs := realLogs(t)
	lora := runs["lora_static_azure_v2_rates.log"][0]
	if lora.DatasetName != "azure_v2" || lora.RequestRate != 2 || *lora.Seed != 1 || *lora.RandomInputLen != 1024 ||
		*lora.RandomOutputLen != 128 || *lora.RandomRangeRatio != 0 || lora.MaxConcurrency != 0 ||
		lora.Source != result.Log {
		t.Errorf("%+v", lora.Meta)
	}
	if lora.Metrics.Has(result.Concurrency) || lora.Metrics.Has(result.MaxITL) {
		t.Error("metrics without a row are there")
	}
	if last := runs["lora_static_azure_v2_rates.log"][5]; last.Config != nil || last.RequestRate != 64 ||
		last.DatasetName != "" {
		t.Errorf("the last block has no arguments of its own: %+v", last.Meta)
	}
	npu := runs["qwen3_coder_480b_npu.log"][0]
	if npu.DatasetName != "random" || npu.RequestRate != result.Unlimited() || npu.MaxConcurrency != 80 ||
		*npu.RandomRangeRatio != 1 {
		t.Errorf("%+v", npu.Meta)
	}
}
