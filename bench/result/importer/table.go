package importer

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"lorasim/bench/result"
)

// tables are the tables of clients (CSV), by columns that each of them has.
var tables = []struct {
	columns []string
	read    func(rows []map[string]string) ([]*Imported, error)
}{
	{[]string{"Request Count", "Failure Count"}, readLocustTable},
	{[]string{"Metric", "avg"}, readAIPerfTable},
	{[]string{"completed", "duration"}, readLines}, // summary.csv of vllm bench sweep
}

// isTable reports whether a text begins with the names of the columns of a client's table.
func isTable(head []byte) bool {
	line, _, _ := strings.Cut(string(head), "\n")
	return tableOf(strings.Split(strings.TrimSpace(line), ",")) >= 0
}

// tableOf returns the index of the table with the columns; -1: none.
func tableOf(names []string) int {
	for i := range names {
		names[i] = strings.Trim(names[i], `"`)
	}
	for i, t := range tables {
		if !slices.ContainsFunc(t.columns, func(name string) bool { return !slices.Contains(names, name) }) {
			return i
		}
	}
	return -1
}

// readTable reads a client's table.
func readTable(in io.Reader, name string) ([]*Imported, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord = -1
	names, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	names[0] = strings.TrimPrefix(names[0], "\ufeff")
	kind := tableOf(names)
	var rows []map[string]string
	for {
		values, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		row := map[string]string{}
		for i, v := range values {
			if i < len(names) {
				row[names[i]] = strings.TrimSpace(v)
			}
		}
		rows = append(rows, row)
	}
	if kind < 0 || len(rows) == 0 {
		return nil, fmt.Errorf("%s: the table has no rows", name)
	}
	runs, err := tables[kind].read(rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, m := range runs {
		m.File, m.Line = name, i+2
	}
	return runs, nil
}

// readLines reads rows with the fields of a JSON line.
func readLines(rows []map[string]string) (runs []*Imported, err error) {
	for i, row := range rows {
		text, f, err := objectOf(row)
		if err != nil {
			return nil, err
		}
		found, err := readLine(text, f, fmt.Sprintf("row %d", i+1))
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
		runs = append(runs, found...)
	}
	return runs, nil
}

// aiperfName splits a name such as "Time to First Token (ms)" into words and unit.
var aiperfName = regexp.MustCompile(`^([^(]+?)\s*(?:\(([^)]*)\))?$`)

// readAIPerfTable reads the table of AIPerf or GenAI-Perf, with a row for each metric, as their JSON.
func readAIPerfTable(rows []map[string]string) ([]*Imported, error) {
	f := fields{}
	for _, row := range rows {
		of := aiperfName.FindStringSubmatch(row["Metric"])
		if of == nil || row["Metric"] == "Metric" { // the head of a second table
			continue
		}
		v := figures{"unit": of[2]}
		for name, text := range row {
			if x := result.LooseFloat(strings.ReplaceAll(text, ",", "")); name != "Metric" && text != "" {
				v[name] = x
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			continue // a figure that is no number
		}
		f[strings.ToLower(strings.ReplaceAll(of[1], " ", "_"))] = text
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return readAIPerf(text, f, "")
}
