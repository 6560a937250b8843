// Package store saves workloads and reads them back, so that a simulation and a live run replay exactly the same
// requests. [Write] saves a workload; [Open] reads one. The extension of the file name selects the format:
//
//	.csv      for people and spreadsheets; may be gzip-compressed (.csv.gz) to read
//	.jsonl    one JSON object per request; .jsonl.gz too
//	.parquet  Apache Parquet, small and typed
//	.arrow    Apache Arrow IPC file, fastest
//
// All formats hold the same columns:
//
//	id             ascending whole number
//	arrival_s      s since the start of the workload, never falling
//	adapter        index, or -1 for the base model; csv and jsonl may name adapters
//	               instead, and leave the name empty for the base model. If an adapter
//	               is not a number, all are names; in csv, '42 is a name
//	prompt_tokens  >= 1
//	output_tokens  >= 1
//	max_new_tokens max_new_tokens of the request, 0: output_tokens; optional in csv and jsonl
//	rank           LoRA rank of the adapter; optional, csv and jsonl only
//	hash_ids       list of whole numbers, not in csv: ids of the blocks of the prompt
//	               (see [ReadOptions]); equal ids after equal ones are equal tokens
//	hash_block     tokens of a block; absent: the number in [ReadOptions], 512 by default
//	text           number of the text that begins with the prompt, see [trace.Text]
//	text_start     tokens before the text
//	text_parent    number of the text before it; -1: none
//	reply          1: the text also begins with prompt and reply, so later prompts may
//	               repeat the reply
//
// The last six are optional; a value of a text or hash_ids may be absent (-1; null).
//
// Parquet and Arrow files hold the adapters, with names and ranks, as JSON under the key "lorasim.adapters" of the
// schema's metadata. CSV and JSONL files are read twice to find the adapters, unless [ReadOptions] lists them.
// Parquet and Arrow files of other programs are read if they hold these columns as plain numbers (int32 or int64,
// arrival_s as double) without null values.
//
//	n, err := store.Write("w.parquet", src, store.WriteOptions{})
//
//	r, err := store.Open(ctx, "w.parquet", store.ReadOptions{})
//	defer r.Close()
//	w, err := trace.Collect(r)
//
// Reading and writing stream. Memory does not grow with the file, except with the texts of the prompts that are
// read.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// ReadOptions are the options of Open.
type ReadOptions struct {
	// Adapters replaces the adapters of the file; nil: the adapters of the file. With nil, a CSV or JSONL file
	// is read once more before the first request, which is impossible for a pipe. Such a file does not hold
	// adapters without requests, and adapters without names are called lora0, lora1, ...
	Adapters []trace.Adapter
	// Progress, if not nil, is called with the number of bytes read from the disk so far. If the file is read
	// twice, the number starts again. If Progress returns an error, reading ends with this error.
	Progress func(bytesRead int64) error
	// PrefixBlock is the number of tokens of a block, which an id of hash_ids identifies; 0: 512.
	PrefixBlock int32
	Files       trace.Files
}

// A Reader reads a saved workload.
type Reader interface {
	trace.Source
	io.Closer
}

