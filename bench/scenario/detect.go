package scenario

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// DescribeFile makes the scenario read a file of any kind that OpenWorkload
// knows, as it is: at its own times and rates, without token counts that are
// not its own. given tells which flags the user gave; those stay.
func (s *Scenario) DescribeFile(path string, given func(flag string) bool) error {
	w := &s.Workload
	kind := w.TraceName
	if !given("trace-name") {
		var err error
		if kind, err = detect(path); err != nil {
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
	if !given("lengths") {
		w.Lengths = "auto"
		if kind == "azure_v1" || kind == "azure_v2" {
			w.Lengths = NoLengths
		}
	}
	return nil
}

// detect finds out what kind of trace a file is: by its name where that is
// telling, else by its first line.
func detect(path string) (string, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet", ".arrow":
		return "workload", nil
	case ".rar":
		return "azure_v2", nil
	}
	line, err := firstLine(path)
	if err != nil {
		return "", err
	}
	for _, k := range []struct{ begins, kind string }{
		{"HashOwner,", "azure_v1"},
		{"app,func,", "azure_v2"},
		{"TIMESTAMP,", "azure_llm"},
		{"Timestamp,", "burstgpt"},
	} {
		if strings.HasPrefix(line, k.begins) {
			return k.kind, nil
		}
	}
	switch {
	case strings.HasPrefix(line, "time_s,") && strings.Contains(line, "adapter"):
		return "alibaba_genai", nil
	case strings.HasPrefix(line, "{") && strings.Contains(line, `"input_length"`):
		return "mooncake", nil
	case strings.Contains(line, "arrival_s"):
		return "workload", nil
	}
	return "", fmt.Errorf("%s:1: not the header of a known trace or workload; say which with --trace-name (%s)", path, strings.Join(Traces(), ", "))
}

func firstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return "", fmt.Errorf("%s is a folder; say which trace it holds with --trace-name (%s)", path, strings.Join(Traces(), ", "))
	}
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		zr, err := gzip.NewReader(f)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		defer zr.Close()
		r = zr
	}
	const longest = 1 << 20 // no header is longer
	line, err := bufio.NewReader(io.LimitReader(r, longest)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return strings.TrimPrefix(line, "\ufeff"), nil
}
