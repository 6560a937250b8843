package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// outputs reads what a run left in its folder: text, JSON and CSV. Parquet and Arrow hold the same rows as the CSV.
func outputs(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == "pickers" || path == "policies" || entry.Name() == "cells" {
				return fs.SkipDir
			}
			return nil
		}
		// A manifest holds the scenario as the build writes it, and its hash.
		if ext := filepath.Ext(path); entry.Name() == "manifest.json" || ext == ".parquet" || ext == ".yaml" {
			return nil
		}
		files[path], err = os.ReadFile(filepath.Join(dir, path))
		return err
	})
	return files, err
}

// change is a value that differs; a missing value is "none".
type change struct{ path, old, new string }

func (c change) String() string { return fmt.Sprintf("%s: %s -> %s", c.path, c.old, c.new) }

// adds reports whether the value is a field of JSON or CSV that OLD lacks.
func (c change) adds() bool { return c.old == none && !isText(c.path) }

const none = "none"

// fieldNames returns the names of all fields of JSON and CSV in the files of a run.
func fieldNames(files map[string][]byte) map[string]bool {
	names := map[string]bool{}
	for file, data := range files {
		for path := range fields(file, data) {
			if !isText(path) {
				names[fieldName(path)] = true
			}
		}
	}
	return names
}

var (
	metricRow = regexp.MustCompile(`\bmetric=([^ ]+?)( |\.\w+$)`)
	textLine  = regexp.MustCompile(`^\S+ line \d+$`)
	digits    = regexp.MustCompile(`^\d+$`)
)

func isText(path string) bool { return textLine.MatchString(path) }

// fieldName returns the name of a field: the last key of its path that is no column of estimates or, in a table with a
// row for each metric, the metric.
func fieldName(path string) string {
	if m := metricRow.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	for {
		at := strings.LastIndexAny(path, " .")
		name := path[at+1:]
		if at < 0 || path[at] == ' ' || !digits.MatchString(name) && !slices.Contains(estimates, name) {
			return name
		}
		path = path[:at]
	}
}

// named holds the differences on purpose, as read from named.txt.
type named struct {
	policies []rule
	runs     []rule
	fields   []rule
	moved    []rule
}

type rule struct {
	match  *regexp.Regexp
	to     string // moved: the new path
	reason string
}