// Open opens a saved workload. ctx ends the wait for a pipe. The caller must close the reader. Errors name the file,
// the line (in Parquet and Arrow files the row, from 1) and the column. A file without requests is an error.
func Open(ctx context.Context, path string, o ReadOptions) (Reader, error) {
	n := newNames(o.Adapters)
	if isText(path) && o.Adapters == nil {
		if info, err := textfile.Stat(o.Files.FS, path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return nil, fmt.Errorf("%s: cannot be read twice to find its adapters; give --num-adapters", path)
		}
		first, err := newReader(ctx, path, o, n, adapterColumn, "rank")
		if err != nil {
			return nil, err
		}
		err = first.findAdapters()
		first.Close()
		if err != nil {
			return nil, err
		}
		if n, err = n.learned(); err != nil {
			return nil, fmt.Errorf("%s: column %q: %w", path, adapterColumn, err)
		}
	}
	n.fixed = true
	r, err := newReader(ctx, path, o, n)
	if err != nil || r.isText {
		return r, err
	}
	if err := r.openBinary(o.Adapters); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// extension returns the extension that selects the format.
func extension(path string) string {
	return strings.ToLower(filepath.Ext(strings.TrimSuffix(path, ".gz")))
}

func isText(path string) bool { return extension(path) == ".csv" || extension(path) == ".jsonl" }

// reader reads a file of any format.
type reader struct {
	path   string
	isText bool
	isJSON bool
	file   *table.Reader
	row    row
	names  *names
	check  checker
	rows   int64
	texts  texts
}

// Len is known in Parquet and Arrow files.
func (r *reader) Len() int64 {
	if r.isText {
		return -1
	}
	return r.rows - r.check.n
}

// newReader opens a file. Where some columns are named, the others of a CSV file are
// not looked at.
func newReader(ctx context.Context, path string, o ReadOptions, n *names, only ...string) (*reader, error) {
	r := &reader{path: path, isText: isText(path), isJSON: extension(path) == ".jsonl", names: n,
		texts: texts{map[int32]*trace.Blocks{}, map[int64]*trace.Text{}, cmp.Or(o.PrefixBlock, defaultBlock)}}
	r.check.adapters = len(n.adapters)
	lists := extension(path) != ".csv"
	all, adapter := WriteOptions{MaxNew: true, Ranks: r.isText, Blocks: lists, blockTokens: lists, Texts: true},
		any(&r.row.Adapter)
	if r.isText {
		adapter = &r.row.text
	}
	columns := r.row.columns(adapter, all)
	for i, c := range columns {
		if len(only) > 0 && !r.isJSON && !slices.Contains(only, c.Name) {
			columns[i].Value = new(table.Raw)
		}
	}
	var err error
	r.file, err = table.Open(ctx, path, columns, table.Options{Strict: true, Progress: o.Progress,
		Files: table.Files(o.Files)})
	return r, err
}

// openBinary reads the metadata of a Parquet or Arrow file.
func (r *reader) openBinary(adapters []trace.Adapter) (err error) {
	if r.rows, err = r.file.Rows(); err != nil {
		return err
	}
	if adapters == nil {
		if r.names.adapters, err = parseAdapters(r.file.Meta()); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	r.check.adapters = len(r.names.adapters)
	return nil
}

func (r *reader) Adapters() []trace.Adapter { return r.names.adapters }

func (r *reader) Close() error { return r.file.Close() }

// read reads the next row.
func (r *reader) read() error {
	r.row = row{of: -1, parent: -1}
	if err := r.file.Read(); err != nil || !r.isText {
		return err
	}
	if r.row.rank < 0 {
		return r.file.Bad("rank", fmt.Errorf("%d is negative, expected >= 0", r.row.rank))
	}
	if err := r.row.setAdapter(r.isJSON); err != nil {
		return r.file.Bad(adapterColumn, err)
	}
	return nil
}

// findAdapters is the first pass over a CSV or JSONL file.
func (r *reader) findAdapters() error {
	for {
		if err := r.read(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.names.learn(&r.row); err != nil {
			return r.file.Bad(adapterColumn, err)
		}
	}
}

func (r *reader) Next() (trace.Request, error) {
	if err := r.read(); err != nil {
		if errors.Is(err, io.EOF) && r.check.n == 0 {
			err = fmt.Errorf("%s: %w", r.path, errEmpty)
		}
		return trace.Request{}, err
	}
	if r.isText {
		if err := r.names.resolve(&r.row); err != nil {
			return trace.Request{}, r.file.Bad(adapterColumn, err)
		}
	}
	if err := r.check.check(&r.row.Request); err != nil {
		return trace.Request{}, r.file.Bad("", err)
	}
	if err := r.texts.set(&r.row); err != nil {
		return trace.Request{}, r.file.Bad("", err)
	}
	return r.row.Request, nil
}

var errEmpty = errors.New("empty workload: it holds no request")

// checker checks the requests of a workload one after the other.
type checker struct {
	adapters int
	last     trace.Request
	n        int64 // requests so far
}

func (c *checker) check(r *trace.Request) error {
	if err := r.Check(c.adapters); err != nil {
		return err
	}
	if c.n > 0 && r.Arrival < c.last.Arrival {
		return fmt.Errorf(
			"arrival_s %v is before that of the previous request (%v): requests must be in the order of arrival",
			r.Arrival, c.last.Arrival)
	}
	if c.n > 0 && r.ID <= c.last.ID {
		return fmt.Errorf("id %d is not greater than that of the previous request (%d)", r.ID, c.last.ID)
	}
	c.last = *r
	c.n++
	return nil
}

func formatAdapters(as []trace.Adapter) string {
	if as == nil {
		as = []trace.Adapter{}
	}
	b, _ := json.Marshal(as) // texts and numbers always have a JSON form
	return string(b)
}

// ErrNoAdapters is the error for a Parquet or Arrow file that does not state its adapters.
var ErrNoAdapters = fmt.Errorf("no adapters under %q in the schema's metadata; give --num-adapters", adaptersKey)

func parseAdapters(meta [][2]string) (as []trace.Adapter, err error) {
	at := slices.IndexFunc(meta, func(m [2]string) bool { return m[0] == adaptersKey })
	if at < 0 || meta[at][1] == "" {
		return nil, ErrNoAdapters
	}
	if err := json.Unmarshal([]byte(meta[at][1]), &as); err != nil {
		return nil, fmt.Errorf("adapters under %q in the schema's metadata: %w", adaptersKey, err)
	}
	if len(as) > maxAdapters {
		return nil, fmt.Errorf("%d adapters, expected at most %d", len(as), maxAdapters)
	}
	for _, a := range as {
		if a.Rank < 0 {
			return nil, fmt.Errorf("adapter %q has rank %d, expected >= 0", a.Name, a.Rank)
		}
	}
	return slices.Clip(as), nil
}

// WriteOptions are the options of Write. They apply to CSV and JSONL; Parquet and Arrow files always hold
// everything.
type WriteOptions struct {
	MaxNew bool // write the column max_new_tokens
	Ranks  bool // write the column rank
	Names  bool // write adapter names; else indices
	Files  trace.Files

	Blocks, Texts bool // write common prefixes of prompts; set by [Write] if the first request has any
	blockTokens   bool // and the tokens of an id
}

// Write saves a workload and returns the number of requests. The file appears under its name only when it is
// complete. On an error nothing is left behind, and an earlier file of that name is kept. Write checks requests as
// Open does, and returns an error for a workload without requests. Without WriteOptions.MaxNew, a request whose
// max_new_tokens differs from its output tokens is an error in CSV and JSONL.
//
// The same requests give the same bytes.
func Write(path string, src trace.Source, o WriteOptions) (int64, error) {
	if !isText(path) {
		o = WriteOptions{MaxNew: true, Files: o.Files}
	}
	r, err := src.Next()
	first := r.Text
	if err == nil && first != nil {
		o.Blocks, o.Texts = r.Text.Block > 0, r.Text.Block == 0
		o.blockTokens = o.Blocks && r.Text.Block != defaultBlock
		if o.Blocks && extension(path) == ".csv" {
			return 0, fmt.Errorf(
				"%s: a .csv file has no column for the ids of prompts: choose .jsonl, .parquet or .arrow", path)
		}
	}
	var row row
	adapters := src.Adapters()
	var name string
	var adapter any = &row.Adapter
	if o.Names {
		adapter = &name
	}
	// Where all names are numbers, an apostrophe tells them from indices; else the other names do.
	quoted := extension(path) == ".csv" && !slices.ContainsFunc(adapters, func(a trace.Adapter) bool {
		return !isIndex([]byte(a.Name))
	})
	w, fault := table.Create(path, row.columns(adapter, o),
		table.Options{Meta: [][2]string{{adaptersKey, formatAdapters(adapters)}}, Files: table.Files(o.Files)})
	if fault != nil {
		return 0, fault
	}
	defer w.Abort()
	c := checker{adapters: len(adapters)}
	for ; !errors.Is(err, io.EOF); r, err = src.Next() {
		if err != nil {
			return 0, err
		}
		if err := c.check(&r); err != nil {
			return 0, fmt.Errorf("%s: request %d: %w", path, c.n, err)
		}
		if r.MaxNew != 0 && r.MaxNew != r.Output && !o.MaxNew {
			return 0, fmt.Errorf(
				"%s: request %d: max_new_tokens is %d and output_tokens %d, but the file has no column for it: set WriteOptions.MaxNew",
				path, c.n-1, r.MaxNew, r.Output)
		}
		if t := r.Text; t != nil && (first == nil || t.Block != first.Block) {
			return 0, fmt.Errorf(
				"%s: request %d: its prompt has another encoding (text or hash_ids) than that of the first request, for which the file has no column", path, c.n-1)
		}
		row.Request, row.rank, name = r, 0, ""
		if r.Adapter >= 0 {
			row.rank, name = int32(adapters[r.Adapter].Rank), adapters[r.Adapter].Name
			if quoted {
				name = "'" + name
			}
		}
		row.putText()
		if err := w.Write(); err != nil {
			return 0, err
		}
	}
	if c.n == 0 {
		return 0, fmt.Errorf("%s: %w", path, errEmpty)
	}
	return c.n, w.Close()
}
