// Package store saves workloads and reads them back, so that a simulated and a
// live run replay exactly the same requests. The extension of a file's name
// says its format:
//
//	.csv      for people and spreadsheets; may be gzip-compressed (.csv.gz) to read
//	.jsonl    one JSON object per request; .jsonl.gz too
//	.parquet  Apache Parquet, small and typed
//	.arrow    Apache Arrow IPC file, fastest
//
// All hold the same columns:
//
//	id             ascending whole number
//	arrival_s      s since the start of the workload, never falling
//	adapter        index, or -1 for the base model; csv and jsonl may name adapters
//	               instead, and leave the name empty for the base model
//	prompt_tokens  >= 1
//	output_tokens  >= 1
//	max_new_tokens what the client asks for, 0: output_tokens; optional in csv and jsonl
//	rank           LoRA rank of the adapter; optional, csv and jsonl only
//
// Parquet and Arrow files carry the adapters, with names and ranks, as JSON
// under the key "lorasim.adapters" of the schema's metadata. CSV and JSONL
// files are read twice to find them, unless [ReadOptions] states them. Parquet
// and Arrow files of other programs are read if they hold these columns as plain
// numbers (int32 or int64, arrival_s as double) without empty values.
//
//	n, err := store.Write("w.parquet", src, store.WriteOptions{})
//
//	r, err := store.Open("w.parquet", store.ReadOptions{})
//	defer r.Close()
//	w, err := trace.Collect(r)
//
// Reading and writing stream: memory does not grow with the file.
package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/trace"
)

// Names of the columns.
const (
	idColumn      = "id"
	arrivalColumn = "arrival_s"
	adapterColumn = "adapter"
	promptColumn  = "prompt_tokens"
	outputColumn  = "output_tokens"
	maxNewColumn  = "max_new_tokens"
	rankColumn    = "rank"
)

// maxAdapters bounds the number of adapters that a file may imply by its
// largest index or state, which would otherwise decide how much memory to take.
const maxAdapters = 1 << 20

// ReadOptions of Open.
type ReadOptions struct {
	// Adapters of the workload; they replace those of the file. nil: as the
	// file says. A CSV or JSONL file is then read once more before the first
	// request, which a pipe does not allow; adapters that no request uses are
	// unknown, and those without names are called lora0, lora1, ...
	Adapters []trace.Adapter
	// Progress is told the bytes read from the disk so far; where the file is
	// read twice it starts again. Its error ends the reading.
	Progress func(bytesRead int64) error
}

// Reader is a saved workload being read. Readers of Parquet and Arrow files
// are also a [trace.Sized].
type Reader interface {
	trace.Source
	io.Closer
}

// Open opens a saved workload, which must be closed after use. Errors name the
// file, the line (in Parquet and Arrow files the row, from 1) and the column.
// A file without requests is an error.
func Open(path string, o ReadOptions) (Reader, error) {
	switch format(strings.TrimSuffix(path, ".gz")) {
	case ".csv":
		return openText(path, o, newCSV)
	case ".jsonl":
		return openText(path, o, newJSONL)
	case ".parquet":
		return openBinary(path, o, newParquet)
	case ".arrow":
		return openBinary(path, o, newArrow)
	}
	return nil, unknownFormat(path)
}

func format(path string) string { return strings.ToLower(filepath.Ext(path)) }

func unknownFormat(path string) error {
	ext := filepath.Ext(path)
	if ext == "" {
		return fmt.Errorf("%s: no extension to tell the format, expected .csv, .jsonl, .parquet or .arrow", path)
	}
	return fmt.Errorf("%s: %w", path, suggest.Unknown("workload format", ext, []string{".csv", ".jsonl", ".parquet", ".arrow"}))
}

var errEmpty = errors.New("empty workload: it holds no request")

// checker checks the requests of a workload one after the other.
type checker struct {
	adapters int
	last     trace.Request
	n        int64 // requests so far
}

func (c *checker) check(r trace.Request) error {
	if err := r.Check(c.adapters); err != nil {
		return err
	}
	if c.n > 0 && r.Arrival < c.last.Arrival {
		return fmt.Errorf("%s %v comes before that of the request before (%v): requests must be in the order of arrival",
			arrivalColumn, r.Arrival, c.last.Arrival)
	}
	if c.n > 0 && r.ID <= c.last.ID {
		return fmt.Errorf("%s %d is not greater than that of the request before (%d)", idColumn, r.ID, c.last.ID)
	}
	c.last = r
	c.n++
	return nil
}