// readNamed reads lines of "policy|run|field REGEXP # REASON" and "moved REGEXP PATH # REASON".
func readNamed(path string) (*named, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var n named
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := n.add(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return &n, nil
}

func (n *named) add(line string) error {
	body, reason, ok := strings.Cut(line, " # ")
	words := strings.Fields(body)
	if !ok || len(words) < 2 {
		return errors.New("expected policy, run, field or moved, a regular expression, and the reason behind \" # \"")
	}
	match, err := regexp.Compile(words[1])
	if err != nil {
		return err
	}
	r := rule{match: match, reason: strings.TrimSpace(reason)}
	switch {
	case words[0] == "policy" && len(words) == 2:
		n.policies = append(n.policies, r)
	case words[0] == "run" && len(words) == 2:
		n.runs = append(n.runs, r)
	case words[0] == "field" && len(words) == 2:
		n.fields = append(n.fields, r)
	case words[0] == "moved" && len(words) == 3:
		r.to = words[2]
		n.moved = append(n.moved, r)
	default:
		return fmt.Errorf("%q: expected policy, run or field with REGEXP, or moved REGEXP PATH", body)
	}
	return nil
}

// first returns the reason of the first rule that matches, or "".
func first(rules []rule, text string) string {
	for _, r := range rules {
		if r.match.MatchString(text) {
			return r.reason
		}
	}
	return ""
}

// compare returns the values that differ, and the reasons of those that differ on purpose.
func (n *named) compare(r run, a, b map[string][]byte) (changes []change, reasons []string) {
	for _, name := range slices.Sorted(mapKeys(a, b)) {
		if bytes.Equal(a[name], b[name]) {
			continue
		}
		before, after := fields(name, a[name]), fields(name, b[name])
		moved := map[string]string{}
		for path, value := range before {
			to, reason := n.move(path)
			if moved[to] = value; reason != "" {
				reasons = append(reasons, reason)
			}
		}
		for _, path := range slices.Sorted(mapKeys(moved, after)) {
			c := change{path, value(moved, path), value(after, path)}
			if c.old == c.new || r.clock != nil && r.clock.MatchString(path) {
				continue
			}
			if reason := first(n.fields, path); reason != "" {
				reasons = append(reasons, reason)
				continue
			}
			changes = append(changes, c)
		}
	}
	slices.Sort(reasons)
	return changes, slices.Compact(reasons)
}

// move returns the path that a value of OLD has in NEW.
func (n *named) move(path string) (to, reason string) {
	to = path
	for _, r := range n.moved {
		if r.match.MatchString(to) {
			to, reason = r.match.ReplaceAllString(to, r.to), r.reason
		}
	}
	return to, reason
}

func value(of map[string]string, path string) string {
	if v, ok := of[path]; ok {
		return v
	}
	return none
}

// fields returns every value of a file by its path: FILE KEY.KEY... of JSON, FILE ROW.COLUMN of CSV, FILE LINE of text.
func fields(name string, data []byte) map[string]string {
	of := map[string]string{}
	if filepath.Ext(name) == ".csv" {
		if rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll(); err == nil && len(rows) > 0 {
			for i, row := range rows[1:] {
				cells := map[string]any{}
				for j, cell := range row {
					cells[rows[0][j]] = cell
				}
				for column, cell := range cells {
					of[fmt.Sprintf("%s %s.%s", name, label(i, cells), column)] = cell.(string)
				}
			}
			return of
		}
	}
	if flattened := jsonFields(name, data); flattened != nil {
		return flattened
	}
	for i, line := range strings.Split(string(data), "\n") {
		of[fmt.Sprintf("%s line %d", name, i+1)] = line
	}
	return of
}

// estimates are the columns of a sweep's table, and keys of its JSON, that do not say which number is estimated.
var estimates = strings.Fields("n mean std ci95_low ci95_high baseline diff_n diff_mean diff_ci95_low diff_ci95_high " +
	"diff ratio comparable state")

// label names a row: by its number or, in a table with a row for each metric, by what it is about, so that a new metric
// does not shift the others.
func label(row int, cells map[string]any) string {
	if cells["metric"] == nil {
		return strconv.Itoa(row)
	}
	var parts []string
	for _, column := range slices.Sorted(maps.Keys(cells)) {
		if !slices.Contains(estimates, column) {
			parts = append(parts, fmt.Sprintf("%s=%v", column, cells[column]))
		}
	}
	return strings.Join(parts, " ")
}

// jsonFields flattens a file of one or more JSON values, or returns nil.
func jsonFields(name string, data []byte) map[string]string {
	of := map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // invariant: digits are compared as they are written
	for i := 0; ; i++ {
		var v any
		if err := decoder.Decode(&v); err != nil {
			if i == 0 || decoder.More() {
				return nil
			}
			return of
		}
		prefix := name + " "
		if cells, ok := v.(map[string]any); ok && (i > 0 || cells["metric"] != nil) {
			prefix += label(i, cells) + "."
		} else if i > 0 {
			prefix += strconv.Itoa(i) + "."
		}
		flatten(of, prefix, v)
	}
}

func flatten(of map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(of, path+key+".", value)
		}
	case []any:
		for i, value := range v {
			flatten(of, path+strconv.Itoa(i)+".", value)
		}
	default:
		of[strings.TrimSuffix(path, ".")] = fmt.Sprint(v)
	}
}

// mapKeys returns the keys of all maps, each once.
func mapKeys[V any](all ...map[string]V) iter.Seq[string] {
	union := map[string]bool{}
	for _, m := range all {
		for key := range m {
			union[key] = true
		}
	}
	return maps.Keys(union)
}
